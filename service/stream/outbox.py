"""Frames on their way to one peer: one sender, in order, with a deadline on every send.

A peer that reads nothing stops its own channels only: credit goes out with the answers that it is
for, and counts as given when it goes; answers hold bytes until they are sent, and what is neither
is bounded because nothing more is read from the peer meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Credit, Frame
from service.stream.answer_piece import AnswerPiece

Outgoing = Frame | AnswerPiece

CROWD = 1024  # frames; a peer that lets more wait is not listened to for now


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
        if len(self._outgoing) > CROWD:
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
        if len(self._outgoing) <= CROWD:
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
