"""Error mapping: exceptions of aiokafka and the network as BackendError.

The texts are ours; those of the library stay in the chained exception, for debug logs.
"""

import ssl
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import cramjam
from aiokafka import errors

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.settings import KafkaSettings

_UNAVAILABLE, _REJECTED = ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.BACKEND_REJECTED
_DAMAGED = (_REJECTED, "a batch of messages is corrupt")
_REFUSED_LOGIN = (ErrorCode.BACKEND_AUTH, "the brokers refuse the user or the password")
_NO_MECHANISM = (ErrorCode.BACKEND_AUTH, "the brokers do not support this SASL mechanism")
_DENIED = (ErrorCode.FORBIDDEN, "the user may not read or describe the topic")
_TOO_OLD = (_REJECTED, "the brokers are older than Kafka 2.8")
_NO_RESPONSE = (_UNAVAILABLE, "the brokers do not respond in time")
_NO_BROKER = (_UNAVAILABLE, "no broker can be reached, or the connection broke")

# The entry of the nearest base class counts.
_REASONS: dict[type[BaseException], tuple[ErrorCode, str]] = {
    errors.SaslAuthenticationFailed: _REFUSED_LOGIN,
    errors.AuthenticationFailedError: _REFUSED_LOGIN,
    errors.AuthenticationMethodNotSupported: _REFUSED_LOGIN,
    errors.UnsupportedSaslMechanismError: _NO_MECHANISM,
    errors.TopicAuthorizationFailedError: _DENIED,
    errors.ClusterAuthorizationFailedError: _DENIED,
    errors.UnknownTopicOrPartitionError: (ErrorCode.TABLE_UNAVAILABLE, "the topic does not exist"),
    errors.CorruptRecordException: _DAMAGED,
    errors.UnsupportedCodecError: (_REJECTED, "the compression of a batch is not supported"),
    errors.IncompatibleBrokerVersion: _TOO_OLD,
    NotImplementedError: _TOO_OLD,
    errors.KafkaTimeoutError: _NO_RESPONSE,
    errors.RequestTimedOutError: _NO_RESPONSE,
    errors.KafkaConnectionError: _NO_BROKER,
    errors.KafkaError: (_UNAVAILABLE, "the brokers responded with an unexpected error"),
    ssl.SSLError: (_UNAVAILABLE, "TLS failed, or a certificate cannot be read"),
    FileNotFoundError: (_UNAVAILABLE, "a certificate file is missing"),
    TimeoutError: _NO_RESPONSE,
    OSError: _NO_BROKER,
    # The others are raised for malformed bytes.
    EOFError: _DAMAGED,
    zlib.error: _DAMAGED,
    cramjam.DecompressionError: _DAMAGED,
    ValueError: (_REJECTED, "the settings conflict, or the server does not speak Kafka"),
}
_FOREIGN = tuple(_REASONS)


@contextmanager
def mapped_errors(settings: KafkaSettings) -> Iterator[None]:
    """Raise BackendError, chained, for all errors of connecting to a topic and reading it."""
    try:
        yield
    except _FOREIGN as error:
        found = (_REASONS.get(kind) for kind in type(error).__mro__)
        code, reason = next(each for each in found if each)
        raise BackendError(code, f"{settings.address}: {reason}") from error
