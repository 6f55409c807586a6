"""What really goes over the wire, seen between the clients and their sockets.

Proves that lookups were in flight when a fault struck, and counts lookups behind a watermark that
they belong before. It changes nothing.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_batch
from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import Frame
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.handshake import handshake
from spark_client.transport.interface import Transport
from tests.chaos.wire_order import WireOrder

KEY = pa.schema({"key": pa.int64()})
HANDSHAKE_TIMEOUT_S = 10.0


class Witness:
    """What all connections showed together."""

    def __init__(self, orders: Mapping[str, WireOrder]) -> None:
        """`orders` by the origin that a channel is opened with."""
        self.orders = orders
        self.cut_off = 0  # connections that ended while lookups were unanswered
        self.sent_away = 0  # GOAWAYs that came while lookups were unanswered
        self.given_up = 0  # lookups that were cancelled, unanswered: they have timed out
        self.late_lookups = 0  # keys sent behind a watermark that they belong before
        self.transports: list[WitnessedTransport] = []

    def connect(self, url: str) -> Transport:
        """A real connection, watched."""
        transport = handshake(endpoint_of(url), token=None, timeout_s=HANDSHAKE_TIMEOUT_S)
        return self.watched(transport)

    def watched(self, transport: Transport) -> Transport:
        """The same connection, watched."""
        self.transports.append(WitnessedTransport(transport, self))
        return self.transports[-1]

    @property
    def unanswered(self) -> int:
        """Lookups that were sent and have no last answer, on connections that still stand."""
        return sum(len(each.unanswered) for each in self.transports if not each.is_closed)


class WitnessedTransport:
    """A `Transport` that notes what passes."""

    def __init__(self, inner: Transport, witness: Witness) -> None:
        self.unanswered: set[tuple[int, int]] = set()  # channel and sequence
        self.is_closed = False
        self._inner = inner
        self._witness = witness
        self._orders: dict[int, WireOrder] = {}  # {channel: what holds there}
        self._watermarks_ms: dict[int, int] = {}  # {channel: the last one that was sent}

    def send(self, message: bytes) -> None:
        """See `Transport`."""
        # Before it is sent: its answer may be here before the next line.
        self._note_sent(decode_frame(message))
        self._inner.send(message)

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """See `Transport`."""
        messages = self._inner.receive(timeout_s)
        for message in messages:
            self._note_received(decode_frame(message))
        return messages

    def wake(self) -> None:
        """See `Transport`."""
        self._inner.wake()

    def close(self) -> None:
        """See `Transport`."""
        if not self.is_closed:
            self._witness.cut_off += bool(self.unanswered)
        self.is_closed = True
        self._inner.close()

    def disown(self) -> None:
        """See `Transport`."""
        self._inner.disown()

    def _note_sent(self, frame: Frame) -> None:
        match frame:
            case frames.Open(channel=channel, origin=origin):
                self._forget(channel)
                self._watermarks_ms.pop(channel, None)
                self._orders[channel] = self._witness.orders[origin]
            case frames.Watermark(channel=channel, watermark_ms=watermark_ms):
                self._watermarks_ms[channel] = watermark_ms
            case frames.Lookup(channel=channel, sequence=sequence):
                self.unanswered.add((channel, sequence))
                self._check(frame)
            case frames.Cancel(channel=channel, sequence=sequence):
                self._witness.given_up += (channel, sequence) in self.unanswered
                self.unanswered.discard((channel, sequence))
            case frames.Close(channel=channel):
                self._forget(channel)

    def _note_received(self, frame: Frame) -> None:
        match frame:
            case frames.Result(channel=channel, sequence=sequence, is_last=True):
                self.unanswered.discard((channel, sequence))
            case frames.Goaway():
                self._witness.sent_away += bool(self.unanswered)

    def _check(self, lookup: frames.Lookup) -> None:
        keys = decode_batch(lookup.payload, KEY).column(0).to_pylist()
        watermark_ms = self._watermarks_ms.get(lookup.channel)
        self._witness.late_lookups += self._orders[lookup.channel].late(keys, watermark_ms)

    def _forget(self, channel: int) -> None:
        # Not a new set: another thread may be about to look into this one.
        for each in [each for each in self.unanswered.copy() if each[0] == channel]:
            self.unanswered.discard(each)
