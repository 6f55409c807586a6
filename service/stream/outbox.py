"""Outgoing frames of one connection: one sender, in order, with a deadline on every send."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

from lookup_core.answer import Answer
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Credit, Frame, Result

PIECE_BYTES = 1024 * 1024  # of rows in one RESULT: to encode it takes a millisecond or two


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """What becomes one RESULT; `held_bytes` are free when it was sent."""

    channel: int
    sequence: int
    is_last: bool  # of its lookup
    answer: Answer
    held_bytes: int

    def frame(self) -> Result:
        """The frame, with a copy of the rows."""
        payload = encode_batch(answer_batch(self.answer))
        has_rows = self.answer.rows is not None
        return Result(self.channel, self.sequence, self.is_last, has_rows, payload)

    def pieces(self) -> Iterator["AnswerPiece"]:
        """The same in frames of a size that peers take and that are sent soon."""
        if self.held_bytes <= PIECE_BYTES:
            yield self
            return
        *pieces, last = self.answer.pieces(PIECE_BYTES)
        for piece in pieces:
            # They are slices of the same rows, which are all held until the last of them is gone.
            yield replace(self, is_last=False, answer=piece, held_bytes=0)
        yield replace(self, answer=last)


Outgoing = Frame | AnswerPiece

MAX_QUEUED_FRAMES = 1024  # frames; a peer that lets more wait is not listened to for now


class Outbox:
    """Accepts frames without waiting; `run` calls `on_sending` with each, and then sends it.

    Before, because the peer may answer a frame while its send still waits for room. `on_sent`
    follows when the frame is with the socket. The credit that stands behind an answer overtakes it:
    a peer that has the answer alone asks at once for the little that it still has credit for.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        timeout_s: float,
        on_sending: Callable[[Outgoing], None],
        on_sent: Callable[[Outgoing], None],
    ) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._on_sending = on_sending
        self._on_sent = on_sent
        self._outgoing: deque[Outgoing] = deque()
        self._has_frames = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_idle(self) -> bool:
        """Whether all that was put is with the socket."""
        return not self._has_frames.is_set()

    def put(self, outgoing: Outgoing) -> None:
        """Queue a frame behind those that are already here."""
        self._outgoing.append(outgoing)
        self._has_frames.set()
        if len(self._outgoing) > MAX_QUEUED_FRAMES:
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        """Wait while too many frames wait; whoever asks for more of them should."""
        await self._has_room.wait()

    def clear(self) -> None:
        """Forget what was not sent; the peer is gone."""
        self._outgoing.clear()

    async def run(self) -> None:
        """Send until cancelled; raises TimeoutError when the peer does not take a frame in time.

        Raises ConnectionError when the peer is gone.
        """
        while True:
            await self._has_frames.wait()
            while self._outgoing:
                await self._send_next()
            self._has_frames.clear()

    async def _send_next(self) -> None:
        # Apart from the loop, whose names would hold an answer until the next one is here.
        outgoing = self._pop()
        if len(self._outgoing) <= MAX_QUEUED_FRAMES:
            self._has_room.set()
        self._on_sending(outgoing)
        frame = outgoing.frame() if isinstance(outgoing, AnswerPiece) else outgoing
        async with asyncio.timeout(self._timeout_s):
            await self._send(encode_frame(frame))
        self._on_sent(outgoing)

    def _pop(self) -> Outgoing:
        first = self._outgoing.popleft()
        has_credit = bool(self._outgoing) and isinstance(self._outgoing[0], Credit)
        if not has_credit or not isinstance(first, AnswerPiece):
            return first
        credit = self._outgoing.popleft()
        self._outgoing.appendleft(first)
        return credit
