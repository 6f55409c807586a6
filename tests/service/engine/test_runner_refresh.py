"""How fresh a dimension is, by its feed and by the age of what it holds."""

from lookup_core.freshness.feed_health import FeedState
from service.engine.runner_refresh import RefreshSources
from tests.service.engine.refreshing import (
    Clock,
    changelog,
    fall_silent,
    followed,
    full,
    lookup,
    rows,
    table,
    until,
    until_feed_is,
    until_whole,
)
from tests.service.engine.running import customers, running


async def test_without_sources_rows_are_as_stale_as_old() -> None:
    """Nobody tells of changes: each row may have changed since it was read."""
    clock = Clock()
    async with running(customers(), clock=clock) as dimension:
        empty = dimension.refresh_statistics()
        await lookup(dimension, 7)
        clock.ahead_s += 5.0

        assert (empty.feed, empty.load, empty.staleness_s) == (None, None, 0.0)
        assert dimension.refresh_statistics().staleness_s >= 5.0


async def test_live_feed_makes_old_rows_fresh() -> None:
    """What has not changed is the table's, however long ago it was read."""
    clock, source = Clock(), changelog()
    async with running(customers(), sources=followed(source), clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)
        clock.ahead_s += 5.0

        await until(lambda: dimension.refresh_statistics().staleness_s < 1.0)


async def test_silence_lets_staleness_grow() -> None:
    """Without a word the rows are as old as they are."""
    clock, source = Clock(), changelog()
    async with running(customers(), sources=followed(source), clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)
        await fall_silent(dimension, source, clock)

        assert dimension.refresh_statistics().staleness_s >= 10.0


async def test_whole_table_is_as_stale_as_its_load() -> None:
    """Without a feed it is the picture of a moment."""
    clock = Clock()
    sources = RefreshSources(table=table(rows((7, "Adele"))))
    async with running(customers(), full(), sources=sources, clock=clock) as dimension:
        await until_whole(dimension)
        clock.ahead_s += 5.0
        refresh = dimension.refresh_statistics()

    assert refresh.staleness_s >= 5.0
    assert refresh.load is not None
    assert (refresh.load.is_whole, refresh.load.rows) == (True, 1)
