"""A network that breaks on request: between a client on TCP and a server on a Unix socket.

Not a model of a slow network's bandwidth: it passes, it swallows, it delays, or it cuts.
"""

import asyncio
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536


class FaultProxy:
    """Listens on a free port of the loopback; faults hold for all connections, old and new."""

    def __init__(self, upstream_path: str) -> None:
        self.connections_total = 0  # accepted since the start
        self.requests_total = 0  # chunks that clients sent since the start
        self.delay_s = 0.0  # before each chunk, in each direction
        self._upstream_path = upstream_path
        self._requests_pass = asyncio.Event()
        self._replies_pass = asyncio.Event()
        self.release()
        self._arrival = asyncio.Condition()
        self._held_chunks_total = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening, and cut all connections."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def dsn(self, database: str) -> str:
        """How to reach a database through this proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable"

    def hold(self) -> None:
        """Swallow everything from now on; connections are still accepted."""
        self._requests_pass.clear()
        self._replies_pass.clear()

    def hold_replies(self) -> None:
        """Swallow what the server says; it still hears, and works for nobody."""
        self._replies_pass.clear()

    def release(self) -> None:
        """Let what was swallowed through, and all that follows."""
        self._requests_pass.set()
        self._replies_pass.set()

    def cut(self) -> None:
        """Reset all connections that are open now."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def wait_for_held_chunks(self, count: int) -> None:
        """Wait until so many chunks were swallowed since the start."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: self._held_chunks_total >= count)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_total += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._upstream_path)
            self._writers |= {writer, up_writer}
            await asyncio.gather(
                self._pump(reader, up_writer, is_request=True),
                self._pump(up_reader, writer, is_request=False),
            )
        finally:
            self._tasks.discard(task)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        passes = self._requests_pass if is_request else self._replies_pass
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                self.requests_total += is_request
                if not passes.is_set():
                    await self._tell_held()
                    await passes.wait()
                await asyncio.sleep(self.delay_s)
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass  # cut, or closed by the other side: the connection ends either way
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _tell_held(self) -> None:
        async with self._arrival:
            self._held_chunks_total += 1
            self._arrival.notify_all()
