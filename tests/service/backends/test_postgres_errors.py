"""Each way to fail has its code and its own words, never the server's."""

import errno
import socket
import ssl

import asyncpg
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.errors import explained, mapped_errors

STATES = {
    "08003": ErrorCode.BACKEND_UNAVAILABLE,
    "0A000": ErrorCode.SCHEMA_CHANGED,
    "22P02": ErrorCode.KEY_REJECTED,
    "26000": ErrorCode.BACKEND_REJECTED,
    "28000": ErrorCode.BACKEND_AUTH,
    "28P01": ErrorCode.BACKEND_AUTH,
    "3D000": ErrorCode.BACKEND_UNAVAILABLE,
    "40001": ErrorCode.BACKEND_UNAVAILABLE,
    "42501": ErrorCode.FORBIDDEN,
    "42703": ErrorCode.SCHEMA_CHANGED,
    "42P01": ErrorCode.SCHEMA_CHANGED,
    "53300": ErrorCode.BACKEND_UNAVAILABLE,
    "54000": ErrorCode.KEY_REJECTED,
    "55P03": ErrorCode.BACKEND_UNAVAILABLE,
    "57014": ErrorCode.TIMEOUT,
    "57P01": ErrorCode.BACKEND_UNAVAILABLE,
    "57P03": ErrorCode.BACKEND_UNAVAILABLE,
    "58030": ErrorCode.BACKEND_UNAVAILABLE,
    "P0001": ErrorCode.BACKEND_REJECTED,
    "XX000": ErrorCode.BACKEND_UNAVAILABLE,
}

UNREACHABLE = [
    socket.gaierror(-2, "Name or service not known"),
    ConnectionRefusedError(111, "refused"),
    FileNotFoundError(2, "no socket"),
    PermissionError(13, "denied"),
    ssl.SSLError("handshake"),
    ConnectionResetError(104, "reset"),
    ConnectionError("rejected SSL upgrade"),
    TimeoutError(),
    OSError("Multiple exceptions"),
    OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
    asyncpg.TargetServerAttributeNotMatched("standby"),
    asyncpg.ProtocolError("unexpected"),
    asyncpg.InternalClientError("unexpected"),
    asyncpg.ClientConfigurationError("dsn"),
]


def server_error(state: str) -> asyncpg.PostgresError:
    """An error as the server sends it, its DETAIL showing a row."""
    fields = {"C": state, "M": "failed for key 4711", "D": "Failing row contains (4711, secret)."}
    return asyncpg.PostgresError.new(fields)


@pytest.mark.parametrize("state", STATES)
def test_state_decides_on_the_code(state: str) -> None:
    """The SQLSTATE, or else its class, says what it means for the keys."""
    assert explained(server_error(state))[0] is STATES[state]


@pytest.mark.parametrize("state", STATES)
def test_text_of_the_server_stays_inside(state: str) -> None:
    """The error that others see holds nothing of what the server wrote; its cause does."""
    with pytest.raises(BackendError) as caught, mapped_errors("public.customers"):
        raise server_error(state)

    assert caught.value.detail.startswith("public.customers: ")
    assert "4711" not in str(caught.value)
    assert "4711" in str(caught.value.__cause__)


def test_unreachable_servers_have_distinct_reasons() -> None:
    """Whoever reads the log sees which part of the way to the server is broken."""
    explanations = [explained(error) for error in UNREACHABLE]

    assert {code for code, _ in explanations} == {ErrorCode.BACKEND_UNAVAILABLE}
    reasons = [reason for _, reason in explanations]
    assert len(set(reasons)) == len(reasons)


def test_unknown_kind_takes_its_base() -> None:
    """An exception without words of its own is explained as its nearest base class."""
    assert explained(ConnectionAbortedError())[1] == explained(ConnectionError())[1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncpg.DataError("invalid input for query argument $1"), ErrorCode.KEY_REJECTED),
        (asyncpg.OutdatedSchemaCacheError("type changed"), ErrorCode.SCHEMA_CHANGED),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), ErrorCode.BACKEND_REJECTED),
        (ValueError("invalid port"), ErrorCode.BACKEND_UNAVAILABLE),
    ],
    ids=lambda value: str(value)[:20],
)
def test_errors_of_the_client_library(error: Exception, code: ErrorCode) -> None:
    """What asyncpg raises by itself is told apart, too."""
    assert explained(error)[0] is code


def test_own_errors_pass_unchanged() -> None:
    """A BackendError that was raised inside is not wrapped again."""
    error = BackendError(ErrorCode.TIMEOUT, "no answer")

    with pytest.raises(BackendError) as caught, mapped_errors("public.customers"):
        raise error

    assert caught.value is error


def test_bugs_are_not_hidden() -> None:
    """What is neither the server's nor the network's fault passes as it is."""
    with pytest.raises(KeyError), mapped_errors("public.customers"):
        raise KeyError("bug")
