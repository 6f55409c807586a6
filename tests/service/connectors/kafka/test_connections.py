"""Connections to Kafka without brokers: settings, errors, metadata, and closing in time."""

import asyncio
import ssl
import zlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cramjam
import pytest
from aiokafka import errors
from aiokafka.cluster import ClusterMetadata

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.assignment import KafkaTopic
from service.connectors.kafka.changelog import KafkaChangelog, KafkaEnumerator, KafkaReader
from service.connectors.kafka.consumer import KafkaClient, KafkaConsumer
from service.connectors.kafka.errors import mapped_errors
from service.connectors.kafka.metadata import (
    TopicMetadata,
    TopicMetadataQuery,
    TopicMetadataRequest,
    TopicMetadataResponse,
)
from service.connectors.kafka.settings import KafkaSettings
from tests.service.connectors.kafka.keys_decoder import SCHEMA, KeysDecoder
from tools.virtual_time import run_in_virtual_time

SETTINGS = KafkaSettings(("one:9092", "two:9092"), "planes", sasl_password="opens-sesame")
NO_BROKER = KafkaSettings(("127.0.0.1:1",), "planes", discovery_interval_s=3.0)
TOPIC_ID = bytes(range(16))
# An answer of Kafka 4.1: a topic of one partition, and one that does not exist.
ANSWER = TopicMetadataResponse(
    0,
    [(1, "127.0.0.1", 9092, None, {})],
    "cluster",
    1,
    [
        (0, "planes", TOPIC_ID, False, [(0, 0, 1, 7, [1], [1], [], {})], -2147483648, {}),
        (3, "beats", bytes(16), False, [], -2147483648, {}),
    ],
    -2147483648,
    {},
)


def test_settings_hide_the_password() -> None:
    """Texts of the settings name topic and brokers, not the password."""
    assert SETTINGS.address == "topic planes of one:9092, two:9092"
    assert "opens-sesame" not in f"{SETTINGS} {SETTINGS!r} {SETTINGS.address}"
    assert SETTINGS.topics == ("planes",)
    assert replace(SETTINGS, heartbeat_topic="beats").topics == ("planes", "beats")


