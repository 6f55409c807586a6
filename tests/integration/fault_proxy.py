"""A TCP proxy in front of a Unix socket that holds, delays or cuts connections on request."""

import asyncio
from typing import Self

_CHUNK_BYTES = 65_536


class FaultProxy:
    """Listens on a free loopback port; faults apply to open and new connections."""

    def __init__(self, upstream_path: str) -> None:
        self.connections_total = 0  # accepted since the start
        self.requests_total = 0  # chunks that clients sent since the start
        self.delay_s = 0.0  # before each chunk, in each direction
        self._upstream_path = upstream_path
        self._requests_pass = asyncio.Event()
        self._replies_pass = asyncio.Event()
        self.release()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop listening, and cut all connections."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def dsn(self, database: str) -> str:
        """The DSN of a database through this proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable"

    def hold(self) -> None:
        """Hold all traffic from now on; connections are still accepted."""
        self._requests_pass.clear()
        self._replies_pass.clear()

    def hold_replies(self) -> None:
        """Hold replies of the server, which still receives requests."""
        self._replies_pass.clear()

    def release(self) -> None:
        """Pass on what was held, and all later traffic."""
        self._requests_pass.set()
        self._replies_pass.set()

    def cut(self) -> None:
        """Reset all open connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

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
                await passes.wait()
                await asyncio.sleep(self.delay_s)
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass  # cut, or closed by the other side: the connection ends either way
        finally:
            self._writers.discard(writer)
            writer.close()
