"""Ended streams: the last figures of dimensions without an open channel."""

from lookup_core.protocol.recent_streams import REMEMBERED_S, EndedStream, RecentStreams
from lookup_core.protocol.server_channel import ChannelStatistics


def channel(dimension: str, origin: str) -> ChannelStatistics:
    """The last figures of a channel."""
    return ChannelStatistics(1, 1, dimension, origin, 10, 0, 10, 0, 0, None, is_idle=False)


def run(streams: RecentStreams, *keys: int, now: float, dimension: str = "planes") -> None:
    """Channels with lookups of these numbers of keys, all open at once."""
    for _ in keys:
        streams.opened(dimension, now)
    for number, count in enumerate(keys):
        streams.closed(channel(dimension, f"task {number}"), keys=count, now=now)


def test_ended_stream_is_remembered_for_a_minute() -> None:
    """It has the channels and keys of its stream, and the dimension's watermark."""
    streams = RecentStreams()
    run(streams, 3, 4, now=10.0)
    run(streams, 5, now=12.0, dimension="airports")

    found = streams.ended({"planes": 99}, now=14.0)

    assert found == [
        EndedStream("airports", "task 0", 1, 5, None, 2.0),
        EndedStream("planes", "task 1", 2, 7, 99, 4.0),
    ]
    assert len(streams.ended({}, now=10.0 + REMEMBERED_S)) == 2
    assert [each.dimension for each in streams.ended({}, now=12.0 + REMEMBERED_S)] == ["airports"]


def test_open_stream_has_not_ended() -> None:
    """While a channel is open there is no ended stream; micro-batches add up."""
    streams = RecentStreams()
    run(streams, 3, now=1.0)
    streams.opened("planes", 2.0)
    assert streams.ended({}, now=2.0) == []

    streams.closed(channel("planes", "next"), keys=8, now=3.0)

    assert streams.ended({}, now=3.0) == [EndedStream("planes", "next", 2, 11, None, 0.0)]


def test_pause_of_a_minute_begins_another_stream() -> None:
    """After a pause that is longer than a minute the figures begin at zero."""
    streams = RecentStreams()
    run(streams, 3, now=1.0)

    run(streams, 8, now=1.5 + REMEMBERED_S)

    assert streams.ended({}, now=1.5 + REMEMBERED_S) == [
        EndedStream("planes", "task 0", 1, 8, None, 0.0)
    ]


def test_channel_without_keys_is_no_stream() -> None:
    """A driver that only describes a dimension leaves the last stream as it is."""
    streams = RecentStreams()
    run(streams, 0, now=1.0)
    assert streams.ended({}, now=1.0) == []

    run(streams, 3, now=2.0)
    run(streams, 0, now=4.0)

    assert streams.ended({}, now=4.0) == [EndedStream("planes", "task 0", 1, 3, None, 2.0)]
