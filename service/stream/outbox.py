"""Frames on their way to one peer: one sender, in order, with a deadline on every send.

A peer that reads nothing stops its own channels only: credit goes out behind the answers that it is
for, and counts as given when it goes, so what can pile up here is bounded by the credit granted.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Frame


class Outbox:
    """Accepts frames without waiting; `run` calls `on_sending` with each, and then sends it.

    Before, because the peer may answer a frame while its send still waits for room.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        timeout_s: float,
        on_sending: Callable[[Frame], None],
    ) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._on_sending = on_sending
        self._frames: deque[Frame] = deque()
        self._has_frames = asyncio.Event()

    def put(self, frame: Frame) -> None:
        """Queue a frame behind those that are already here."""
        self._frames.append(frame)
        self._has_frames.set()

    async def run(self) -> None:
        """Send until cancelled; raises TimeoutError when the peer does not take a frame in time.

        Raises ConnectionError when the peer is gone.
        """
        while True:
            await self._has_frames.wait()
            while self._frames:
                frame = self._frames.popleft()
                self._on_sending(frame)
                async with asyncio.timeout(self._timeout_s):
                    await self._send(encode_frame(frame))
            self._has_frames.clear()
