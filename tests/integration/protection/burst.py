"""Many connections to a sidecar that all ask at once, with as little of a client as can be.

Bytes written before anything is read: a full client takes longer to ask than the sidecar to answer.
"""

import asyncio
import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TIMEOUT_MS = 20_000  # nobody is to give up meanwhile


@dataclass(frozen=True, slots=True)
class Burst:
    """So many open connections."""

    streams: Sequence[Stream]

    @classmethod
    @asynccontextmanager
    async def connected(cls, path: Path, connections: int) -> "AsyncIterator[Burst]":
        """Open them, one after the other: a socket's backlog is shorter than they are many."""
        streams: list[Stream] = []
        try:
            for _ in range(connections):
                streams.append(await _connection(path))
            yield cls(streams)
        finally:
            for _, writer in streams:
                writer.close()

    async def ask(self, table: str, keys: Sequence[int]) -> list[Any]:
        """Ask for each key in a request of its own, all at once; the answers, in their order.

        With more keys than connections the next one is asked when a connection has its answer.
        """
        waiting = deque(enumerate(keys))
        answers: list[Any] = [None] * len(keys)

        async def ask_on(stream: Stream) -> None:
            while waiting:
                place, key = waiting.popleft()
                stream[1].write(_request(table, key))
                answers[place] = await _answer(stream[0])

        async with asyncio.TaskGroup() as tasks:
            for stream in self.streams:
                tasks.create_task(ask_on(stream))
        return answers


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
