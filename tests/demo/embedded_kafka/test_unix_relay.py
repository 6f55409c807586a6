"""A port of the loopback before a Unix socket."""

import asyncio
from pathlib import Path

import pytest

from demo.embedded_kafka.unix_relay import unix_relay

LARGE = bytes(range(256)) * 4096


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say what was heard, until the other side has nothing more to say."""
    while chunk := await reader.read(65_536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def ask(port: int, question: bytes) -> bytes:
    """What comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question)
    answer = await reader.readexactly(len(question))
    writer.close()
    await writer.wait_closed()
    return answer


async def test_bytes_pass_both_ways(tmp_path: Path) -> None:
    """Several connections at a time, with more than fits into a buffer."""
    path = str(tmp_path / "socket")
    async with await asyncio.start_unix_server(echo, path):
        with unix_relay(path) as port:
            large, short = await asyncio.gather(ask(port, LARGE), ask(port, b"short"))

    assert (large, short) == (LARGE, b"short")


async def test_end_of_either_side_passes(tmp_path: Path) -> None:
    """A server that hangs up is heard by the client."""
    path = str(tmp_path / "socket")

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_unix_server(hang_up, path):
        with unix_relay(path) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            heard = await reader.read()
            writer.close()

    assert heard == b""


async def test_nobody_listens_afterwards(tmp_path: Path) -> None:
    """The port is free again."""
    with unix_relay(str(tmp_path / "socket")) as port:
        pass

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
