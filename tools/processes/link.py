"""Fault-injecting proxy in front of a Unix socket: resets, delays and half-closes connections.

Forwards bytes in a thread of its own and knows no frames.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

_CHUNK_BYTES = 65_536


class Link:
    """Listens on a Unix socket or a loopback TCP port, and forwards to the server's socket."""

    def __init__(self, sidecar_path: Path, *, own_path: Path | None) -> None:
        """Without `own_path` it listens on TCP."""
        self._sidecar_path = sidecar_path
        self._own_path = own_path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link")
        self._writers: set[asyncio.StreamWriter] = set()  # both ends of every connection
        self._to_clients: set[asyncio.StreamWriter] = set()  # not half-closed
        self._passes = asyncio.Event()
        self._only_answers_to: bytes | None = None  # None: both directions are held
        self._held_chunks = 0
        self._bytes_left: int | None = None  # to clients, until all connections are cut
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        self._run(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening, and cut all connections."""
        self._run(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """The address for clients."""
        if self._own_path is not None:
            return f"unix://{self._own_path}"
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> int:
        """Reset all connections, and return their number."""
        return self._run(self._cut)

    def cut_after(self, after_bytes: int | None) -> None:
        """Reset all connections after this many more bytes to clients; None cancels that."""
        # Done when this returns, so that `is_cut_pending` is true afterwards.
        self._run(partial(self._set_bytes_left, after_bytes))

    @property
    def is_cut_pending(self) -> bool:
        """Whether `cut_after` has not taken effect yet."""
        return self._bytes_left is not None

    def half_close(self) -> int:
        """Send EOF to all clients, and continue to read from them."""
        return self._run(self._half_close)

    def hold(self) -> None:
        """Delay all bytes until `release`."""
        self._hold(None)

    def hold_answers(self, to: bytes) -> None:
        """Delay responses to the clients whose first message contains these bytes."""
        self._hold(to)

    @property
    def held_chunks(self) -> int:
        """Chunks delayed since `hold` or `hold_answers`."""
        return self._held_chunks

    def release(self) -> None:
        """Forward the delayed chunks, and all later ones."""
        self._loop.call_soon_threadsafe(self._passes.set)

    def _hold(self, only_answers_to: bytes | None) -> None:
        self._held_chunks = 0
        self._only_answers_to = only_answers_to
        self._loop.call_soon_threadsafe(self._passes.clear)

    def _run(self, do: Callable[[], Awaitable[int]]) -> int:
        async def done() -> int:
            return await do()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(timeout=30)

    async def _listen(self) -> int:
        self._passes.set()
        if self._own_path is not None:
            self._server = await asyncio.start_unix_server(self._accept, str(self._own_path))
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return 0

    async def _stop(self) -> int:
        assert self._server is not None
        self._server.close()
        self._passes.set()
        await self._cut()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return 0

    async def _cut(self) -> int:
        count = len(self._writers) // 2
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._bytes_left = None
        return count

    async def _set_bytes_left(self, after_bytes: int | None) -> int:
        self._bytes_left = after_bytes
        return 0

    async def _half_close(self) -> int:
        ended = [writer for writer in self._to_clients if not writer.is_closing()]
        for writer in ended:
            writer.write_eof()
        self._to_clients.clear()
        return len(ended)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upper_reader, upper = await asyncio.open_unix_connection(str(self._sidecar_path))
        except OSError:
            writer.transport.abort()  # without the server the connection ends, too
            return
        self._writers |= {writer, upper}
        self._to_clients.add(writer)
        try:
            first = bytearray()  # the first message of the client
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, upper, first, is_answer=False))
                pumps.create_task(self._pump(upper_reader, writer, first, is_answer=True))
        finally:
            self._to_clients.discard(writer)
            for each in (writer, upper):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        first: bytearray,
        *,
        is_answer: bool,
    ) -> None:
        with suppress(ConnectionError):  # reset or closed by either side
            while chunk := await reader.read(_CHUNK_BYTES):
                if not is_answer and not first:
                    first += chunk
                if self._holds(first, is_answer=is_answer):
                    self._held_chunks += 1
                    await self._passes.wait()
                if is_answer and writer not in self._to_clients:
                    continue  # half-closed
                if is_answer and self._bytes_left is not None:
                    chunk = chunk[: self._bytes_left]
                    self._bytes_left -= len(chunk)
                writer.write(chunk)
                await writer.drain()
                if self._bytes_left == 0:
                    await self._cut()
        writer.close()  # after its buffer is sent

    def _holds(self, first: bytearray, *, is_answer: bool) -> bool:
        to = self._only_answers_to
        is_meant = to is None or (is_answer and to in first)
        return is_meant and not self._passes.is_set()
