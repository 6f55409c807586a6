"""Connections to PostgreSQL without a server: settings, errors, timeouts, and closing."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from configparser import InterpolationSyntaxError
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import asyncpg
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode
from service.config.source import PostgresSource
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.connections import PostgresConnections
from service.connectors.postgres.errors import explained, mapped_errors, mapped_parameters
from service.connectors.postgres.sessions import PostgresSettings, close_session
from service.connectors.postgres.snapshot import PostgresSnapshot, PostgresSnapshotReader
from service.postgres_dsn import RotatedDsn
from tests.service.connectors.postgres.described_tables import NO_SERVER, PRICES, split_of
from tools.processes.sidecar_process import free_port

PATIENCE_S = 30.0  # a test that waits longer has failed
SETTINGS = PostgresSettings("postgresql://user:secret@db/shop", "public.customers", ("id",))
OLD, NEW = "postgresql://u:old@h/shop", "postgresql://u:new@h/shop"


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://user:secret@db:5432/shop?sslmode=require", "db:5432"),
        ("postgres://db", "db"),
        ("postgresql://u@a:1,b.example:2/shop", "a:1,b.example:2"),
        ("postgresql://u:secret@[::1]:5432", "[::1]:5432"),
        ("postgresql://u@/shop?host=/run", ""),
        *((f"postgresql://user:1{mark}2@db/shop", "") for mark in "/?#@"),  # not quoted
    ],
)
def test_address_shows_no_secret(dsn: str, address: str) -> None:
    """The address has hosts and ports only; it is empty for an ambiguous DSN."""
    settings = replace(SETTINGS, dsn=dsn)

    assert (settings.address, "secret" in repr(settings)) == (address, False)


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda path: path.write_text("secret"),
        lambda path: path.write_text("postgresql://u:secret@h/shop\nsslmode=require"),
        lambda path: path.write_bytes(b"\xff"),
    ],
)
def test_rotated_dsn_is_read_again(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    """The DSN is read for each connection; a faulty file is logged without its content."""
    path = tmp_path / "dsn"
    path.write_text(OLD)
    path.chmod(0o600)
    source = PostgresSource(kind="postgres", table="t", dsn_file=path)
    dsn = RotatedDsn(path, source.read_new_dsn, first=source.read_dsn())
    found = [dsn.now()]
    path.write_text(NEW + "\n")
    found.append(dsn.now())
    spoil(path)

    with capture_logs() as logs:
        found.append(dsn.now())

    assert found == [OLD, NEW, NEW]
    assert [event["event"] for event in logs] == ["postgres.dsn_file_unusable"]
    assert "secret" not in str(logs)


STATES = {
    state: code
    for code, states in {
        ErrorCode.BACKEND_UNAVAILABLE: (
            "08003 3D000 40001 53300 53400 55000 55P03 57P01 57P03 58030 XX000"
        ),
        ErrorCode.SCHEMA_CHANGED: "0A000 42703 42P01",
        ErrorCode.KEY_REJECTED: "21000 22P02 22P05 54000 P0001",
        ErrorCode.VALUE_REJECTED: "22021",
        ErrorCode.BACKEND_REJECTED: "26000 39000",
        ErrorCode.BACKEND_AUTH: "28000 28P01",
        ErrorCode.FORBIDDEN: "42501",
        ErrorCode.TIMEOUT: "57014",
    }.items()
    for state in states.split()
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


def no_database(message: str) -> asyncpg.PostgresError:
    """The error of a server that lacks the database."""
    return asyncpg.PostgresError.new({"C": "3D000", "M": message})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "denied", "/a/.postgresql/x.key"), "/a/.postgresql/x.key may not be"),
        (PermissionError(13, "denied"), "a file of the DSN, or of ~/.postgresql, may not be read"),
        (
            asyncpg.ClientConfigurationError('root certificate file "/a" does not exist'),
            'root certificate file "/a" does not exist; grant this user the file, or name others',
        ),
        (no_database('database "shop" does not exist'), "the database 'shop' of the DSN does not "),
        (no_database("Datenbank »shop« existiert nicht"), "the database 'shop' of the DSN does "),
        (no_database("la base de données « shop » n'existe pas"), "the database 'shop' of the DSN"),
        (no_database("no such database: shop"), "the database 'shop' of the DSN does not exist; "),
        (
            no_database('database "a b" does not exist'),
            "the database 'a b' of the DSN does not exist; create it (createdb 'a b'), or correct ",
        ),
        (no_database("shop"), "the database of the DSN does not exist; create it (createdb), or "),
    ],
    ids=str,
)
def test_fault_of_the_dsn_is_named(error: Exception, reason: str) -> None:
    """A file or database of the DSN is in the reason; waiting for a database does not help."""
    with pytest.raises(BackendError) as caught, mapped_errors("t"):
        raise error

    assert caught.value.detail.startswith(f"t: {reason}")
    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.is_retryable is not isinstance(error, asyncpg.InvalidCatalogNameError)


def test_parameter_that_a_pooler_lacks_is_named() -> None:
    """PgBouncer refuses parameters as a breach of the protocol; a missing right is no parameter."""
    refusal = {"C": "08P01", "M": "unsupported startup parameter: jit"}
    no_right = {"C": "42501", "M": "permission denied for database a", "R": "CheckMyDatabase"}

    with pytest.raises(BackendError) as caught, mapped_errors("t"), mapped_parameters():
        raise asyncpg.PostgresError.new(refusal)
    with pytest.raises(asyncpg.InsufficientPrivilegeError), mapped_parameters():
        raise asyncpg.PostgresError.new(no_right)

    assert caught.value.code is ErrorCode.BACKEND_REJECTED
    assert caught.value.detail == (
        "t: the pooler refuses the parameter 'jit' of the session; set pgbouncer: true, or remove "
        "it from the DSN"
    )


@pytest.mark.parametrize("state", STATES)
def test_text_of_the_server_stays_inside(state: str) -> None:
    """The SQLSTATE sets the code; the server's text, with values of rows, is only chained."""
    fields = {"C": state, "M": "failed for key 4711", "D": "Failing row contains (4711, secret)."}

    with pytest.raises(BackendError) as caught, mapped_errors("public.customers"):
        raise asyncpg.PostgresError.new(fields)

    assert caught.value.code is STATES[state]
    assert caught.value.detail.startswith("public.customers: ")
    assert "4711" not in str(caught.value)
    assert "4711" in str(caught.value.__cause__)


