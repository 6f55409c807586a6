"""Refreshing goes on whichever runner works, and is refused where there is nothing to load."""

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import InvalidRequest
from lookup_core.freshness.feed_health import FeedState
from lookup_core.settings import FullSettings, WhileLoading
from lookup_core.statistics import (
    FeedStatistics,
    InvalidationOrigin,
    LoadStatistics,
    RefreshStatistics,
    UnusedMessage,
)
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from service.engine.refresher import Refresher, RefreshSources
from tests.service.engine.refreshing import (
    changelog,
    followed,
    full,
    lookup,
    rows,
    table,
    until,
    until_feed_is,
    until_whole,
)
from tests.service.engine.running import ROWS, SCHEMA, customers, running, settings


def test_little_is_known_before_the_schema() -> None:
    """Without a runner there is nobody to ask, and nothing to follow."""
    refresher = Refresher(full(), RefreshSources(table=table()))

    assert (refresher.waiting, refresher.load_statistics()) == (None, LoadStatistics())
    assert refresher.statistics() == RefreshStatistics(None, None, LoadStatistics())
    assert refresher.cold_reason() == "its load has not begun"


def test_feed_is_waited_for_from_the_start() -> None:
    """What is to be followed counts as not live before there is anybody to follow it."""
    refresher = Refresher(full(), followed(changelog(), table()))

    assert refresher.statistics().feed == FeedStatistics(FeedState.STARTING)
    assert refresher.cold_reason() == "its load waits for its feed"


def test_names_of_lookups_differ() -> None:
    """Whoever asks, in whatever way, has a name of its own."""
    refresher = Refresher(settings(), RefreshSources())

    assert [refresher.new_id() for _ in range(3)] == [1, 2, 3]


def ignored(dimension: Dimension) -> int:
    """Messages that told nothing."""
    feed = dimension.refresh_statistics().feed
    assert feed is not None
    return feed.unused_messages[UnusedMessage.IGNORED]


async def test_reload_is_of_whole_tables() -> None:
    """The error names what would have to be configured."""
    async with running(customers()) as dimension:
        with pytest.raises(InvalidRequest, match=r"cache\.mode: full"):
            dimension.reload()


async def test_all_begins_anew_with_another_schema() -> None:
    """Sources are read in the new types, by new readers; the old ones are gone.

    What is read again is counted again: totals only grow.
    """
    store, source, whole = customers(), changelog(), table(rows((7, "Adele")))
    chosen = full(FullSettings(WhileLoading.FETCH))
    async with running(store, chosen, sources=followed(source, whole)) as dimension:
        await until_whole(dimension)
        source.tell("planes-0", SplitPiece("", 0, ignored=2))
        await until(lambda: ignored(dimension) == 2)
        other = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8()}))
        whole.hold("read")
        store.replace(ROWS.select(["id", "name"]), other)
        dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)
        await lookup(dimension, 7)
        await until(lambda: dimension.schema.is_same(other))
        await until_feed_is(dimension, FeedState.LIVE)

        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        assert source.open_readers == 1
        assert ignored(dimension) == 4
