"""A `Transport` without a network, for tests: its peer is an object in the same process.

Waits and wakes like a real one, so that threads meet it as they would meet a socket.
"""

import threading
from collections.abc import Sequence
from typing import Protocol

from lookup_core.errors import SidecarUnreachable, SidelookError


class MemoryPeer(Protocol):
    """The other end; called by one thread at a time."""

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """What it says at once; raises ProtocolViolation to close the connection."""

    def more(self) -> Sequence[bytes]:
        """What else it says now, asked whenever somebody listens."""


class MemoryTransport:
    """A `Transport` to a peer in memory."""

    def __init__(self, peer: MemoryPeer) -> None:
        self._peer = peer
        self._changed = threading.Condition()
        self._inbox: list[bytes] = []
        self._failure: SidelookError | None = None
        self._is_woken = False

    def send(self, message: bytes) -> None:
        """See `Transport`."""
        with self._changed:
            if self._failure is not None:
                return
            try:
                self._inbox.extend(self._peer.on_message(message))
            except SidelookError as error:
                self._failure = error
            self._is_woken = True
            self._changed.notify()

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """See `Transport`."""
        with self._changed:
            if not self._has_something():
                self._changed.wait_for(self._has_something, timeout_s)
            self._is_woken = False
            inbox, self._inbox = self._inbox, []
            if self._failure is not None and not inbox:
                raise self._failure
            return inbox

    def wake(self) -> None:
        """See `Transport`."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def close(self) -> None:
        """See `Transport`."""
        self.lose("closed by ourselves")

    def disown(self) -> None:
        """See `Transport`; there are no descriptors."""

    def deliver(self, messages: Sequence[bytes]) -> None:
        """The peer says something unasked."""
        with self._changed:
            self._inbox.extend(messages)
            self._changed.notify()

    def lose(self, reason: str) -> None:
        """The connection breaks; what has arrived is still delivered."""
        with self._changed:
            self._failure = self._failure or SidecarUnreachable("memory", reason)
            self._changed.notify()

    def _has_something(self) -> bool:
        if self._failure is None:
            self._inbox.extend(self._peer.more())
        return bool(self._inbox or self._is_woken or self._failure)
