"""What aiokafka and the network raise, as BackendError: the one place that knows its errors.

The texts are ours; the library's stay in the chained exception, which is for debug logs only.
"""

import ssl
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import cramjam
from aiokafka import errors

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.settings import KafkaSettings

_DAMAGED = (ErrorCode.BACKEND_REJECTED, "a batch of messages is damaged")
_REFUSED_LOGIN = (ErrorCode.BACKEND_AUTH, "the brokers refuse the user or the password")
_DENIED = (ErrorCode.FORBIDDEN, "the user may not read the topic, or not describe it")

# {class: what it means to us}, the nearest base class counts
_MEANINGS: dict[type[BaseException], tuple[ErrorCode, str]] = {
    errors.SaslAuthenticationFailed: _REFUSED_LOGIN,
    errors.AuthenticationFailedError: _REFUSED_LOGIN,
    errors.AuthenticationMethodNotSupported: _REFUSED_LOGIN,
    errors.UnsupportedSaslMechanismError: (
        ErrorCode.BACKEND_AUTH,
        "the brokers do not offer this SASL mechanism",
    ),
    errors.TopicAuthorizationFailedError: _DENIED,
    errors.ClusterAuthorizationFailedError: _DENIED,
    errors.UnknownTopicOrPartitionError: (ErrorCode.TABLE_UNAVAILABLE, "there is no such topic"),
    errors.CorruptRecordException: _DAMAGED,
    errors.UnsupportedCodecError: (
        ErrorCode.BACKEND_REJECTED,
        "a batch of messages is compressed in a way that cannot be read here",
    ),
    errors.IncompatibleBrokerVersion: (
        ErrorCode.BACKEND_REJECTED,
        "the brokers are older than Kafka 2.8",
    ),
    NotImplementedError: (ErrorCode.BACKEND_REJECTED, "the brokers are older than Kafka 2.8"),
    errors.KafkaTimeoutError: (ErrorCode.BACKEND_UNAVAILABLE, "no answer in time"),
    errors.RequestTimedOutError: (ErrorCode.BACKEND_UNAVAILABLE, "no answer in time"),
    errors.KafkaConnectionError: (
        ErrorCode.BACKEND_UNAVAILABLE,
        "no broker can be reached, or the connection broke",
    ),
    errors.KafkaError: (ErrorCode.BACKEND_UNAVAILABLE, "the brokers do not answer as they should"),
    ssl.SSLError: (ErrorCode.BACKEND_UNAVAILABLE, "TLS failed, or a certificate cannot be read"),
    FileNotFoundError: (ErrorCode.BACKEND_UNAVAILABLE, "a file of a certificate is missing"),
    TimeoutError: (ErrorCode.BACKEND_UNAVAILABLE, "no answer in time"),
    OSError: (ErrorCode.BACKEND_UNAVAILABLE, "no broker can be reached, or the connection broke"),
    # What else is raised comes out of bytes that are not what they say.
    EOFError: _DAMAGED,
    zlib.error: _DAMAGED,
    cramjam.DecompressionError: _DAMAGED,
    ValueError: (
        ErrorCode.BACKEND_REJECTED,
        "the settings do not fit together, or what answers does not speak Kafka",
    ),
}
_FOREIGN = tuple(_MEANINGS)


@contextmanager
def mapped_errors(settings: KafkaSettings) -> Iterator[None]:
    """Raise BackendError, chained, for all that reading a topic can fail with."""
    try:
        yield
    except _FOREIGN as error:
        code, reason = explained(error)
        raise BackendError(code, f"{settings.address}: {reason}") from error


def explained(error: BaseException) -> tuple[ErrorCode, str]:
    """The code and our reason for an exception of aiokafka or the network."""
    meanings = (_MEANINGS.get(kind) for kind in type(error).__mro__)
    return next(meaning for meaning in meanings if meaning)
