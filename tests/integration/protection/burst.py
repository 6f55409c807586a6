"""Many connections to a sidecar that all ask at once, with as little of a client as can be.

Bytes written before anything is read: a full client takes longer to ask than the sidecar to answer.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TIMEOUT_MS = 20_000  # nobody is to give up meanwhile
_GREETING = b"GET /v1/dimensions HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Burst:
    """So many open connections."""

    streams: Sequence[Stream]

    @classmethod
    @asynccontextmanager
    async def connected(cls, path: Path, connections: int) -> "AsyncIterator[Burst]":
        """Open them, each accepted: a server takes longer to accept than to answer."""
        streams: list[Stream] = []
        try:
            while len(streams) < connections:
                streams.append(await _connection(path))
            for _, writer in streams:
                writer.write(_GREETING)
            for reader, _ in streams:
                await _answer(reader)
            yield cls(streams)
        finally:
            for _, writer in streams:
                writer.close()

    async def ask(self, table: str, keys: Sequence[int]) -> list[Any]:
        """Ask for each key on a connection of its own, all at once; the answers, in their order."""
        for (_, writer), key in zip(self.streams, keys, strict=True):
            writer.write(_request(table, key))
        return [await _answer(reader) for reader, _ in self.streams]


async def _connection(path: Path) -> Stream:
    # Connected before the loop gets it, which takes a full backlog for a connection.
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(str(path))
    return await asyncio.open_unix_connection(sock=connected)


def _request(table: str, key: int) -> bytes:
    body = json.dumps({"keys": [key], "timeout_ms": TIMEOUT_MS})
    head = (
        f"POST /v1/dimensions/{table}/lookup HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join([*head, "", body]).encode()


async def _answer(reader: asyncio.StreamReader) -> Any:  # noqa: ANN401  # any JSON
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode().lower().splitlines()
    length = next(line for line in lines if line.startswith("content-length:"))
    return json.loads(await reader.readexactly(int(length.partition(":")[2])))
