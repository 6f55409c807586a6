"""What reading a topic can fail with, and what it means."""

import ssl
import zlib

import cramjam
import pytest
from aiokafka import errors

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.errors import explained, mapped_errors
from service.connectors.kafka.settings import KafkaSettings

SETTINGS = KafkaSettings(("one:9092",), "planes", sasl_password="opens-sesame")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SaslAuthenticationFailed("eve"), ErrorCode.BACKEND_AUTH),
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
        (ssl.SSLError("verify"), ErrorCode.BACKEND_UNAVAILABLE),
        (ConnectionRefusedError(), ErrorCode.BACKEND_UNAVAILABLE),
        (TimeoutError(), ErrorCode.BACKEND_UNAVAILABLE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_failure_has_a_code(error: Exception, code: ErrorCode) -> None:
    """What was raised is chained; the code says what can be done about it."""
    with pytest.raises(BackendError) as caught, mapped_errors(SETTINGS):
        raise error

    assert caught.value.code == code
    assert caught.value.__cause__ is error


def test_texts_are_ours() -> None:
    """What a broker says is not passed on; topic and brokers are named."""
    with pytest.raises(BackendError) as caught, mapped_errors(SETTINGS):
        raise errors.SaslAuthenticationFailed("opens-sesame")

    expected = "topic planes of one:9092: the brokers refuse the user or the password"
    assert caught.value.detail == expected


def test_nearest_class_counts() -> None:
    """A certificate that is refused is not just a broken connection."""
    code, reason = explained(ssl.SSLCertVerificationError("self-signed"))

    assert (code, reason) == (
        ErrorCode.BACKEND_UNAVAILABLE,
        "TLS failed, or a certificate cannot be read",
    )


def test_other_errors_pass() -> None:
    """A defect of ours is not the broker's failure."""
    with pytest.raises(KeyError), mapped_errors(SETTINGS):
        raise KeyError
