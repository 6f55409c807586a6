"""Streams that ended lately: the last figures of dimensions without an open channel.

Between two micro-batches of a streaming query no channel is open; its figures stay visible.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lookup_core.protocol.server_channel import ChannelStatistics

REMEMBERED_S = 60.0


@dataclass(frozen=True, slots=True)
class EndedStream:
    """The channels of one dimension, from the first that opened to the last that closed."""

    dimension: str
    origin: str  # of the last channel
    channels: int  # that had records
    records: int
    watermark_ms: int | None  # that the streams of the dimension reached
    ended_ago_s: float


@dataclass(slots=True, eq=False)
class _Stream:
    open_count: int = 0
    has_begun: bool = False  # a channel of the present stream had records
    origin: str = ""
    channels: int = 0
    records: int = 0
    ended_at: float = 0.0


@dataclass(slots=True, eq=False)
class RecentStreams:
    """At most one stream per dimension; `now` is monotonic seconds."""

    _streams: dict[str, _Stream] = field(default_factory=dict)  # {dimension: its last stream}

    def opened(self, dimension: str) -> None:
        """A channel was opened; the first one begins another stream."""
        stream = self._streams.setdefault(dimension, _Stream())
        if not stream.open_count:
            stream.has_begun = False
        stream.open_count += 1

    def closed(self, last: ChannelStatistics, *, records: int, now: float) -> None:
        """A channel was closed; one without records has only described the dimension."""
        stream = self._streams[last.dimension]
        stream.open_count -= 1
        if not records:
            return
        if not stream.has_begun:
            stream.has_begun, stream.channels, stream.records = True, 0, 0
        stream.channels += 1
        stream.records += records
        stream.origin, stream.ended_at = last.origin, now

    def ended(self, watermarks_ms: Mapping[str, int], now: float) -> list[EndedStream]:
        """The streams that ended within the last minute, by dimension."""
        return [
            EndedStream(
                dimension=name,
                origin=stream.origin,
                channels=stream.channels,
                records=stream.records,
                watermark_ms=watermarks_ms.get(name),
                ended_ago_s=now - stream.ended_at,
            )
            for name, stream in sorted(self._streams.items())
            if not stream.open_count and stream.channels and now - stream.ended_at <= REMEMBERED_S
        ]
