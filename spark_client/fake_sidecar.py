"""A sidecar in memory, for tests of what stands on a connection; it can crash and come back.

No sockets, threads or clock.
"""

import random
from collections.abc import Mapping

from lookup_core.errors import SidecarUnreachable
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.fake_dimension import FakeDimension
from spark_client.fake_peer import Behaviour, FakePeer, Memory
from spark_client.memory_transport import MemoryTransport

URL = "memory:"


class FakeSidecar:
    """One sidecar process; `connect` as often as you like, from any thread."""

    def __init__(
        self, dimensions: Mapping[str, FakeDimension], behaviour: Behaviour | None = None
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.memory = Memory(chance=random.Random(self.behaviour.seed))  # noqa: S311 -- repeatable
        self.connection_count = 0
        self.is_down = False
        self._dimensions = dimensions
        self._transports: list[MemoryTransport] = []

    def connect(self) -> MemoryTransport:
        """A new connection; raises SidecarUnreachable while the sidecar is down."""
        if self.is_down:
            raise SidecarUnreachable(URL, "it is down")
        self.connection_count += 1
        transport = MemoryTransport(self.new_peer())
        self._transports.append(transport)
        return transport

    def new_peer(self) -> FakePeer:
        """The service's side of a new connection, for whatever carries it."""
        return FakePeer(self._dimensions, self.behaviour, self.memory)

    def crash(self) -> None:
        """All connections are lost; what was not answered never will be."""
        for transport in self._transports:
            transport.lose("crashed")

    def tell(self, frame: Frame) -> None:
        """Send a frame to everyone."""
        for transport in self._transports:
            transport.deliver([encode_frame(frame)])
