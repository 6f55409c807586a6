"""Transports that record unanswered lookups, lost connections, late and shared lookups.

A lookup is late if it follows a watermark that its record precedes. Frames are not changed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_batch
from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import Frame
from spark_client.transport.connection import Transport
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.handshake import handshake
from tests.chaos.records import Records

KEY = pa.schema({"key": pa.int64()})
HANDSHAKE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class WireOrder:
    """The segments of a partition's keys and watermarks; only keys of a single record count."""

    segment_of_key: Mapping[int, int]
    segment_of_watermark: Mapping[int, int]  # the last segment before it

    @classmethod
    def of(cls, records: Records) -> "WireOrder":
        """The order of these records."""
        times = Counter(records.keys)
        segments = records.segments()
        single = {
            key: segments[number] for number, key in enumerate(records.keys) if times[key] == 1
        }
        marks: dict[int, int] = {}
        for segment, watermark_ms in enumerate(records.watermarks_ms()):
            marks.setdefault(watermark_ms, segment)
        return cls(single, {**marks, MAX_WATERMARK_MS: len(segments)})

    def late(self, keys: Iterable[int], watermark_ms: int | None) -> int:
        """The number of keys that precede the last sent watermark."""
        if watermark_ms is None:
            return 0
        passed = self.segment_of_watermark[watermark_ms]
        return sum(self.segment_of_key.get(key, passed + 1) <= passed for key in keys)


class Witness:
    """The counts of all connections."""

    def __init__(self, orders: Mapping[str, WireOrder]) -> None:
        """`orders` are by the origin of a channel."""
        self.orders = orders
        self.cut_off = 0  # connections that ended while lookups were unanswered
        self.sent_away = 0  # GOAWAYs that came while lookups were unanswered
        self.given_up = 0  # unanswered lookups that were cancelled after their timeout
        self.late_lookups = 0  # keys sent after a watermark that their record precedes
        self.from_shared_cache = 0  # keys that a client reports as answered from shared memory
        self.transports: list[WitnessedTransport] = []

    def connect(self, url: str) -> Transport:
        """A connection to the sidecar that is recorded."""
        transport = handshake(endpoint_of(url), token=None, timeout_s=HANDSHAKE_TIMEOUT_S)
        return self.watched(transport)

    def watched(self, transport: Transport) -> Transport:
        """The transport, recorded."""
        self.transports.append(WitnessedTransport(transport, self))
        return self.transports[-1]

    @property
    def unanswered(self) -> int:
        """The number of unanswered lookups on open connections."""
        return sum(len(each.unanswered) for each in self.transports if not each.is_closed)


class WitnessedTransport:
    """A `Transport` that records frames."""

    def __init__(self, inner: Transport, witness: Witness) -> None:
        self.unanswered: set[tuple[int, int]] = set()  # channel and sequence
        self.is_closed = False
        self._inner = inner
        self._witness = witness
        self._orders: dict[int, WireOrder] = {}
        self._watermarks_ms: dict[int, int] = {}  # {channel: last sent watermark}

    def send(self, message: bytes) -> None:
        """See `Transport`."""
        # Recorded first: the answer may arrive before `send` returns.
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

    def close_after_fork(self) -> None:
        """See `Transport`."""
        self._inner.close_after_fork()

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
            case frames.Cached(hits=hits, missing=missing, defaults=defaults):
                self._witness.from_shared_cache += hits + missing + defaults
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
        # The set stays the same object, which other threads read.
        for each in [each for each in self.unanswered.copy() if each[0] == channel]:
            self.unanswered.discard(each)
