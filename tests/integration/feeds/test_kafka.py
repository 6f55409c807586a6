"""Changelog topics of a real Kafka: what readers return, and faults of the broker."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker, kafka_broker
from demo.embedded_kafka.kafka_topics import create_topic, delete_records
from demo.embedded_kafka.shortened_log import shorten_log
from lookup_core.changelog.change_decoder import TableChange
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.settings import KafkaSettings
from tests.integration.conftest import GUEST_PASSWORD
from tests.integration.feeds.kafka_reading import (
    PATIENCE_S,
    Reading,
    changelog,
    eventually,
    producing,
    reading,
    send_keys,
)
from tests.service.connectors.kafka.keys_decoder import SCHEMA
from tests.service.connectors.source_contract import PausableSourceContract, SourceCase

CUT_OFF = "the next offset is no longer in the topic"
SHORTENED = "the log lost messages that were read, as after an unclean election of a leader"


class TestKafkaChangelog(PausableSourceContract):
    """The contract of sources, over two partitions of several batches."""

    @pytest.fixture
    async def case(self, kafka: KafkaBroker, topic: str) -> SourceCase:
        """A topic without further writes."""
        await create_topic(kafka.address, topic, partitions=2)
        for partition, first in ((0, 0), (1, 100)):
            for start in (first, first + 3):  # batches become pieces
                keys = range(start, start + 3)
                await send_keys(kafka.address, topic, keys, partition=partition)
        return SourceCase(changelog(KafkaSettings((kafka.address,), topic)), SCHEMA)


@pytest.fixture
def settings(kafka: KafkaBroker, topic: str) -> KafkaSettings:
    """The topic of this test."""
    return KafkaSettings((kafka.address,), topic)


async def test_every_reader_reads_all_partitions(settings: KafkaSettings, topic: str) -> None:
    """Readers share no consumer group: each of two reads all partitions (E6)."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic, partitions=2)
    await send_keys(brokers, topic, range(20))

    async with reading(settings) as left, reading(settings) as right:
        await left.until(lambda: left.is_caught_up)
        await right.until(lambda: right.is_caught_up)

    assert left.counts == right.counts == Counter(range(20))
    assert left.flushes == []
    assert sum(left.positions.values()) == 20


async def test_reading_begins_a_minute_back(settings: KafkaSettings, topic: str) -> None:
    """Reading starts one minute back, and `lookback_messages` before that (H2)."""
    await create_topic(settings.brokers[0], topic)
    now_ms = int(time.time() * 1000)
    async with producing(settings.brokers[0]) as producer:
        for key, age_s in ((1, 600), (2, 70), (3, 50), (4, 0)):
            at_ms = now_ms - age_s * 1000
            await producer.send_and_wait(topic, key=b"%d" % key, timestamp_ms=at_ms)

    async with reading(replace(settings, lookback_messages=1)) as read:
        await read.until(lambda: read.is_caught_up)

    assert read.keys == [2, 3, 4]


async def test_cut_off_changes_flush(settings: KafkaSettings, topic: str) -> None:
    """If retention deleted the next message, any row may have changed; reading continues (E3)."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    async with reading(settings) as read:
        await read.until(lambda: read.is_caught_up)
        read.reader.pause(read.latest.keys())
        await read.read()
        await send_keys(brokers, topic, range(10))
        await delete_records(brokers, topic, before=8)
        read.reader.pause(())
        await read.until(lambda: read.counts[9])

    assert isinstance(read.changes[0], TableChange)
    assert read.keys == [8, 9]


async def test_open_transaction_is_silence(settings: KafkaSettings, topic: str) -> None:
    """An open transaction counts as silence; after its commit, its changes are read (E16)."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    async with reading(settings) as read, producing(brokers, transactional_id=topic) as producer:
        await read.until(lambda: read.is_caught_up)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, key=b"1")
        await send_keys(brokers, topic, [2])
        await read.until(lambda: read.silent_s > 1.5)
        hidden = list(read.keys)
        await producer.commit_transaction()
        await read.until(lambda: read.silent_s < 1.0 and read.counts[2])

    assert (hidden, read.keys) == ([], [1, 2])


