"""Two thousand concurrent callers of a cold cache, and the few queries that they cause."""

import asyncio
import json
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.protection.callers import ROWS, put_customers
from tests.integration.sidecars import postgres_sidecar
from tools.processes.postgres_server import Database, PostgresServer

MAX_KEYS = 500  # of one query, by default
SLACK = 10  # queries: up to 8 may start before later keys can be collected
TIMEOUT_MS = 20_000
PATIENT = {"timeout": "20s"}  # otherwise a slow query is retried, which is a second query
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# One log entry of a lookup query; the keys are numbers, so commas separate them.
QUERY = r"""LOG:  execute \S+: SELECT [bk]\.ordinal.* FROM "public"\."customers" .*
.*DETAIL:  Parameters: \$1 = '\{(.*)\}'"""


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The server log, from which the lookup queries of a test are read."""

    path: Path
    begin_bytes: int

    def sizes(self) -> list[int]:
        """The number of keys of each query, in order."""
        with self.path.open() as log:
            log.seek(self.begin_bytes)
            return [keys.count(",") + 1 for keys in re.findall(QUERY, log.read())]


@pytest.fixture
def query_log(postgres_server: PostgresServer, database: Database) -> QueryLog:
    """The log of queries in the table `customers`."""
    put_customers(database)
    database.execute(f"ALTER DATABASE {database.name} SET log_statement = 'all'")
    return QueryLog(postgres_server.log, postgres_server.log.stat().st_size)


async def test_burst_becomes_few_queries(
    folder: Path, database: Database, query_log: QueryLog
) -> None:
    """2,000 requests for distinct cold keys cause at most 2,000 / `max_keys` + 10 queries."""
    with postgres_sidecar(folder, database.dsn(), {"customers": PATIENT}).running():
        names = await burst(folder / "sidelook.sock", range(1, ROWS + 1))

    sizes = query_log.sizes()
    assert names == [f"customer {key}" for key in range(1, ROWS + 1)]
    assert sum(sizes) == ROWS
    assert len(sizes) <= ROWS / MAX_KEYS + SLACK


async def burst(path: Path, keys: Sequence[int]) -> list[str]:
    """The name of each key, looked up on a connection of its own, all at the same time.

    The bytes are written directly: a full HTTP client takes longer to send than the sidecar to
    answer. A first request on each connection makes sure that it is accepted.
    """
    streams = [await _connection(path) for _ in keys]
    try:
        for _, writer in streams:
            writer.write(b"GET /v1/dimensions HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for reader, _ in streams:
            await _reply(reader)
        for (_, writer), key in zip(streams, keys, strict=True):
            writer.write(_request(key))
        replies = [await _reply(reader) for reader, _ in streams]
        return [reply["rows"][0]["name"] for reply in replies]
    finally:
        for _, writer in streams:
            writer.close()


async def _connection(path: Path) -> Stream:
    # Connected synchronously: the event loop takes a full backlog for a connection.
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(str(path))
    return await asyncio.open_unix_connection(sock=connected)


def _request(key: int) -> bytes:
    body = json.dumps({"keys": [key], "timeout_ms": TIMEOUT_MS})
    head = (
        "POST /v1/dimensions/customers/lookup HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join([*head, "", body]).encode()


async def _reply(reader: asyncio.StreamReader) -> Any:  # noqa: ANN401  # any JSON
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(line for line in head.splitlines() if line.startswith("content-length:"))
    return json.loads(await reader.readexactly(int(length.partition(":")[2])))
