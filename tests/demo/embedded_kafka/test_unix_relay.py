"""A port of the loopback before a Unix socket."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from demo.live.changelog import unix_relay

LARGE = bytes(range(256)) * 4096


class Echo:
    """Says what it hears, on each connection until the other side has nothing more to say."""

    def __init__(self) -> None:
        self.ended = asyncio.Semaphore(0)  # one for each connection that is closed

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass  # the other side has heard enough
        finally:
            await _closed(writer)
            self.ended.release()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):  # closed by the other side first
        await writer.wait_closed()


async def ask(port: int, question: bytes) -> bytes:
    """What comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question)
    answer = await reader.readexactly(len(question))
    await _closed(writer)
    return answer


async def test_bytes_pass_both_ways(tmp_path: Path) -> None:
    """Several connections at a time, with more than fits into a buffer."""
    path, echo = str(tmp_path / "socket"), Echo()
    async with await asyncio.start_unix_server(echo, path):
        with unix_relay(path) as port:
            large, short = await asyncio.gather(ask(port, LARGE), ask(port, b"short"))
            for _ in range(2):
                await echo.ended.acquire()

    assert (large, short) == (LARGE, b"short")


async def test_end_of_either_side_passes(tmp_path: Path) -> None:
    """A server that hangs up is heard by the client."""
    path = str(tmp_path / "socket")

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _closed(writer)

    async with await asyncio.start_unix_server(hang_up, path):
        with unix_relay(path) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            heard = await reader.read()
            await _closed(writer)

    assert heard == b""


async def test_nobody_listens_afterwards(tmp_path: Path) -> None:
    """The port is free again."""
    with unix_relay(str(tmp_path / "socket")) as port:
        pass

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
