"""A dimension that follows its changes: which rows it trusts, and which lookups wait."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.server_identity import ServerEpoch
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import DimensionSettings, FeedSettings
from lookup_core.statistics import RefreshStatistics
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from tests.service.connectors.fake_backend import FAKE_SERVER, FakeBackend
from tests.service.connectors.fake_source import FakeSource
from tests.service.engine.refreshing import (
    PARTITION,
    SEES_ALL,
    SEES_NOTHING,
    Clock,
    at_time,
    changelog,
    feed_of,
    followed,
    staleness_s,
    stall,
    touched,
    until_changed,
    until_feed_is,
)
from tests.service.engine.running import (
    PATIENCE_S,
    Caller,
    customers,
    lookup,
    queried,
    running,
    settings,
    typed,
    until,
)

LOST = BackendError(ErrorCode.CONNECTION_LOST, "the connection broke")
FETCHED, HIT = {0: "fetched Ada"}, {0: "hit Ada"}


@asynccontextmanager
async def following(
    source: FakeSource,
    backend: FakeBackend | None = None,
    *,
    chosen: DimensionSettings | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Dimension]:
    """A dimension whose feed is live; rows are read after all changes, if not said otherwise."""
    backend = backend or customers()
    backend.snapshot = backend.snapshot or SEES_ALL
    async with running(backend, chosen, sources=followed(source), clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        yield dimension


# Trusted rows


async def test_rows_are_cached_while_feed_is_live() -> None:
    """Until the feed has read all earlier changes, each lookup is a query; then rows stay."""
    source = changelog()
    source.hold("read")
    async with running(customers(), sources=followed(source)) as dimension:
        starting = [await lookup(dimension, 7) for _ in range(2)]
        assert feed_of(dimension).state is FeedState.STARTING
        source.release("read")
        await until_feed_is(dimension, FeedState.LIVE)

        assert starting == [FETCHED] * 2
        assert [await lookup(dimension, 7) for _ in range(2)] == [FETCHED, HIT]


@pytest.mark.parametrize(
    ("snapshot", "second", "fenced"),
    [(SEES_ALL, HIT, 0), (SEES_NOTHING, FETCHED, 2)],
    ids=["read after the change", "read before the change"],
)
async def test_changed_key_is_fetched_again(
    snapshot: TableSnapshot, second: dict[int, str], fenced: int
) -> None:
    """A change drops the row of its key only."""
    source, backend = changelog(), customers()
    backend.snapshot = snapshot
    async with following(source, backend) as dimension:
        await lookup(dimension, 7, 8)
        source.append(PARTITION, touched(7))
        await until_changed(dimension, 1)

        assert await lookup(dimension, 7, 8) == {0: "fetched Ada", 1: "hit Bert"}
        assert await lookup(dimension, 7) == second
        assert dimension.statistics().fenced_keys == fenced


async def test_table_change_drops_all_rows() -> None:
    """A change that names no key drops every row; the log gives its reason."""
    source = changelog()
    with capture_logs() as logs:
        async with following(source) as dimension:
            await lookup(dimension, 7, 8)
            source.append(PARTITION, SplitPiece("", 0, changes=[TableChange("truncated", 700)]))
            await until_changed(dimension, 2)

            assert await lookup(dimension, 7, 8) == {0: "fetched Ada", 1: "fetched Bert"}

    assert [line["reason"] for line in logs if line["event"] == "feed.flushed"] == ["truncated"]


# Feeds that fail or stall


@pytest.mark.parametrize(
    ("what", "error"),
    [("discover", BackendError(ErrorCode.FORBIDDEN, "it may not be read")), ("read", LOST)],
)
async def test_feed_error_is_reported_until_live(what: str, error: BackendError) -> None:
    """The statistics give the last error of the feed until it is live."""
    source = changelog()
    source.fail_next(what, error)
    async with running(customers(), sources=followed(source)) as dimension:
        await until(lambda: error.detail in (feed_of(dimension).last_error or ""))
        await until_feed_is(dimension, FeedState.LIVE)

        assert feed_of(dimension).last_error is None


async def test_broken_reader_suspends_trust() -> None:
    """While a failed reader is being replaced, no cached row is served; then they are."""
    source = changelog()
    async with following(source) as dimension:
        await lookup(dimension, 7)
        source.hold("open")
        source.fail_next("read", LOST)
        await until_feed_is(dimension, FeedState.STARTING)
        meanwhile = await lookup(dimension, 7)
        source.release("open")
        await until_feed_is(dimension, FeedState.LIVE)

        assert (meanwhile, await lookup(dimension, 7)) == (FETCHED, HIT)


async def test_feed_leaves_a_server_with_its_reads() -> None:
    """If reads have another server than the feed, the feed connects again, without trust."""
    source, backend = changelog(), customers()
    async with running(backend, sources=followed(source)) as dimension:
        source.append(PARTITION, SplitPiece("", 0))
        await until_feed_is(dimension, FeedState.LIVE)
        source.hold("open")
        backend.server = ServerEpoch(1, replace(FAKE_SERVER, system="another"))
        await lookup(dimension, 7)
        await until_feed_is(dimension, FeedState.STARTING)
        meanwhile = [await lookup(dimension, 7) for _ in range(2)]
        source.release("open")
        await until_feed_is(dimension, FeedState.LIVE)

        assert meanwhile == [FETCHED, FETCHED]


async def test_defect_in_the_feed_costs_freshness_only() -> None:
    """After a defect lookups are queries, and the feed starts again."""
    source = changelog()
    with capture_logs() as logs:
        async with following(source) as dimension:
            source.append(PARTITION, SplitPiece("", 0, changes=[None]))  # type: ignore[list-item]
            await until_feed_is(dimension, FeedState.STARTING)

            assert await lookup(dimension, 7) == FETCHED

    assert "feed.failed" in [line["event"] for line in logs]


async def test_stalled_feed_bypasses_the_cache() -> None:
    """If the source gives no sign of life for too long, cached rows are not served."""
    source, clock = changelog(), Clock()
    async with following(source, clock=clock) as dimension:
        assert dimension.refresh_statistics().staleness_s is None
        await lookup(dimension, 7)
        clock.ahead_s += 5.0
        await until(lambda: staleness_s(dimension) < 1.0)
        await stall(dimension, source, clock)
        assert staleness_s(dimension) >= 10.0
        stalled = await lookup(dimension, 7)
        source.silent_s = 0.0
        await until_feed_is(dimension, FeedState.LIVE)

        assert (stalled, await lookup(dimension, 7)) == (FETCHED, HIT)


async def test_pause_of_the_process_suspends_trust() -> None:
    """After a pause, a row is served again once its source has answered a later request."""
    source, clock = changelog(), Clock()
    async with following(source, clock=clock) as dimension:
        await lookup(dimension, 7)
        source.hold("read")
        await until(lambda: source.calls[-1] == "read")

        clock.ahead_s += 0.7
        paused = await lookup(dimension, 7)
        await until_feed_is(dimension, FeedState.SILENT)
        assert "request" in source.calls
        source.release("read")
        await until_feed_is(dimension, FeedState.LIVE)

        assert (paused, await lookup(dimension, 7)) == (FETCHED, HIT)


STALENESS_LIMIT = replace(settings(), feed=FeedSettings(max_staleness_s=30.0))


async def test_old_watermark_is_a_stall() -> None:
    """A source whose watermark lags more than `max_staleness` is stalled, though it answers."""
    source = changelog()
    source.append(PARTITION, at_time(1_000))
    async with running(customers(), STALENESS_LIMIT, sources=followed(source)) as dimension:
        await until_feed_is(dimension, FeedState.SILENT)
        feed = feed_of(dimension)

    assert (feed.watermark_ms, [split.split_id for split in feed.splits]) == (1_000, [PARTITION])


async def test_future_watermark_counts_as_now() -> None:
    """A source whose clock is an hour ahead is stalled after `max_staleness` all the same."""
    source, clock = changelog(), Clock()
    source.append(PARTITION, at_time(int((time.time() + 3_600) * 1000)))
    async with following(source, chosen=STALENESS_LIMIT, clock=clock) as dimension:
        clock.ahead_s += 60.0

        await until_feed_is(dimension, FeedState.SILENT)


async def test_doubted_feed_is_named() -> None:
    """While only other databases report changes, the reason is shown; audits find lost ones."""
    source = changelog()
    async with following(source) as dimension:
        source.doubt = "others report"
        await until(lambda: feed_of(dimension).doubt == "others report")
        await lookup(dimension, 7)

        assert await lookup(dimension, 7) == HIT


async def test_paused_split_suspends_trust() -> None:
    """While a split is paused for its drift, its changes are not read, and no row is served."""
    source = changelog()
    source.add("planes-1")
    source.append(PARTITION, at_time(1_000))
    source.append("planes-1", at_time(900_000))
    chosen = replace(settings(), feed=FeedSettings(max_drift_s=1.0))
    async with running(customers(), chosen, sources=followed(source)) as dimension:
        await until(lambda: [each.is_paused for each in feed_of(dimension).splits] == [False, True])
        await until_feed_is(dimension, FeedState.STARTING)

        assert [await lookup(dimension, 7) for _ in range(2)] == [FETCHED] * 2


async def test_staleness_without_a_feed_is_row_age() -> None:
    """Without a feed, staleness is the age of the oldest row, at most its time to live."""
    clock = Clock()
    async with running(customers(), clock=clock) as dimension:
        empty = dimension.refresh_statistics()
        await lookup(dimension, 7)
        clock.ahead_s += 5.0
        young = staleness_s(dimension)
        clock.ahead_s += 10_000.0

        assert empty == RefreshStatistics(None, feed=None, load=None, staleness_limit_s=600.0)
        assert 5.0 <= young < 600.0
        assert staleness_s(dimension) == 600.0


# Lookups that are ahead of their dimension

PATIENT = replace(settings(), wait_for_dimension_s=PATIENCE_S / 2)


async def test_lookup_waits_for_its_event_time() -> None:
    """Late-arriving dimension rows: a lookup waits until the watermark passes its event time."""
    source, backend = changelog(), customers()
    keys = typed(7, None, 8, 9)
    faulty = TypedKeys(keys.columns, keys.nulls, {2: ErrorCode.TYPE})
    async with following(source, backend, chosen=PATIENT) as dimension:
        caller = Caller(dimension)
        source.append(PARTITION, at_time(500))
        caller.submit(event_time_ms=1_000, typed_keys=faulty)
        waiting = (dimension.is_waited_for, dimension.statistics().waiting_keys, queried(backend))
        source.append(PARTITION, at_time(1_001))

        assert await caller.words() == {
            0: "fetched Ada",
            1: "missing",
            2: "error type",
            3: "missing",
        }
        assert waiting == (True, 4, [])
        assert dimension.statistics().waiting_keys == 0


async def test_end_of_the_feed_ends_waiting_lookups() -> None:
    """When the dimension stops following, waiting lookups end with `schema_changed`."""
    backend = customers()
    async with following(changelog(), backend, chosen=PATIENT) as dimension:
        caller = Caller(dimension)
        caller.submit(7, event_time_ms=1_000)

    assert await caller.words() == {0: "error schema_changed"}
    assert queried(backend) == []