def test_connection_options_follow_the_protocol(tmp_path: Path) -> None:
    """TLS checks certificate and host name; without TLS there is no context."""
    plain = replace(SETTINGS, security_protocol="SASL_PLAINTEXT", sasl_user="reader")
    context = replace(SETTINGS, security_protocol="SSL").connection_options()["ssl_context"]
    missing = replace(SETTINGS, security_protocol="SASL_SSL", ca_file=tmp_path / "ca.pem")

    assert plain.connection_options() == {
        "client_id": "sidelook",
        "request_timeout_ms": 10_000,
        "security_protocol": "SASL_PLAINTEXT",
        "ssl_context": None,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "reader",
        "sasl_plain_password": "opens-sesame",
    }
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    with pytest.raises(FileNotFoundError):
        missing.connection_options()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SaslAuthenticationFailed("opens-sesame"), ErrorCode.BACKEND_AUTH),
        (errors.UnsupportedSaslMechanismError("PLAIN"), ErrorCode.BACKEND_AUTH),
        (errors.TopicAuthorizationFailedError("planes"), ErrorCode.FORBIDDEN),
        (errors.UnknownTopicOrPartitionError("planes"), ErrorCode.TABLE_UNAVAILABLE),
        (errors.CorruptRecordException("crc"), ErrorCode.BACKEND_REJECTED),
        (errors.UnsupportedCodecError("lz4"), ErrorCode.BACKEND_REJECTED),
        (cramjam.DecompressionError("lz4"), ErrorCode.BACKEND_REJECTED),
        (zlib.error("gzip"), ErrorCode.BACKEND_REJECTED),
        (NotImplementedError("version"), ErrorCode.BACKEND_REJECTED),
        (errors.KafkaTimeoutError(), ErrorCode.BACKEND_UNAVAILABLE),
        (errors.KafkaConnectionError(), ErrorCode.BACKEND_UNAVAILABLE),
        (errors.NotCoordinatorForGroupError(), ErrorCode.BACKEND_UNAVAILABLE),
        (ssl.SSLCertVerificationError("self-signed"), ErrorCode.BACKEND_UNAVAILABLE),
        (ConnectionRefusedError(), ErrorCode.BACKEND_UNAVAILABLE),
        (TimeoutError(), ErrorCode.BACKEND_UNAVAILABLE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_are_mapped_to_codes(error: Exception, code: ErrorCode) -> None:
    """Each error has a code and our own text, with topic and brokers; it is chained."""
    with pytest.raises(BackendError) as caught, mapped_errors(SETTINGS):
        raise error

    assert (caught.value.code, caught.value.__cause__) == (code, error)
    assert caught.value.detail.startswith(f"{SETTINGS.address}: ")
    assert "opens-sesame" not in caught.value.detail
    with pytest.raises(KeyError), mapped_errors(SETTINGS):
        raise KeyError  # a defect
    if isinstance(error, ssl.SSLError):
        assert caught.value.detail.endswith(": TLS failed, or a certificate cannot be read")


def test_metadata_request_creates_no_topic() -> None:
    """The bytes of the request forbid the creation of topics; the answer is read back."""
    query = TopicMetadataRequest(["planes"]).prepare({3: (0, 13)})

    assert isinstance(query, TopicMetadataQuery)
    assert query.encode() == b"\x02" + bytes(16) + b"\x07planes\x00" + bytes(3) + b"\x00"
    assert TopicMetadataResponse.decode(ANSWER.encode()) == ANSWER


def test_metadata_have_topic_ids() -> None:
    """Existing topics have ids, and aiokafka reads the rest of the metadata."""
    metadata, cluster = TopicMetadata.read(ANSWER), ClusterMetadata()
    cluster.update_metadata(metadata.of_cluster)

    assert metadata.topic_ids == {"planes": TOPIC_ID}
    assert [broker.port for broker in cluster.brokers()] == [9092]
    assert cluster.partitions_for_topic("planes") == {0}
    assert cluster.partitions_for_topic("beats") is None


@pytest.mark.parametrize(
    "opening",
    [
        lambda: KafkaReader(NO_BROKER, KeysDecoder(), topic=KafkaTopic()),
        lambda: KafkaEnumerator(NO_BROKER, KafkaTopic()),
        lambda: KafkaChangelog(NO_BROKER, lambda _: KeysDecoder()).enumerator(SCHEMA),
    ],
    ids=["reader", "enumerator", "changelog"],
)
async def test_missing_broker_is_reported(
    opening: Callable[[], AbstractAsyncContextManager[Any]],
) -> None:
    """Without a broker nothing opens and no task stays; the error names the address."""
    others = asyncio.all_tasks()

    with pytest.raises(BackendError) as caught:
        await opening().__aenter__()

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert "127.0.0.1:1" in caught.value.detail
    assert asyncio.all_tasks() == others


async def test_missing_certificate_is_reported(tmp_path: Path) -> None:
    """A missing certificate file is reported before any connection."""
    settings = replace(NO_BROKER, security_protocol="SSL", ca_file=tmp_path / "ca.pem")

    with pytest.raises(BackendError) as caught:
        await KafkaEnumerator(settings, KafkaTopic()).__aenter__()

    assert caught.value.detail == f"{settings.address}: a certificate file is missing"


async def test_unconnected_client_has_no_metadata() -> None:
    """Before a connection a refresh fails, in the background without an error."""
    client = KafkaClient(NO_BROKER)

    with pytest.raises(errors.KafkaConnectionError):
        await client.refresh()

    assert not await client._metadata_update(client.cluster, {"planes"})
    assert client.topic_ids == {}


async def test_login_failure_has_its_cause() -> None:
    """With a login, the error is that of a connection instead of the library's."""
    settings = KafkaSettings(
        *(NO_BROKER.brokers, NO_BROKER.topic),
        security_protocol="SASL_PLAINTEXT",
        sasl_user="reader",
        sasl_password="opens-sesame",
    )

    with pytest.raises(ConnectionRefusedError):
        await KafkaClient(settings).bootstrap()


async def test_unknown_topics_are_two_errors() -> None:
    """A missing and a forbidden topic are two errors; closing twice is harmless."""
    consumer, others = KafkaConsumer(NO_BROKER), asyncio.all_tasks()
    with pytest.raises(errors.KafkaConnectionError):
        await consumer.start()
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        consumer.changelog_partitions()
    consumer.client.cluster.unauthorized_topics.add("planes")
    with pytest.raises(errors.TopicAuthorizationFailedError):
        consumer.changelog_partitions()

    await consumer.close()
    await consumer.close()

    assert asyncio.all_tasks() == others


async def hangs() -> None:
    """A close that does not end."""
    await asyncio.Event().wait()


async def fails() -> None:
    """A close whose connection breaks."""
    raise errors.KafkaConnectionError


async def ends_cancelled() -> None:
    """The `stop` of aiokafka after a request was cut off: no caller was cancelled."""
    raise asyncio.CancelledError


@pytest.mark.parametrize("closing", [hangs, fails, ends_cancelled])
def test_close_never_raises(closing: Callable[[], Awaitable[None]]) -> None:
    """Closing ends without an error, whatever the brokers do."""

    async def main() -> None:
        consumer = KafkaConsumer(NO_BROKER)
        await consumer._within_time(closing())
        await consumer.close()

    run_in_virtual_time(main())


async def test_cancelled_close_is_cancelled() -> None:
    """A caller that is cancelled while it closes is cancelled."""
    consumer = KafkaConsumer(NO_BROKER)
    task = asyncio.create_task(consumer._within_time(hangs()))
    await asyncio.sleep(0)

    task.cancel()
    await asyncio.wait([task])
    await consumer.close()

    assert task.cancelled()
