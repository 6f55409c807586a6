"""A dimension with sources that are fakes, and what they tell.

Not a test.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings, FullSettings
from lookup_core.statistics import InvalidationOrigin
from service.connectors.memory.source import FakeSource
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.service.engine.running import PATIENCE_S, SCHEMA, settings, told, typed

SEES_ALL = TableSnapshot(1_000, 1_000, np.zeros(0, np.uint32))
SEES_NOTHING = TableSnapshot(1, 1, np.zeros(0, np.uint32))


class Clock:
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        """Monotonic seconds."""
        return time.monotonic() + self.ahead_s


async def fall_silent(dimension: Dimension, source: FakeSource, clock: Clock) -> None:
    """Let time pass, and nothing be heard of the source, until the feed is silent."""
    source.silent_s = 60.0

    def is_silent() -> bool:
        # Again and again: what was read before this may be taken after it.
        clock.ahead_s += 15.0
        return _feed_state(dimension) is FeedState.SILENT

    await until(is_silent)


def changelog() -> FakeSource:
    """A changelog of one partition, in which nothing has been told."""
    made = FakeSource(is_bounded=False, patience_s=0.001)
    made.add("planes-0")
    return made


def table(*pieces: SplitPiece) -> FakeSource:
    """A picture of the customers in one split."""
    made = FakeSource(is_bounded=True)
    made.add("all", *pieces)
    return made


def followed(source: FakeSource, whole: FakeSource | None = None) -> RefreshSources:
    """A changelog, and the whole table if there is one."""
    return RefreshSources(lambda: source, InvalidationOrigin.CHANGELOG, whole)


def full(loading: FullSettings | None = None) -> DimensionSettings:
    """Held whole, and no hurry."""
    cache = CacheSettings(mode=CacheMode.FULL)
    return replace(settings(), cache=cache, full=loading or FullSettings())


def rows(*names: tuple[int, str]) -> SplitPiece:
    """A piece of a picture: customers with these keys and names."""
    return SplitPiece("", 0, changes=[named(*names)], snapshot=SEES_ALL)


def named(*names: tuple[int, str], transaction_id: int = 700) -> RowChanges:
    """These customers are called so by now."""
    columns = [{"name": name, "tier": 1} for _, name in names]
    return RowChanges(
        keys=pa.record_batch([pa.array([key for key, _ in names], pa.int64())], SCHEMA.key),
        has_row=np.ones(len(names), np.bool_),
        is_gone=np.zeros(len(names), np.bool_),
        rows=pa.RecordBatch.from_pylist(columns, schema=SCHEMA.columns),
        transaction_ids=np.full(len(names), transaction_id, np.uint32),
    )


def touched(*keys: int) -> SplitPiece:
    """Something of these customers has changed."""
    changes = named(*((key, "") for key in keys))
    return SplitPiece("", 0, changes=[replace(changes, has_row=np.zeros(len(keys), np.bool_))])


async def lookup(dimension: Dimension, *keys: int) -> dict[int, str]:
    """A caller that waits for all answers."""
    return told(await dimension.lookup(typed(*keys), columns=None, timeout_s=None))


async def until(condition: Callable[[], bool]) -> None:
    """Wait until this holds; nothing tells of it."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def until_feed_is(dimension: Dimension, state: FeedState) -> None:
    """Wait until the feed is in this state."""
    await until(lambda: _feed_state(dimension) is state)


def _feed_state(dimension: Dimension) -> FeedState | None:
    feed = dimension.refresh_statistics().feed
    return None if feed is None else feed.state


async def until_told(dimension: Dimension, keys: int) -> None:
    """Wait until so many keys were said to have changed, since the start."""
    origin = InvalidationOrigin.CHANGELOG
    await until(lambda: dimension.statistics().invalidations[origin] >= keys)


async def until_whole(dimension: Dimension) -> None:
    """Wait until the table is loaded."""

    def is_so() -> bool:
        load = dimension.refresh_statistics().load
        return load is not None and load.is_whole

    await until(is_so)
