"""Frames leave in order, one at a time, and not later than the peer can take them."""

import asyncio

import pytest

from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import Closed, Credit, Frame, Goaway
from service.stream.outbox import Outbox

ONE, TWO, THREE = Closed(1), Credit(2, 3, 4), Goaway("draining")


class Wire:
    """Takes messages; holds the sender back while it is closed."""

    def __init__(self) -> None:
        self.taken: list[Frame] = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def send(self, message: bytes) -> None:
        """Take a message, and make the sender wait for room."""
        self.taken.append(decode_frame(message))
        await self.is_open.wait()


async def run_until_idle(outbox: Outbox) -> "asyncio.Task[None]":
    """Let the outbox send what it can."""
    task = asyncio.ensure_future(outbox.run())
    for _ in range(10):
        await asyncio.sleep(0)
    return task


async def test_frames_leave_in_order() -> None:
    """What was put first goes first, also while it runs."""
    wire, announced = Wire(), list[Frame]()
    outbox = Outbox(wire.send, timeout_s=1.0, on_sending=announced.append)
    outbox.put(ONE)
    outbox.put(TWO)
    task = await run_until_idle(outbox)
    outbox.put(THREE)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()

    assert wire.taken == announced == [ONE, TWO, THREE]


async def test_frame_is_announced_before_it_goes() -> None:
    """The peer may answer a frame before its send returns, so it counts as sent by then."""
    wire, announced = Wire(), list[Frame]()
    wire.is_open.clear()
    outbox = Outbox(wire.send, timeout_s=1.0, on_sending=announced.append)
    outbox.put(ONE)
    outbox.put(TWO)

    task = await run_until_idle(outbox)
    task.cancel()

    assert wire.taken == announced == [ONE]  # and the second waits its turn unannounced


async def test_peer_that_takes_nothing_is_given_up() -> None:
    """A send that gets no room in time ends the outbox."""
    wire = Wire()
    wire.is_open.clear()
    outbox = Outbox(wire.send, timeout_s=0.01, on_sending=lambda _: None)
    outbox.put(ONE)

    with pytest.raises(TimeoutError):
        await outbox.run()


async def test_lost_peer_ends_the_outbox() -> None:
    """An error of the connection comes out as it is."""

    async def lost(_: bytes) -> None:
        raise ConnectionResetError

    outbox = Outbox(lost, timeout_s=1.0, on_sending=lambda _: None)
    outbox.put(ONE)

    with pytest.raises(ConnectionResetError):
        await outbox.run()
