"""What PostgreSQL, asyncpg and the network raise, as BackendError: the one place that knows codes.

The texts are ours. A server's message and DETAIL may hold values of rows and keys; they stay in the
chained exception, which is for debug logs only.
"""

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from lookup_core.errors import BackendError, ErrorCode

# {SQLSTATE, or its class (the first two digits): what it means to us}; PostgreSQL manual, App. A
_STATES: dict[str, tuple[ErrorCode, str]] = {
    "08": (ErrorCode.BACKEND_UNAVAILABLE, "the connection was lost"),
    "08P01": (
        ErrorCode.BACKEND_UNAVAILABLE,
        "the server or a pooler before it broke the protocol",
    ),
    "0A": (ErrorCode.SCHEMA_CHANGED, "the table is not what it was when it was described"),
    "22": (ErrorCode.KEY_REJECTED, "the server refused a value of this batch of keys"),
    "26": (ErrorCode.BACKEND_REJECTED, "a prepared statement is gone; behind PgBouncer say so"),
    "28": (ErrorCode.BACKEND_AUTH, "the server does not let the role of the DSN in"),
    "28P01": (ErrorCode.BACKEND_AUTH, "the server refused the password"),
    "3D": (ErrorCode.BACKEND_UNAVAILABLE, "the database of the DSN does not exist"),
    "3F": (ErrorCode.SCHEMA_CHANGED, "the schema of the table is gone"),
    "40": (ErrorCode.BACKEND_UNAVAILABLE, "the server gave the query up for others"),
    "42": (ErrorCode.SCHEMA_CHANGED, "the table or a column is not what it was when described"),
    "42501": (ErrorCode.FORBIDDEN, "the role of the DSN may not read the table"),
    "42P05": (ErrorCode.BACKEND_REJECTED, "a prepared statement is in the way; see PgBouncer"),
    "53": (ErrorCode.BACKEND_UNAVAILABLE, "the server is out of memory, disk or the like"),
    "53300": (ErrorCode.BACKEND_UNAVAILABLE, "the server has too many connections"),
    # A block of a column may have 1 GB; half of the keys have fewer rows, as where one is refused.
    "54": (ErrorCode.KEY_REJECTED, "the rows of this batch of keys are too large for one answer"),
    "55": (ErrorCode.BACKEND_UNAVAILABLE, "the table is locked or not ready"),
    "57": (ErrorCode.BACKEND_UNAVAILABLE, "the server is starting, stopping or was told to stop"),
    "57014": (ErrorCode.TIMEOUT, "the server ended the query at its statement timeout"),
    "58": (ErrorCode.BACKEND_UNAVAILABLE, "the server has trouble with its system"),
    "XX": (ErrorCode.BACKEND_UNAVAILABLE, "the server failed inside"),
}
_OTHER_STATE = (ErrorCode.BACKEND_REJECTED, "the server refused the query")

# {class: reason}, the nearest base class counts; all of them mean that the store is unavailable
_CONNECT_REASONS: dict[type[BaseException], str] = {
    socket.gaierror: "the host name of the DSN does not resolve",
    ConnectionRefusedError: "nothing listens at the address of the DSN",
    FileNotFoundError: "there is no Unix socket at the place that the DSN names",
    PermissionError: "the Unix socket of the DSN may not be opened",
    ssl.SSLError: "TLS failed",
    ConnectionResetError: "the connection was lost",
    ConnectionError: "the server does not offer TLS, or broke off",
    TimeoutError: "no connection in time",
    OSError: "the address of the DSN cannot be reached",
    asyncpg.TargetServerAttributeNotMatched: "no server has the session attributes of the DSN",
    asyncpg.ProtocolError: "what answers at the address of the DSN does not speak PostgreSQL",
    asyncpg.InternalClientError: "the connection is in disorder",
    asyncpg.ClientConfigurationError: "the DSN is malformed; postgresql://user@host:port/database",
    asyncpg.InterfaceError: "the connection was lost",
    ValueError: "the DSN is malformed; postgresql://user@host:port/database",
}


@contextmanager
def mapped_errors(table: str) -> Iterator[None]:
    """Raise BackendError, chained, for all that a query or a connection attempt can fail with."""
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        ValueError,
    ) as error:
        code, reason = explained(error)
        raise BackendError(code, f"{table}: {reason}") from error


def explained(error: BaseException) -> tuple[ErrorCode, str]:
    """The code and our reason for an exception of asyncpg or the network."""
    match error:
        case asyncpg.PostgresError(sqlstate=str(state)):
            return _STATES.get(state) or _STATES.get(state[:2], _OTHER_STATE)
        case asyncpg.OutdatedSchemaCacheError():
            return _STATES["0A"]
        case UnicodeError():
            return ErrorCode.BACKEND_REJECTED, "the table holds text that is not UTF-8"
        case OSError(errno=errno.EADDRNOTAVAIL):
            reason = "this machine has no port (or no address) left to connect from"
            return ErrorCode.BACKEND_UNAVAILABLE, reason
    reasons = (_CONNECT_REASONS.get(kind) for kind in type(error).__mro__)
    reason = next((reason for reason in reasons if reason), "the connection failed")
    return ErrorCode.BACKEND_UNAVAILABLE, reason
