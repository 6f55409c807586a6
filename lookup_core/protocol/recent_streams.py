"""Streams that ended lately: the last figures of dimensions without an open channel.

Between two micro-batches of a streaming query no channel is open; its figures stay visible.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lookup_core.protocol.server_channel import ChannelStatistics

REMEMBERED_S = 60.0


@dataclass(frozen=True, slots=True)
class EndedStream:
    """The channels of one dimension, with less than a minute between them."""

    dimension: str
    origin: str  # of the last channel
    channels: int  # that had lookups
    keys: int  # of all lookups; a lookup has each key once
    watermark_ms: int | None  # that the streams of the dimension reached
    ended_ago_s: float


@dataclass(slots=True, eq=False)
class _Stream:
    open_count: int = 0
    origin: str = ""
    channels: int = 0
    keys: int = 0
    ended_at: float = 0.0  # of the last channel


@dataclass(slots=True, eq=False)
class RecentStreams:
    """At most one stream per dimension; `now` is monotonic seconds."""

    _streams: dict[str, _Stream] = field(default_factory=dict)  # {dimension: its last stream}

    def opened(self, dimension: str, now: float) -> None:
        """A channel was opened; a stream begins if none has ended within the last minute."""
        stream = self._streams.get(dimension)
        if stream is None or (not stream.open_count and not _is_recent(stream, now)):
            stream = self._streams[dimension] = _Stream()
        stream.open_count += 1

    def closed(self, last: ChannelStatistics, *, keys: int, now: float) -> None:
        """A channel was closed; one without keys has only described the dimension."""
        stream = self._streams[last.dimension]
        stream.open_count -= 1
        if keys:
            stream.channels += 1
            stream.keys += keys
            stream.origin, stream.ended_at = last.origin, now

    def ended(self, watermarks_ms: Mapping[str, int], now: float) -> list[EndedStream]:
        """The streams that ended within the last minute, by dimension."""
        return [
            EndedStream(
                dimension=name,
                origin=stream.origin,
                channels=stream.channels,
                keys=stream.keys,
                watermark_ms=watermarks_ms.get(name),
                ended_ago_s=now - stream.ended_at,
            )
            for name, stream in sorted(self._streams.items())
            if not stream.open_count and stream.channels and _is_recent(stream, now)
        ]


def _is_recent(stream: _Stream, now: float) -> bool:
    return now - stream.ended_at <= REMEMBERED_S
