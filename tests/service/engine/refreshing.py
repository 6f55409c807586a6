"""Builders of a dimension with fake sources: a changelog and a table to load."""

import asyncio
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings, FullSettings
from lookup_core.statistics import FeedStatistics, InvalidationOrigin, LoadStatistics
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.service.connectors.fake_source import FakeSource
from tests.service.engine import running
from tests.service.engine.running import SCHEMA, settings

SEES_ALL = TableSnapshot(1_000, 1_000, np.zeros(0, np.uint32))
SEES_NOTHING = TableSnapshot(1, 1, np.zeros(0, np.uint32))
PARTITION = "planes-0"


class Clock:
    """The clock of the loop, and some seconds that a test adds."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        """Monotonic seconds."""
        return asyncio.get_running_loop().time() + self.ahead_s


def changelog() -> FakeSource:
    """A changelog of one partition, without changes."""
    made = FakeSource(is_bounded=False, patience_s=0.001)
    made.add(PARTITION)
    return made


def table(*pieces: SplitPiece) -> FakeSource:
    """A snapshot of the customers in one split."""
    made = FakeSource(is_bounded=True)
    made.add("all", *pieces)
    return made


def followed(source: FakeSource, whole: FakeSource | None = None) -> RefreshSources:
    """A changelog, and the whole table if there is one."""
    return RefreshSources(lambda: source, InvalidationOrigin.CHANGELOG, whole)


def full(loading: FullSettings | None = None) -> DimensionSettings:
    """Full mode, and a long timeout."""
    cache = CacheSettings(mode=CacheMode.FULL)
    return replace(settings(), cache=cache, full=loading or FullSettings())


def rows(*names: tuple[int, str]) -> SplitPiece:
    """A piece of a snapshot: customers with these keys and names."""
    return SplitPiece("", 0, changes=[named(*names)], snapshot=SEES_ALL)


def named(*names: tuple[int, str], by: int = 700) -> RowChanges:
    """The rows of these customers, as this transaction wrote them."""
    columns = [{"name": name, "tier": 1} for _, name in names]
    return RowChanges(
        keys=pa.record_batch([pa.array([key for key, _ in names], pa.int64())], SCHEMA.key),
        has_row=np.ones(len(names), np.bool_),
        is_gone=np.zeros(len(names), np.bool_),
        rows=pa.RecordBatch.from_pylist(columns, schema=SCHEMA.columns),
        transaction_ids=np.full(len(names), by, np.uint32),
    )


def touched(*keys: int) -> SplitPiece:
    """Changes of these customers, without their rows."""
    changes = named(*((key, "") for key in keys))
    unknown = changes.without_rows(np.ones(len(keys), np.bool_))
    return SplitPiece("", 0, changes=[unknown])


def at_time(watermark_ms: int) -> SplitPiece:
    """No change of an earlier time follows."""
    return SplitPiece("", 0, watermark_ms=watermark_ms)


def feed_of(dimension: Dimension) -> FeedStatistics:
    """The statistics of the feed."""
    feed = dimension.refresh_statistics().feed
    assert feed is not None
    return feed


def load_of(dimension: Dimension) -> LoadStatistics:
    """The statistics of the loads."""
    load = dimension.load_statistics()
    assert load is not None
    return load


def staleness_s(dimension: Dimension) -> float:
    """The staleness of the cached rows, which must exist."""
    staleness = dimension.refresh_statistics().staleness_s
    assert staleness is not None
    return staleness


async def stall(dimension: Dimension, source: FakeSource, clock: Clock) -> None:
    """Advance the clock without a message of the source, until the feed is stalled."""
    source.silent_s = 60.0

    def is_stalled() -> bool:
        # Repeated: what was read before this may be taken after it.
        clock.ahead_s += 15.0
        return feed_of(dimension).state is FeedState.SILENT

    await until(is_stalled)


until = running.until  # the name that suites of other folders import


async def until_feed_is(dimension: Dimension, state: FeedState) -> None:
    """Wait until the feed is in this state."""
    await until(lambda: feed_of(dimension).state is state)


async def until_changed(dimension: Dimension, keys: int) -> None:
    """Wait until changes of this many keys were applied, since the start."""
    origin = InvalidationOrigin.CHANGELOG
    await until(lambda: dimension.statistics().invalidations[origin] >= keys)


async def until_whole(dimension: Dimension) -> None:
    """Wait until the table is loaded."""

    def is_so() -> bool:
        load = dimension.refresh_statistics().load
        return load is not None and load.is_whole

    await until(is_so)
