"""A changelog in a real Kafka: what is read of it, and what its operators do to it meanwhile."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace

import orjson
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import (
    create_topic,
    delete_records,
    delete_topic,
    enlarge_topic,
    topic_names,
)
from lookup_core.changelog.change_decoder import DecoderSettings, RowChanges, TableChange
from lookup_core.changelog.format import ChangelogFormat, decoder_for
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.operator.watermark_valve import NO_WATERMARK_MS
from service.connectors.kafka.settings import KafkaSettings
from tests.integration.conftest import GUEST_PASSWORD
from tests.integration.kafka_reading import changelog, producing, reading, send_keys
from tests.service.connectors.kafka.keys_decoder import NOT_UNDERSTOOD, SCHEMA

OFTEN_S = 0.2  # how often brokers are asked for partitions


@pytest.fixture
def settings(kafka: KafkaBroker, topic: str) -> KafkaSettings:
    """How the topic of this test is reached."""
    return KafkaSettings((kafka.address,), topic, discovery_interval_s=OFTEN_S)


async def test_every_reader_reads_everything(settings: KafkaSettings, topic: str) -> None:
    """There is no group: two sidecars are told all changes, each of all partitions."""
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
    """What was written a minute before the start is told, and as much before as is wanted."""
    await create_topic(settings.brokers[0], topic)
    now_ms = int(time.time() * 1000)
    async with producing(settings.brokers[0]) as producer:
        for key, age_s in ((1, 600), (2, 70), (3, 50), (4, 0)):
            at_ms = now_ms - age_s * 1000
            await producer.send_and_wait(topic, key=b"%d" % key, timestamp_ms=at_ms)

    async with reading(replace(settings, lookback_messages=1)) as told:
        await told.until(lambda: told.is_caught_up)

    assert told.keys == [2, 3, 4]


async def test_quiet_topic_is_read_from_its_end(settings: KafkaSettings, topic: str) -> None:
    """Where nothing was written for a minute, the last messages are told, and then the next."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    await send_keys(brokers, topic, range(12))

    async with reading(replace(settings, lookback_s=0.0)) as told:
        await told.until(lambda: told.is_caught_up)
        await send_keys(brokers, topic, [12])
        await told.until(lambda: told.counts[12])

    assert told.keys == [*range(2, 13)]


async def test_added_partition_is_read_whole(settings: KafkaSettings, topic: str) -> None:
    """A partition that appears later is read from its first message, however old that is."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    async with reading(replace(settings, lookback_s=0.0)) as told:
        await told.until(lambda: told.is_caught_up)
        await enlarge_topic(brokers, topic, partitions=3)
        await send_keys(brokers, topic, [7, 8], partition=2)

        new = await told.discover()
        await told.until(lambda: len(told.keys) == 2)

    assert (new, told.keys) == ([f"{topic}-1", f"{topic}-2"], [7, 8])
    assert told.flushes == []


async def test_cut_off_changes_flush(settings: KafkaSettings, topic: str) -> None:
    """Where retention took what was to be read next, any row may have changed; then it goes on."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    async with reading(settings) as told:
        await told.until(lambda: told.is_caught_up)
        told.reader.pause(told.latest.keys())
        await told.read()
        await send_keys(brokers, topic, range(10))
        await delete_records(brokers, topic, before=8)
        told.reader.pause(())
        await told.until(lambda: told.counts[9])

    assert isinstance(told.changes[0], TableChange)
    assert told.keys == [8, 9]


async def test_position_that_is_gone_flushes(settings: KafkaSettings, topic: str) -> None:
    """A reader that comes back too late is told so at once, and reads what there is."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    await send_keys(brokers, topic, range(10))
    await delete_records(brokers, topic, before=10)
    split = f"{topic}-0"

    async with reading(settings, positions={split: 3}) as told:
        await told.until(lambda: told.is_caught_up)

    assert (len(told.flushes), told.keys, told.positions) == (1, [], {split: 10})


async def test_recreated_topic_flushes(settings: KafkaSettings, topic: str) -> None:
    """Another topic of the same name is noticed though it has more messages than the first."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    await send_keys(brokers, topic, [1, 2])
    source = changelog(settings)
    async with reading(settings, source=source) as told:
        await told.until(lambda: told.is_caught_up)
    await delete_topic(brokers, topic)
    await create_topic(brokers, topic)
    await send_keys(brokers, topic, range(10, 20))

    async with reading(settings, source=source, positions=told.positions) as anew:
        await anew.until(lambda: anew.is_caught_up)

    assert (len(anew.flushes), anew.keys) == (1, list(range(10, 20)))


