"""Outbox of one connection: sends frames in order, each with a deadline."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace

from lookup_core.answer import Answer
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Credit, Frame, Result

PIECE_BYTES = 1024 * 1024  # of rows in one RESULT; encoding it takes 1 to 2 ms


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """The content of one RESULT frame; `held_bytes` are released once it is sent."""

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
        """The answer in pieces of at most `PIECE_BYTES`, unless one row is larger."""
        if self.held_bytes <= PIECE_BYTES:
            yield self
            return
        *pieces, last = self.answer.pieces(PIECE_BYTES)
        for piece in pieces:
            # All pieces are slices of the same rows, which stay in memory until the last is sent.
            yield replace(self, is_last=False, answer=piece, held_bytes=0)
        yield replace(self, answer=last)


Outgoing = Frame | AnswerPiece

MAX_QUEUED_FRAMES = 1024  # with more, the peer's frames are not read


@dataclass(slots=True, eq=False)
class Outbox:
    """Accepts frames without waiting; `run` sends them.

    `on_sending` is called before each send, because the peer may respond while the send still
    waits; `on_sent` is called when the socket has the frame. Credit overtakes the answer before it:
    otherwise the peer would use the answer for a small lookup with its remaining credit.
    """

    send: Callable[[bytes], Awaitable[None]]
    timeout_s: float
    on_sending: Callable[[Outgoing], None]
    on_sent: Callable[[Outgoing], None]
    _outgoing: deque[Outgoing] = field(default_factory=deque)
    _has_frames: asyncio.Event = field(default_factory=asyncio.Event)
    _has_room: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Start with room for frames."""
        self._has_room.set()

    @property
    def is_idle(self) -> bool:
        """Whether the socket has all frames."""
        return not self._has_frames.is_set()

    def put(self, outgoing: Outgoing) -> None:
        """Append a frame."""
        self._outgoing.append(outgoing)
        self._has_frames.set()
        if len(self._outgoing) > MAX_QUEUED_FRAMES:
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        """Wait while more than `MAX_QUEUED_FRAMES` are queued, before reading from the peer."""
        await self._has_room.wait()

    def clear(self) -> None:
        """Drop all queued frames, because the peer is gone."""
        self._outgoing.clear()

    async def run(self) -> None:
        """Send until cancelled.

        Raises TimeoutError for a peer that does not read in time, ConnectionError for a closed one.
        """
        while True:
            await self._has_frames.wait()
            while self._outgoing:
                await self._send_next()
            self._has_frames.clear()

    async def _send_next(self) -> None:
        # A function of its own: names in the loop would keep an answer until the next one.
        outgoing = self._pop()
        if len(self._outgoing) <= MAX_QUEUED_FRAMES:
            self._has_room.set()
        self.on_sending(outgoing)
        frame = outgoing.frame() if isinstance(outgoing, AnswerPiece) else outgoing
        async with asyncio.timeout(self.timeout_s):
            await self.send(encode_frame(frame))
        self.on_sent(outgoing)

    def _pop(self) -> Outgoing:
        first = self._outgoing.popleft()
        has_credit = bool(self._outgoing) and isinstance(self._outgoing[0], Credit)
        if not has_credit or not isinstance(first, AnswerPiece):
            return first
        credit = self._outgoing.popleft()
        self._outgoing.appendleft(first)
        return credit
