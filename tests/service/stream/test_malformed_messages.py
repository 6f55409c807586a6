"""What is no WebSocket message, or one that nobody may send: the codes of RFC 6455, and no trace.

Written byte by byte, because a client library sends nothing of the kind.
"""

import struct
import zlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import WSCloseCode

from lookup_core.protocol.frame_codec import encode_frame
from tests.service.stream.streaming import (
    Peer,
    Setting,
    Streaming,
    lookup_frame,
    streaming,
)

TEXT, BINARY, RESERVED = 1, 2, 3
MASK = b"\1\2\3\4"
LIMIT_BYTES = 10_000


@pytest.fixture
async def service() -> AsyncIterator[Streaming]:
    """A service that takes messages up to a limit."""
    async with streaming(Setting(max_message_bytes=LIMIT_BYTES)) as running:
        yield running


def raw(opcode: int, content: bytes, *, first_bits: int = 0x80, is_masked: bool = True) -> bytes:
    """A WebSocket frame."""
    mask = MASK if is_masked else b""
    turned = bytes(each ^ MASK[at % 4] for at, each in enumerate(content))
    body = turned if is_masked else content
    return raw_head(opcode, len(content), first_bits=first_bits, is_masked=is_masked) + mask + body


def raw_head(opcode: int, size: int, *, first_bits: int = 0x80, is_masked: bool = True) -> bytes:
    """The first bytes of one, with the size in eight bytes or in one."""
    masked = 0x80 if is_masked else 0
    if size < 126:
        return bytes([first_bits | opcode, masked | size])
    return bytes([first_bits | opcode, masked | 127]) + struct.pack(">Q", size)


def write(peer: Peer, sent: bytes) -> None:
    """Past the client library."""
    connection = peer.socket._response.connection
    assert connection is not None
    assert connection.transport is not None
    connection.transport.write(sent)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (raw(TEXT, b"\xff\xfe"), WSCloseCode.INVALID_TEXT),
        (raw(RESERVED, b"?"), WSCloseCode.PROTOCOL_ERROR),
        (raw(TEXT, b"hello"), WSCloseCode.PROTOCOL_ERROR),
        (raw(BINARY, zlib.compress(bytes(999)), first_bits=0xC0), WSCloseCode.PROTOCOL_ERROR),
        (raw(0, b"of nothing"), WSCloseCode.PROTOCOL_ERROR),
        (raw(9, bytes(126)), WSCloseCode.PROTOCOL_ERROR),
        (raw_head(BINARY, LIMIT_BYTES + 1) + MASK, WSCloseCode.MESSAGE_TOO_BIG),
        (raw_head(BINARY, 2**40) + MASK, WSCloseCode.MESSAGE_TOO_BIG),
    ],
    ids=["bad text", "opcode", "text", "deflated", "no start", "long ping", "large", "terabyte"],
)
async def test_broken_message_ends_its_connection(
    service: Streaming, sent: bytes, code: int
) -> None:
    """The code says what it was, large ones before their bytes have come; the channel is free."""
    bystander, peer = await service.peer(), await service.peer()
    await peer.answer(await peer.ask(1, 7))

    write(peer, sent)

    assert await _close_code(peer) == code
    assert await bystander.answer(await bystander.ask(1, 7)) == {0: "hit Ada"}
    await bystander.socket.close()
    await service.wait_until_empty()


async def test_unmasked_frame_is_tolerated(service: Streaming) -> None:
    """Masks defend proxies against browsers; here no browser comes in, masked or not."""
    peer = await service.peer()
    asked = lookup_frame(1, 7)

    write(peer, raw(BINARY, encode_frame(asked), is_masked=False))

    assert await peer.answer(asked) == {0: "fetched Ada"}


async def test_fragments_make_one_frame(service: Streaming) -> None:
    """A frame may come in pieces, as any message may, also of a single byte."""
    peer = await service.peer()
    asked = lookup_frame(1, 7)
    message = encode_frame(asked)

    for at, each in enumerate(message):
        last = 0x80 if at == len(message) - 1 else 0
        write(peer, raw(0 if at else BINARY, bytes([each]), first_bits=last))

    assert await peer.answer(asked) == {0: "fetched Ada"}


async def test_half_a_message_leaves_nothing(service: Streaming) -> None:
    """A peer that is lost in the middle of a frame has asked nothing with it."""
    peer = await service.peer()
    message = raw(BINARY, encode_frame(lookup_frame(1, 7)))

    write(peer, message[:-10])
    peer.vanish()

    await service.wait_until_empty()
    assert service.stores["customers"].batches == []


async def _close_code(peer: Peer) -> int | None:
    message = await peer.socket.receive(timeout=5.0)
    assert message.type is aiohttp.WSMsgType.CLOSE, message
    return peer.socket.close_code