async def test_topic_recreated_under_a_reader_flushes(settings: KafkaSettings, topic: str) -> None:
    """A reader notices by itself; a partition that is there no more is no hindrance."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic, partitions=2)
    await send_keys(brokers, topic, [1, 2])
    async with reading(settings) as told:
        await told.until(lambda: told.is_caught_up)
        await delete_topic(brokers, topic)
        await create_topic(brokers, topic)
        await send_keys(brokers, topic, range(10, 20))
        await told.until(lambda: told.positions == {f"{topic}-0": 10, f"{topic}-1": 0})

    assert len(told.flushes) == 2  # once for each partition that there was
    assert told.is_caught_up
    assert told.keys[-10:] == list(range(10, 20))  # all of the new topic, from its beginning
    # What was read of it before anybody knew that it is another one was told then, too.
    assert Counter([1, 2]) <= Counter(told.keys[:-10]) <= Counter([1, 2, *range(10, 20)])


async def test_missing_topic_is_named(settings: KafkaSettings, topic: str) -> None:
    """A topic that is not there is an error that says which, and it is found when it is made."""
    async with changelog(settings).enumerator(SCHEMA) as enumerator:
        with pytest.raises(BackendError) as caught:
            await enumerator.discover()
        await create_topic(settings.brokers[0], topic)
        found = await enumerator.discover()

    assert caught.value.code == ErrorCode.TABLE_UNAVAILABLE
    assert caught.value.detail == f"{settings.address}: the topic does not exist"
    assert [split.id for split in found] == [f"{topic}-0"]


async def test_readers_create_no_topics(settings: KafkaSettings, topic: str) -> None:
    """A topic that is deleted under its reader stays away, and the reader says so."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    settings = replace(settings, heartbeat_topic=f"{topic}-heartbeat")
    async with reading(settings) as told:
        await told.until(lambda: told.is_caught_up)
        await delete_topic(brokers, topic)
        with pytest.raises(BackendError) as caught:
            await told.until(lambda: False)

    assert caught.value.code == ErrorCode.TABLE_UNAVAILABLE
    assert not {topic, settings.heartbeat_topic}.intersection(await topic_names(brokers))


async def test_undecodable_message_stops_nothing(settings: KafkaSettings, topic: str) -> None:
    """A message that is not understood flushes, at its place among the others."""
    await create_topic(settings.brokers[0], topic)
    async with producing(settings.brokers[0]) as producer:
        for key in (b"1", b"\x00\x00nonsense", b"2"):
            await producer.send_and_wait(topic, key=key)

    async with reading(settings) as told:
        await told.until(lambda: told.is_caught_up)

    assert [isinstance(each, TableChange) for each in told.changes] == [False, True, False]
    assert (told.keys, told.flushes) == ([1, 2], [NOT_UNDERSTOOD])


async def test_log_is_not_flooded(settings: KafkaSettings, topic: str) -> None:
    """Of many messages that are not understood for one reason, the first is logged; all count."""
    await create_topic(settings.brokers[0], topic)
    told_in_all = 0
    with capture_logs() as lines:
        async with reading(settings) as told:
            await told.until(lambda: told.is_caught_up)
            for written in (3, 6):
                async with producing(settings.brokers[0]) as producer:
                    for _ in range(3):
                        await producer.send(topic, key=b"nonsense")
                while sum(told.positions.values()) < written:
                    told_in_all += sum(each.undecodable for each in await told.read())

    (line,) = [each for each in lines if each["event"] == "changelog.not_understood"]
    assert told_in_all == 6
    assert (line["topic"], line["partition"], line["offset"]) == (topic, 0, 0)
    assert line["reason"] == NOT_UNDERSTOOD