async def test_aborted_transaction_is_skipped(settings: KafkaSettings, topic: str) -> None:
    """Messages of an aborted transaction are skipped, and the split is caught up."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    async with producing(brokers, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, key=b"1")
        await producer.abort_transaction()

    async with reading(settings, positions={f"{topic}-0": 0}) as read:
        await read.until(lambda: read.is_caught_up)

    assert (read.keys, read.positions) == ([], {f"{topic}-0": 2})  # the message and its marker


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_changes_are_read(settings: KafkaSettings, topic: str, codec: str) -> None:
    """Changes are read from batches of each compression codec."""
    await create_topic(settings.brokers[0], topic)
    await send_keys(settings.brokers[0], topic, range(50), compression_type=codec)

    async with reading(settings) as read:
        await read.until(lambda: read.is_caught_up)

    assert read.keys == list(range(50))


@pytest.mark.parametrize(
    ("password", "code"),
    [("hers", ErrorCode.BACKEND_AUTH), (GUEST_PASSWORD, ErrorCode.FORBIDDEN)],
    ids=["login", "topic"],
)
async def test_refusals_have_their_codes(
    kafka: KafkaBroker, settings: KafkaSettings, topic: str, *, password: str, code: ErrorCode
) -> None:
    """A wrong password and a forbidden topic have distinct codes (E23)."""
    await create_topic(kafka.address, topic)
    settings = replace(
        settings,
        brokers=(kafka.sasl_address,),
        security_protocol="SASL_PLAINTEXT",
        sasl_user="guest",
        sasl_password=password,
    )

    with pytest.raises(BackendError) as caught:
        async with (
            asyncio.timeout(PATIENCE_S),
            changelog(settings).enumerator(SCHEMA) as enumerator,
        ):
            await enumerator.discover()

    assert caught.value.code == code
    assert password not in str(caught.value)


@pytest.fixture(scope="module")
def broker(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that tests stop; each test leaves it running."""
    with kafka_broker(tmp_path_factory.mktemp("kafka"), libraries=libraries) as broker:
        yield broker


@pytest.mark.parametrize("fault", ["freeze", "kill"])
async def test_long_silence_ends_the_reader(broker: KafkaBroker, topic: str, fault: str) -> None:
    """A reader of a silent or dead broker fails, and closing it leaves no task (E2, E21)."""
    await create_topic(broker.address, topic)
    settings = KafkaSettings((broker.address,), topic, request_timeout_s=3.0, give_up_after_s=1.0)
    others = asyncio.all_tasks()
    try:
        async with asyncio.timeout(PATIENCE_S), reading(settings) as read:
            await read.until(lambda: read.is_caught_up)
            (broker.freeze if fault == "freeze" else broker.kill)()
            with pytest.raises(BackendError) as caught:
                await read.until(lambda: False)
    finally:
        (broker.thaw if fault == "freeze" else broker.start)()

    assert caught.value.code == ErrorCode.BACKEND_UNAVAILABLE
    await eventually(lambda: asyncio.all_tasks() <= others)


@pytest.mark.parametrize("written", [4, 10])
async def test_shortened_log_flushes(broker: KafkaBroker, topic: str, written: int) -> None:
    """If the log loses messages that were read, any row may have changed, also if it grew again."""
    await create_topic(broker.address, topic)
    for key in range(50):
        await send_keys(broker.address, topic, [key])
    async with reading(KafkaSettings((broker.address,), topic)) as read:
        await read.until(lambda: read.is_caught_up and read.keys)
        before = [*read.changes]
        broker.kill()
        shorten_log(broker, topic, end=40)
        broker.start()
        await send_keys(broker.address, topic, range(100, 100 + written))
        await read.until(lambda: read.flushes)
        await read.until(lambda: read.is_caught_up)
        await read.until(lambda: read.counts[99 + written])

    assert read.flushes in ([SHORTENED], [CUT_OFF])
    after = Reading(read.reader, read.changes[len(before) :])
    assert isinstance(after.changes[0], TableChange)
    assert after.keys == [*range(40), *range(100, 100 + written)]


async def test_longer_log_is_followed(broker: KafkaBroker, topic: str) -> None:
    """If a restarted broker has all messages that were read, reading goes on."""
    await create_topic(broker.address, topic)
    await send_keys(broker.address, topic, range(5))
    async with reading(KafkaSettings((broker.address,), topic)) as read:
        await read.until(lambda: read.is_caught_up and read.keys)
        broker.kill()
        broker.start()
        await send_keys(broker.address, topic, range(5, 9))
        await read.until(lambda: read.counts[8])
        await send_keys(broker.address, topic, [9])
        await read.until(lambda: read.counts[9])

    assert (read.keys, read.flushes) == ([*range(10)], [])


async def test_restored_log_flushes(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """If a broker is restored from a copy, any row may have changed, also if epochs repeat."""
    data = broker.log.parent / "data"
    await create_topic(broker.address, topic)
    await send_keys(broker.address, topic, range(5))
    broker.kill()
    shutil.copytree(data, tmp_path / "copy")
    broker.start()
    await send_keys(broker.address, topic, range(5, 9))
    async with reading(KafkaSettings((broker.address,), topic)) as read:
        await read.until(lambda: read.is_caught_up and read.counts[8])
        broker.kill()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)
        broker.start()
        await send_keys(broker.address, topic, range(100, 110))
        await read.until(lambda: read.flushes)
        await read.until(lambda: read.counts[109])

    assert read.flushes == [SHORTENED]
    assert {*range(5), *range(100, 110)} <= {*read.keys}
