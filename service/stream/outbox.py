"""Frames on their way to one peer: one sender, in order, with a deadline on every send.

A peer that reads nothing stops its own channels only: credit goes out behind the answers that it is
for, so what can pile up here is bounded by the credit granted.
"""

import asyncio
from collections import deque

from aiohttp import web

from lookup_core.frame_codec import encode_frame
from lookup_core.frames import Frame

SEND_TIMEOUT_S = 30.0


class Outbox:
    """Accepts frames without waiting; `run` sends them."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._frames: deque[Frame] = deque()
        self._has_frames = asyncio.Event()

    def put(self, *frames: Frame) -> None:
        """Queue frames behind those that are already here."""
        self._frames.extend(frames)
        self._has_frames.set()

    async def run(self) -> None:
        """Send until cancelled; raises TimeoutError when the peer reads nothing for 30 s.

        Raises ConnectionError when the peer is gone.
        """
        while True:
            await self._has_frames.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send what is here now; raises as `run` does."""
        while self._frames:
            frame = self._frames.popleft()
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._socket.send_bytes(encode_frame(frame))
        self._has_frames.clear()