async def test_open_transaction_is_silence(settings: KafkaSettings, topic: str) -> None:
    """While a transaction hides what follows, nothing is heard; then all of it is told at once."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    async with reading(settings) as told, producing(brokers, transactional_id=topic) as producer:
        await told.until(lambda: told.is_caught_up)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, key=b"1")
        await send_keys(brokers, topic, [2])
        await told.until(lambda: told.silent_s > 1.5)
        hidden = list(told.keys)
        await producer.commit_transaction()
        await told.until(lambda: told.silent_s < 1.0 and told.counts[2])

    assert (hidden, told.keys) == ([], [1, 2])


async def test_aborted_transaction_is_passed_over(settings: KafkaSettings, topic: str) -> None:
    """What was aborted is not told, and does not keep a split from being caught up."""
    brokers = settings.brokers[0]
    await create_topic(brokers, topic)
    async with producing(brokers, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, key=b"1")
        await producer.abort_transaction()

    async with reading(settings, positions={f"{topic}-0": 0}) as told:
        await told.until(lambda: told.is_caught_up)

    assert (told.keys, told.positions) == ([], {f"{topic}-0": 2})  # the message and its marker


async def test_large_message_is_no_hindrance(settings: KafkaSettings, topic: str) -> None:
    """A message that is larger than what is asked for at once comes alone, and is told."""
    await create_topic(settings.brokers[0], topic)
    async with producing(settings.brokers[0]) as producer:
        for key in (b"1", b"2"):
            await producer.send_and_wait(topic, key=key, value=bytes(100_000))

    small = replace(settings, partition_fetch_bytes=1000, fetch_bytes=1000)
    async with reading(small) as told:
        await told.until(lambda: told.is_caught_up)

    assert told.keys == [1, 2]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_changes_are_read(settings: KafkaSettings, topic: str, codec: str) -> None:
    """Whatever a producer compresses with, its changes are told."""
    await create_topic(settings.brokers[0], topic)
    await send_keys(settings.brokers[0], topic, range(50), compression_type=codec)

    async with reading(settings) as told:
        await told.until(lambda: told.is_caught_up)

    assert told.keys == list(range(50))


async def test_heartbeats_move_the_watermark(settings: KafkaSettings, topic: str) -> None:
    """Without changes, a split that is read to its end is as late as the last heartbeat."""
    brokers, heartbeats = settings.brokers[0], f"{topic}-heartbeat"
    await create_topic(brokers, topic)
    at_ms = int(time.time() * 1000) + 60_000
    async with reading(replace(settings, heartbeat_topic=heartbeats)) as told:
        await told.until(lambda: told.is_caught_up)
        before_ms = told.latest[f"{topic}-0"].watermark_ms
        await create_topic(brokers, heartbeats, partitions=2)
        async with producing(brokers) as producer:
            while told.latest[f"{topic}-0"].watermark_ms != at_ms:
                await producer.send_and_wait(heartbeats, key=b"0", timestamp_ms=at_ms)
                await told.read()

    assert (before_ms, told.keys) == (NO_WATERMARK_MS, [])


async def test_null_value_deletes_its_key(settings: KafkaSettings, topic: str) -> None:
    """In a changelog of plain upserts a tombstone says that its key has no row."""
    await create_topic(settings.brokers[0], topic)
    rows = {1: {"id": 1, "name": "one"}, 2: None}
    async with producing(settings.brokers[0]) as producer:
        for key, row in rows.items():
            value = None if row is None else json.dumps(row).encode()
            await producer.send_and_wait(topic, key=b"%d" % key, value=value)
    upserts = decoder_for(
        ChangelogFormat.UPSERT_JSON,
        SCHEMA,
        settings=DecoderSettings("", with_rows=True),
        loads=orjson.loads,
    )

    async with reading(settings, source=changelog(settings, decoder=upserts)) as told:
        await told.until(lambda: told.is_caught_up)

    changes = [each for each in told.changes if isinstance(each, RowChanges)]
    rows_told = pa.Table.from_batches([each.rows for each in changes])["name"].to_pylist()
    assert (told.keys, rows_told) == ([1, 2], ["one", None])
    assert [gone for each in changes for gone in each.is_gone.tolist()] == [False, True]


@pytest.mark.parametrize(
    ("password", "code"),
    [("hers", ErrorCode.BACKEND_AUTH), (GUEST_PASSWORD, ErrorCode.FORBIDDEN)],
    ids=["login", "topic"],
)
async def test_refusals_say_what_is_refused(
    kafka: KafkaBroker, settings: KafkaSettings, topic: str, *, password: str, code: ErrorCode
) -> None:
    """A wrong password is one error, a user without rights to the topic is another."""
    await create_topic(kafka.address, topic)
    settings = replace(
        settings,
        brokers=(kafka.sasl_address,),
        security_protocol="SASL_PLAINTEXT",
        sasl_user="guest",
        sasl_password=password,
    )

    with pytest.raises(BackendError) as caught:
        async with asyncio.timeout(10.0), changelog(settings).enumerator(SCHEMA) as enumerator:
            await enumerator.discover()

    assert caught.value.code == code
    assert password not in str(caught.value)
