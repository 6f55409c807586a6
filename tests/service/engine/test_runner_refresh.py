"""How fresh a dimension is, by its feed and by the age of what it holds."""

from lookup_core.freshness.feed_health import FeedState
from lookup_core.statistics import RefreshStatistics
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
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

        assert empty == RefreshStatistics(None, feed=None, load=None, staleness_limit_s=600.0)
        assert staleness_s(dimension) >= 5.0


async def test_expired_rows_are_of_no_account() -> None:
    """They stay until their room is needed, and answer nothing: no row is staler than its ttl."""
    clock = Clock()
    async with running(customers(), clock=clock) as dimension:
        await lookup(dimension, 7)
        clock.ahead_s += 10_000.0

        assert staleness_s(dimension) == 600.0


async def test_live_feed_makes_old_rows_fresh() -> None:
    """What has not changed is the table's, however long ago it was read."""
    clock, source = Clock(), changelog()
    async with running(customers(), sources=followed(source), clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)
        clock.ahead_s += 5.0

        await until(lambda: staleness_s(dimension) < 1.0)


async def test_silence_lets_staleness_grow() -> None:
    """Without a word the rows are as old as they are."""
    clock, source = Clock(), changelog()
    async with running(customers(), sources=followed(source), clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)
        await fall_silent(dimension, source, clock)

        assert staleness_s(dimension) >= 10.0


async def test_whole_table_is_as_stale_as_its_load() -> None:
    """Without a feed it is the picture of a moment."""
    clock = Clock()
    sources = RefreshSources(table=table(rows((7, "Adele"))))
    async with running(customers(), full(), sources=sources, clock=clock) as dimension:
        await until_whole(dimension)
        clock.ahead_s += 5.0

        assert staleness_s(dimension) >= 5.0
        load = dimension.refresh_statistics().load

    assert load is not None
    assert (load.is_whole, load.rows, load.held_rows) == (True, 1, 1)


async def test_staleness_of_an_empty_cache_is_unknown() -> None:
    """There is nothing that could be stale, however the feed does."""
    source = changelog()
    async with running(customers(), sources=followed(source)) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)

        assert dimension.refresh_statistics().staleness_s is None


def staleness_s(dimension: Dimension) -> float:
    """How far what is held may lag; there is something."""
    told = dimension.refresh_statistics().staleness_s
    assert told is not None
    return told
