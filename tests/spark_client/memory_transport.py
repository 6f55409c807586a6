"""Connections to a fake sidecar in the same process, which tests can break."""

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from lookup_core.errors import (
    SidecarUnreachable,
    SidelookError,
)
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.testing.fake_sidecar import Behaviour, FakePeer, MemorySidecar
from spark_client.testing.served_dimension import ServedDimension

URL = "memory:"


class MemoryPeer(Protocol):
    """The other end of a `MemoryTransport`; called by one thread at a time."""

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """The immediate replies; raises ProtocolViolation to close the connection."""

    def more(self) -> Sequence[bytes]:
        """Later messages; called with each `receive`."""


class MemoryTransport:
    """A `Transport` to a peer in the same process; waits and wakes like a socket."""

    def __init__(self, peer: MemoryPeer) -> None:
        self._peer = peer
        self._changed = threading.Condition()
        self._inbox: list[bytes] = []
        self._failure: SidelookError | None = None
        self._is_woken = False

    def send(self, message: bytes) -> None:
        """See `Transport`."""
        with self._changed:
            if self._failure is None:
                try:
                    self._inbox.extend(self._peer.on_message(message))
                except SidelookError as error:
                    self._failure = error
                self._wake()

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """See `Transport`."""
        with self._changed:
            self._changed.wait_for(self._has_something, timeout_s)
            self._is_woken = False
            inbox, self._inbox = self._inbox, []
            if self._failure is not None and not inbox:
                raise self._failure
            return inbox

    def wake(self) -> None:
        """See `Transport`."""
        with self._changed:
            self._wake()

    def close(self) -> None:
        """See `Transport`."""
        self.lose("closed by the client")

    def close_after_fork(self) -> None:
        """See `Transport`; there are no descriptors."""

    def deliver(self, messages: Sequence[bytes]) -> None:
        """Send from the peer's side."""
        with self._changed:
            self._inbox.extend(messages)
            self._changed.notify()

    def lose(self, reason: str) -> None:
        """Break the connection; messages that have arrived are still delivered."""
        with self._changed:
            self._failure = self._failure or SidecarUnreachable("memory", reason)
            self._changed.notify()

    def _wake(self) -> None:
        self._is_woken = True
        self._changed.notify()

    def _has_something(self) -> bool:
        if self._failure is None:
            self._inbox.extend(self._peer.more())
        return bool(self._inbox or self._is_woken or self._failure)


class ReachableSidecar(MemorySidecar):
    """A fake sidecar that any thread may connect to, any number of times."""

    def __init__(
        self, dimensions: Mapping[str, ServedDimension], behaviour: Behaviour | None = None
    ) -> None:
        super().__init__(dimensions, behaviour)
        self.connection_count = 0
        self.is_down = False
        self._transports: list[MemoryTransport] = []
        self._peers: list[FakePeer] = []

    def connect(self) -> MemoryTransport:
        """A new connection; raises SidecarUnreachable while the sidecar is down."""
        if self.is_down:
            raise SidecarUnreachable(URL, "it is down")
        self.connection_count += 1
        peer = self.new_peer()
        transport = MemoryTransport(peer)
        self._peers.append(peer)
        self._transports.append(transport)
        return transport

    def revoke(self, channel: int) -> None:
        """End a channel of each connection, as if another one needed its share of credit."""
        for peer in self._peers:
            peer.server.revoke(channel, 0.0)

    def crash(self) -> None:
        """Break all connections; open lookups stay unanswered."""
        for transport in self._transports:
            transport.lose("crashed")

    def broadcast(self, frame: Frame) -> None:
        """Send a frame on all connections."""
        for transport in self._transports:
            transport.deliver([encode_frame(frame)])
