"""Frames leave in order, one at a time, and not later than the peer can take them."""

import asyncio
import weakref

import numpy as np
import pytest

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Closed, Credit, Frame, Goaway
from service.stream.outbox import MAX_QUEUED_FRAMES, AnswerPiece, Outbox, Outgoing

ONE, TWO, THREE = Closed(1), Credit(2, 3, 4), Goaway("draining")


def ignore(_: Outgoing) -> None:
    """Nothing follows."""


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
    wire, announced = Wire(), list[Outgoing]()
    outbox = Outbox(wire.send, timeout_s=1.0, on_sending=announced.append, on_sent=ignore)
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
    wire, announced = Wire(), list[Outgoing]()
    wire.is_open.clear()
    outbox = Outbox(wire.send, timeout_s=1.0, on_sending=announced.append, on_sent=ignore)
    outbox.put(ONE)
    outbox.put(TWO)

    task = await run_until_idle(outbox)
    task.cancel()

    assert wire.taken == announced == [ONE]  # and the second waits its turn unannounced


async def test_peer_that_takes_nothing_is_given_up() -> None:
    """A send that gets no room in time ends the outbox."""
    wire = Wire()
    wire.is_open.clear()
    outbox = Outbox(wire.send, timeout_s=0.01, on_sending=ignore, on_sent=ignore)
    outbox.put(ONE)

    with pytest.raises(TimeoutError):
        await outbox.run()


async def test_answers_are_encoded_when_they_go() -> None:
    """Not before, so that rows that wait are not held twice; `on_sent` follows the send."""
    wire, sent = Wire(), list[Outgoing]()
    outbox = Outbox(wire.send, timeout_s=1.0, on_sending=ignore, on_sent=sent.append)
    answer = rowless_answer(np.arange(2, dtype=np.int32), Outcome.MISSING)
    piece = AnswerPiece(1, 5, is_last=True, answer=answer, held_bytes=18)
    wire.is_open.clear()
    outbox.put(piece)
    task = await run_until_idle(outbox)

    assert (len(wire.taken), sent) == (1, [])
    wire.is_open.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    assert (wire.taken, sent) == ([decode_frame(encode_frame(piece.frame()))], [piece])


async def test_credit_overtakes_its_answer() -> None:
    """A peer that had the answer alone would ask for the little that it has credit for then."""
    wire, announced = Wire(), list[Outgoing]()
    outbox = Outbox(wire.send, timeout_s=1.0, on_sending=announced.append, on_sent=ignore)
    answer = rowless_answer(np.arange(2, dtype=np.int32), Outcome.MISSING)
    piece = AnswerPiece(2, 5, is_last=True, answer=answer, held_bytes=18)
    for outgoing in (ONE, TWO, piece, TWO, THREE):
        outbox.put(outgoing)

    task = await run_until_idle(outbox)
    task.cancel()

    assert announced == [ONE, TWO, TWO, piece, THREE]


async def test_outbox_is_idle_when_all_is_sent() -> None:
    """Not while an answer waits whose credit is on its way."""
    wire = Wire()
    outbox = Outbox(wire.send, timeout_s=1.0, on_sending=ignore, on_sent=ignore)
    assert outbox.is_idle
    wire.is_open.clear()
    outbox.put(ONE)
    task = await run_until_idle(outbox)
    assert (wire.taken, outbox.is_idle) == ([ONE], False)

    wire.is_open.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    assert outbox.is_idle


async def test_sent_frames_are_not_kept() -> None:
    """While nothing is to be sent, no answer is held."""
    outbox = Outbox(Wire().send, timeout_s=1.0, on_sending=ignore, on_sent=ignore)
    answer = rowless_answer(np.arange(2, dtype=np.int32), Outcome.MISSING)
    outbox.put(AnswerPiece(1, 5, is_last=True, answer=answer, held_bytes=18))
    held = weakref.ref(answer.positions)
    del answer
    task = await run_until_idle(outbox)

    assert held() is None
    task.cancel()


async def test_crowd_leaves_no_room() -> None:
    """Whoever asks for more frames waits until most of them are gone."""
    outbox = Outbox(Wire().send, timeout_s=1.0, on_sending=ignore, on_sent=ignore)
    for _ in range(MAX_QUEUED_FRAMES + 1):
        outbox.put(ONE)
    waiter = asyncio.ensure_future(outbox.wait_for_room())
    await asyncio.sleep(0)
    assert not waiter.done()

    task = await run_until_idle(outbox)
    task.cancel()
    assert waiter.done()


async def test_cleared_outbox_sends_nothing() -> None:
    """What waits for a peer that is gone is forgotten."""
    wire = Wire()
    outbox = Outbox(wire.send, timeout_s=1.0, on_sending=ignore, on_sent=ignore)
    outbox.put(ONE)
    outbox.clear()
    task = await run_until_idle(outbox)
    task.cancel()

    assert wire.taken == []


async def test_lost_peer_ends_the_outbox() -> None:
    """An error of the connection comes out as it is."""

    async def lost(_: bytes) -> None:
        raise ConnectionResetError

    outbox = Outbox(lost, timeout_s=1.0, on_sending=ignore, on_sent=ignore)
    outbox.put(ONE)

    with pytest.raises(ConnectionResetError):
        await outbox.run()