def test_network_errors_have_distinct_reasons() -> None:
    """Each kind of network error has its own reason, or the reason of its base class."""
    explanations = [explained(error) for error in UNREACHABLE]

    assert {code for code, _ in explanations} == {ErrorCode.BACKEND_UNAVAILABLE}
    assert len({reason for _, reason in explanations}) == len(UNREACHABLE)
    assert explained(ConnectionAbortedError()) == explained(ConnectionError())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncpg.DataError("invalid input for query argument $1"), ErrorCode.KEY_REJECTED),
        (asyncpg.OutdatedSchemaCacheError("type changed"), ErrorCode.SCHEMA_CHANGED),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), ErrorCode.VALUE_REJECTED),
        (ValueError("invalid port"), ErrorCode.BACKEND_UNAVAILABLE),
    ],
    ids=lambda value: str(value)[:20],
)
def test_client_errors_have_codes(error: Exception, code: ErrorCode) -> None:
    """Errors that asyncpg raises itself have their codes."""
    assert explained(error)[0] is code


@pytest.mark.parametrize("error", [BackendError(ErrorCode.TIMEOUT, "late"), KeyError("defect")])
def test_other_errors_pass_unchanged(error: Exception) -> None:
    """Mapped errors and defects are not mapped again."""
    with pytest.raises(type(error)) as caught, mapped_errors("public.customers"):
        raise error

    assert caught.value is error


@asynccontextmanager
async def connections_to(
    dsn: str, *, connect_timeout_s: float = PATIENCE_S
) -> AsyncIterator[PostgresConnections]:
    """Open connections."""
    settings = PostgresSettings(
        dsn, "public.customers", ("id",), connect_timeout_s=connect_timeout_s
    )
    async with PostgresConnections(settings) as connections:
        yield connections


async def failure_of(call: Awaitable[object]) -> str:
    """The detail of the error `backend_unavailable`, without the table."""
    with pytest.raises(BackendError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await call
    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.is_retryable
    return caught.value.detail.partition(": ")[2]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are accepted and nothing is sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


MALFORMED = (
    "the DSN, its service or password file, or a variable such as PGHOST is malformed; write "
    "postgresql://user@host:port/database"
)


@pytest.mark.parametrize(
    ("dsn", "reason"),
    [
        (
            "postgresql://postgres@/shop?host=/nowhere",
            "the Unix socket of the DSN does not exist",
        ),
        (
            "postgresql://postgres:geheim@127.0.0.1:{port}/shop",
            "nothing listens at the address of the DSN (127.0.0.1:{port})",
        ),
        (
            "postgresql://postgres@nowhere.invalid/shop",
            "the host name of the DSN does not resolve (nowhere.invalid); correct it",
        ),
        (
            "postgresql://postgres@127.0.0.1:{port}/shop?sslmode=require&sslcert=/nowhere/a.crt",
            "a file of the DSN, or of ~/.postgresql, does not exist (127.0.0.1:{port}); grant",
        ),
        (
            "postgresql://postgres@127.0.0.1:{port}/shop?sslmode=verify-full&sslrootcert=/",
            "a file of the DSN, or of ~/.postgresql, is a folder (127.0.0.1:{port}); grant",
        ),
        ("mysql://db/shop", MALFORMED),
        ("postgresql://db:port/shop", MALFORMED),
        ("host=db", MALFORMED),
        ("postgresql://[::1/shop", MALFORMED),
    ],
)
async def test_unreachable_server_has_its_reason(dsn: str, reason: str) -> None:
    """The error of an unreachable server has a reason and the address, without the password."""
    port = free_port()

    async with connections_to(dsn.format(port=port)) as connections:
        found = await failure_of(connections.run("SELECT 1", [], timeout_s=PATIENCE_S))

    assert found.startswith(reason.format(port=port))
    assert "geheim" not in found


NO_USER = f"the DSN has no user, and uid {os.getuid()} has no name; write a user into the DSN"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (IndexError("host"), MALFORMED),
        (UnicodeError("label empty or too long"), MALFORMED),
        (InterpolationSyntaxError("password", "service", "%"), MALFORMED),
        (KeyError("getpwuid(): uid not found"), NO_USER),
    ],
)
def test_unreadable_address_is_no_row(error: Exception, reason: str) -> None:
    """What the client cannot read before it connects is a fault of the DSN, not of a row."""
    with pytest.raises(BackendError) as caught, mapped_errors("t"), mapped_parameters():
        raise error

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.detail == f"t: {reason}"


async def test_other_protocol_is_unavailable() -> None:
    """A server that speaks another protocol is unavailable."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        dsn = f"postgresql://postgres@127.0.0.1:{port}/shop?sslmode=disable"
        async with connections_to(dsn) as connections:
            assert await failure_of(connections.run("SELECT 1", [], timeout_s=PATIENCE_S))


@pytest.mark.parametrize(("connect_timeout_s", "timeout_s"), [(0.05, 3600.0), (3600.0, 0.05)])
async def test_silent_server_is_given_up(
    silent_port: int, connect_timeout_s: float, timeout_s: float
) -> None:
    """A query to a silent server ends at the connect timeout, or at its own timeout."""
    dsn = f"postgresql://postgres@127.0.0.1:{silent_port}/shop"

    async with connections_to(dsn, connect_timeout_s=connect_timeout_s) as connections:
        found = await failure_of(connections.run("SELECT 1", [], timeout_s=timeout_s))

    assert found.startswith("the connection attempt timed out")


async def test_cancelled_connect_ends(silent_port: int) -> None:
    """A cancelled query does not wait for a silent server, nor does closing."""
    dsn = f"postgresql://postgres@127.0.0.1:{silent_port}/shop"
    async with asyncio.timeout(PATIENCE_S), connections_to(dsn) as connections:
        task = asyncio.ensure_future(connections.run("SELECT 1", [], timeout_s=3600.0))
        await asyncio.sleep(0)

        task.cancel()
        await asyncio.wait([task])

    assert task.cancelled()


async def test_backend_opens_without_server() -> None:
    """A backend opens without its server, a snapshot does not; both close after failures."""
    enumerator = PostgresSnapshot(NO_SERVER).enumerator(PRICES.schema)
    async with PostgresBackend(NO_SERVER) as backend, PostgresSnapshotReader(NO_SERVER) as reader:
        assigning = reader.assign(split_of([None, None]), position=None)
        found = [
            await failure_of(backend.describe(timeout_s=PATIENCE_S)),
            await failure_of(backend.probe(timeout_s=PATIENCE_S)),
            await failure_of(enumerator.__aenter__()),
            await failure_of(assigning),
        ]
        with pytest.raises(AssertionError, match="describe comes first"):
            await backend.fetch(pa.record_batch({"id": [1]}), timeout_s=1.0)

    assert found == ["the Unix socket of the DSN does not exist"] * 4
    assert backend.uses_index is None


def test_snapshot_is_read_in_parallel() -> None:
    """A snapshot is bounded, is discovered once, and has several readers."""
    source = PostgresSnapshot(NO_SERVER)

    assert (source.is_bounded, source.reading_mode) == (True, ReadingMode.PARALLEL)
    assert source.enumerator(PRICES.schema).discovery_interval_s is None


class ClosingConnection:
    """A connection with a faulty close."""

    def __init__(self, fault: BaseException | None) -> None:
        self.is_terminated = False
        self._fault = fault

    async def close(self) -> None:
        """Close politely."""
        if self._fault is not None:
            raise self._fault

    def terminate(self) -> None:
        """Close at once."""
        self.is_terminated = True


@pytest.mark.parametrize(
    "fault",
    [
        *(None, ConnectionResetError(), TimeoutError(), asyncpg.InterfaceError("closed already")),
        asyncio.CancelledError(),
    ],
    ids=repr,
)
async def test_connection_is_always_terminated(fault: BaseException | None) -> None:
    """A close terminates the connection and raises nothing but cancellation."""
    connection = ClosingConnection(fault)
    closing = close_session(cast("asyncpg.Connection[asyncpg.Record]", connection))

    results = await asyncio.gather(closing, return_exceptions=True)

    assert connection.is_terminated
    assert [type(each) for each in results] == [
        asyncio.CancelledError if isinstance(fault, asyncio.CancelledError) else type(None)
    ]
