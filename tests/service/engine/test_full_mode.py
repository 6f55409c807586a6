"""Full mode: when the table is loaded, what lookups do meanwhile, and when a start is complete."""

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.server_identity import ServerEpoch, ServerIdentity
from lookup_core.settings import FullSettings, ReloadSettings, WhileLoading
from lookup_core.sources.splits import ReadingMode
from lookup_core.statistics import (
    FeedStatistics,
    InvalidationOrigin,
    LoadResult,
    LoadStatistics,
    RefreshStatistics,
    UnusedMessage,
)
from service.connectors.ports.source import SplitPiece
from service.engine.refresher import RefreshSources
from service.engine.warmup import Warmup
from tests.service.connectors.fake_source import FakeSource
from tests.service.engine.refreshing import (
    PARTITION,
    SEES_ALL,
    Clock,
    changelog,
    feed_of,
    followed,
    full,
    load_of,
    named,
    rows,
    staleness_s,
    table,
    touched,
    until_changed,
    until_feed_is,
    until_whole,
)
from tests.service.engine.running import (
    ROWS,
    SCHEMA,
    customers,
    in_words,
    lookup,
    queried,
    running,
    typed,
    until,
)

DOWN = BackendError(ErrorCode.CONNECTION_LOST, "down")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: may not be read")
NAMES = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8()}))
FETCH = full(FullSettings(WhileLoading.FETCH))


def loaded(source: FakeSource) -> RefreshSources:
    """A whole table without a feed."""
    return RefreshSources(table=source)


def reports(counts: dict[LoadResult, int], **expected: int) -> bool:
    """Whether loads have ended so, and in no other way."""
    return {result.value: count for result, count in counts.items() if count} == expected


# Loads without a feed


async def test_whole_table_answers_without_queries() -> None:
    """Rows are hits, absent keys are missing, and staleness is the age of the load."""
    backend, clock = customers(), Clock()
    source = table(rows((1, "Zoe")), rows((2, "Yan")))
    async with running(backend, full(), sources=loaded(source), clock=clock) as dimension:
        await until_whole(dimension)
        clock.ahead_s += 5.0

        assert await lookup(dimension, 1, 2, 7) == {0: "hit Zoe", 1: "hit Yan", 2: "missing"}
        assert staleness_s(dimension) >= 5.0
        assert (load_of(dimension).rows, load_of(dimension).held_rows) == (2, 2)
    assert queried(backend) == []


async def test_load_of_another_server_is_refused() -> None:
    """A table that was loaded from another server than that of lookups is not used."""
    backend = customers()
    backend.server = ServerEpoch(0, ServerIdentity(system="1", is_standby=False, started_at=2))
    source = FakeSource(is_bounded=True)
    source.server = replace(backend.server.identity, started_at=1)
    source.add("all", rows((1, "Zoe")))
    async with running(backend, FETCH, sources=loaded(source)) as dimension:
        await until(lambda: load_of(dimension).last_error is not None)
        found = await lookup(dimension, 7)

    assert load_of(dimension).last_error == (
        "the load reached another server than lookups: primary 1 ? ? 1"
    )
    assert (found, load_of(dimension).is_whole) == ({0: "fetched Ada"}, False)


async def test_lookups_wait_for_the_first_load() -> None:
    """By default lookups wait for the load, are answered by it, and are as old as it is."""
    backend, source, clock = customers(), table(rows((1, "Zoe"))), Clock()
    source.hold("read")
    async with running(backend, full(), sources=loaded(source), clock=clock) as dimension:
        await source.wait_for(lambda: "read" in source.calls)
        clock.ahead_s += 5.0
        waiting = asyncio.create_task(dimension.lookup(typed(1, 7), columns=None, timeout_s=None))
        await until(lambda: dimension.is_waited_for)
        source.release("read")
        answers = await waiting

    assert in_words(answers) == {0: "fetched Zoe", 1: "missing"}
    assert all((answer.ages_ms >= 5_000).all() for answer in answers)
    assert queried(backend) == []


@pytest.mark.parametrize(
    "loading", [FullSettings(WhileLoading.FETCH), FullSettings(warmup_max_wait_s=0.01)]
)
async def test_lookups_may_be_fetched_meanwhile(loading: FullSettings) -> None:
    """With `while_loading: fetch`, or after the longest wait, lookups are queries; none is kept."""
    source = table()
    source.hold("read")
    async with running(customers(), full(loading), sources=loaded(source)) as dimension:
        assert [await lookup(dimension, 7) for _ in range(2)] == [{0: "fetched Ada"}] * 2


async def test_first_load_waits_for_its_turn() -> None:
    """With `load_spread` the first load is delayed; a requested one begins at once."""
    source, began_at = table(rows((1, "Zoe"))), asyncio.get_running_loop().time()
    chosen = full(FullSettings(load_spread_s=1e9))
    async with running(customers(), chosen, sources=loaded(source)) as dimension:
        await asyncio.sleep(5.0)
        assert source.calls == []

        dimension.reload()
        await until_whole(dimension)

    assert asyncio.get_running_loop().time() < began_at + 6.0


@pytest.mark.parametrize(
    ("first", "fault", "reason"),
    [
        (rows((1, "Zoe")), FORBIDDEN, FORBIDDEN.detail),
        (SplitPiece("", 0, changes=[None]), None, "the load broke; see the log"),  # type: ignore[list-item]
    ],
    ids=["fault", "defect"],
)
async def test_failed_load_is_retried(
    first: SplitPiece, fault: BackendError | None, reason: str
) -> None:
    """A load that fails, or has a defect, is retried until the table is whole."""
    source = table(first)
    source.fail_next("connect", fault)
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until(lambda: load_of(dimension).last_error == reason)
        source.add("all", rows((1, "Zoe")))
        await until_whole(dimension)

        assert await lookup(dimension, 1) == {0: "hit Zoe"}
        assert reports(load_of(dimension).counts, ok=1, error=1)
        assert load_of(dimension).last_error is None


async def test_reload_replaces_the_rows() -> None:
    """A reload takes rows that came, changed and went; it counts as another load."""
    source = table(rows((1, "Zoe"), (2, "Yan")))
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)
        source.add("all", rows((2, "Yann"), (3, "Xia")))
        dimension.reload()
        await until(lambda: load_of(dimension).counts[LoadResult.OK] == 2)

        assert await lookup(dimension, 1, 2, 3) == {0: "missing", 1: "hit Yann", 2: "hit Xia"}


async def test_failed_reload_keeps_the_former_rows() -> None:
    """While a reload fails, former rows are served, and the statistics give the reason."""
    source = table(rows((1, "Zoe")))
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)
        source.fail_next("open", *[DOWN] * 4)
        dimension.reload()
        await until(lambda: bool(load_of(dimension).last_error))
        load = load_of(dimension)

        assert await lookup(dimension, 1) == {0: "hit Zoe"}
    assert (load.is_loading, load.rows, load.held_rows) == (True, 0, 1)
    assert (load.last_error, reports(load.counts, ok=1)) == (str(DOWN), True)


async def test_table_is_reloaded_by_interval() -> None:
    """With `reload.every` loads repeat."""
    source = table(rows((1, "Zoe")))
    chosen = full(FullSettings(reload=ReloadSettings(every_s=0.01)))
    async with running(customers(), chosen, sources=loaded(source)) as dimension:
        await until(lambda: load_of(dimension).counts[LoadResult.OK] >= 3)

        assert await lookup(dimension, 1) == {0: "hit Zoe"}


async def test_forgotten_table_is_reloaded() -> None:
    """After an invalidation of all rows, or a failover, the table is loaded again."""
    backend, source = customers(), table(rows((7, "Adele")))
    async with running(backend, FETCH, sources=loaded(source)) as dimension:
        await until_whole(dimension)
        dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)
        await until(lambda: load_of(dimension).counts[LoadResult.OK] == 2)
        assert await lookup(dimension, 7) == {0: "hit Adele"}

        dimension.invalidate(typed(7, 8), origin=InvalidationOrigin.ADMIN)
        await lookup(dimension, 7)
        backend.server = ServerEpoch(1)
        await lookup(dimension, 8)
        await until(lambda: load_of(dimension).counts[LoadResult.OK] == 3)

        assert await lookup(dimension, 7) == {0: "hit Adele"}


async def test_load_with_other_columns_reads_the_schema() -> None:
    """A load that meets other columns has the schema read at once, and loads again with it."""
    backend, source, former = customers(), table(rows((1, "Zoe"))), named((2, "Yan"))
    async with running(backend, full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)
        backend.replace(ROWS, NAMES)
        change = replace(former, rows=former.rows.select(["name"]))
        source.add("all", SplitPiece("", 0, changes=[change], snapshot=SEES_ALL))
        source.fail_next("open", BackendError(ErrorCode.SCHEMA_CHANGED, "other columns"))
        dimension.reload()
        await until(lambda: dimension.schema.known() == NAMES)
        await until_whole(dimension)

        assert await lookup(dimension, 1, 2) == {0: "missing", 1: "hit Yan"}
        assert reports(load_of(dimension).counts, ok=2, error=1)


async def test_expected_rows_are_estimated() -> None:
    """Splits that have not begun count as about as large as the others."""
    source = FakeSource(is_bounded=True, reading_mode=ReadingMode.SEQUENTIAL)
    source.add("first", rows((1, "Zoe")))
    source.add("second", rows((2, "Yan")))
    source.ended.clear()  # the first one is never read to its end
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until(lambda: load_of(dimension).rows > 0)

        assert (load_of(dimension).rows, load_of(dimension).expected_rows) == (1, 2)


# Loads with a feed


async def test_load_begins_when_the_feed_is_live() -> None:
    """The table is not read before the changes after it are followed."""
    source, whole = changelog(), table(rows((1, "Zoe")))
    source.hold("read")
    async with running(customers(), full(), sources=followed(source, whole)) as dimension:
        await source.wait_for(lambda: "read" in source.calls)
        assert whole.calls == []
        assert dimension.cold_reason() == "its load waits for its feed"
        source.release("read")
        await until_whole(dimension)


async def test_changes_are_applied_to_the_table() -> None:
    """A change with its row needs no query; one without is fetched once."""
    backend, source = customers(), changelog()
    backend.snapshot = SEES_ALL
    whole = table(rows((1, "Zoe"), (2, "Yan"), (7, "Adele")))
    async with running(backend, full(), sources=followed(source, whole)) as dimension:
        await until_whole(dimension)
        changes = [named((2, "Yann"), (3, "Xia"), by=1_001)]  # later than the load
        source.append(PARTITION, SplitPiece("", 0, changes=changes))
        source.append(PARTITION, touched(7))
        await until_changed(dimension, 3)

        assert await lookup(dimension, 1, 2, 3) == {0: "hit Zoe", 1: "hit Yann", 2: "hit Xia"}
        assert queried(backend) == []
        assert [await lookup(dimension, 7) for _ in range(2)] == [
            {0: "fetched Ada"},
            {0: "hit Ada"},
        ]


async def test_table_change_reloads_the_table() -> None:
    """After a change that names no key lookups are queries until the table is loaded again."""
    backend, source, whole = customers(), changelog(), table(rows((7, "Adele")))
    async with running(backend, full(), sources=followed(source, whole)) as dimension:
        await until_whole(dimension)
        whole.hold("read")
        whole.add("all", rows((7, "Ada II")))
        source.append(PARTITION, SplitPiece("", 0, changes=[TableChange("truncated", 700)]))
        await until_changed(dimension, 1)
        meanwhile = await lookup(dimension, 7)
        whole.release("read")
        await until_whole(dimension)

        assert (meanwhile, await lookup(dimension, 7)) == ({0: "fetched Ada"}, {0: "hit Ada II"})


async def test_outdated_load_is_repeated() -> None:
    """A load that a change of the whole table overtakes is not used, and is repeated."""
    source, whole = changelog(), table(rows((7, "Adele")))
    whole.hold("read")
    async with running(customers(), FETCH, sources=followed(source, whole)) as dimension:
        await whole.wait_for(lambda: "read" in whole.calls)
        source.append(PARTITION, SplitPiece("", 0, changes=[TableChange("truncated", 2_000)]))
        await until(lambda: feed_of(dimension).splits[0].position == 1)
        whole.release("read")
        await until(lambda: load_of(dimension).counts[LoadResult.OUTDATED] > 0)
        assert "a standby is late" in (load_of(dimension).last_error or "")

        assert await lookup(dimension, 7) == {0: "fetched Ada"}


async def test_flushed_load_ends_at_once() -> None:
    """A load that a flush overtakes reads no more of the table than the next piece."""
    source, whole = changelog(), table(rows((7, "Adele")))
    whole.ended.clear()  # more pieces follow, for ever
    async with running(customers(), FETCH, sources=followed(source, whole)) as dimension:
        await until(lambda: load_of(dimension).rows == 1)
        source.append(PARTITION, SplitPiece("", 0, changes=[TableChange("truncated", 700)]))
        await until(lambda: feed_of(dimension).splits[0].position == 1)
        whole.append("all", rows((8, "Berta")))

        await until(lambda: load_of(dimension).counts[LoadResult.OUTDATED] > 0)


async def test_reload_ends_the_pause_after_a_failure() -> None:
    """A load that is requested after a failed one begins at once."""
    source = table(rows((1, "Zoe")))
    async with running(customers(), FETCH, sources=loaded(source)) as dimension:
        await until_whole(dimension)
        source.fail_next("connect", *[FORBIDDEN] * 8)
        for failures in range(1, 9):
            dimension.reload()
            await until(lambda: load_of(dimension).counts[LoadResult.ERROR] == failures)  # noqa: B023
        began_at = asyncio.get_running_loop().time()
        dimension.reload()
        await until(lambda: load_of(dimension).counts[LoadResult.OK] == 2)

        assert asyncio.get_running_loop().time() - began_at < 1.0  # the pause would be 30 s


async def test_schema_change_restarts_feed_and_load() -> None:
    """New readers read the sources in the new types, the old ones are closed, totals only grow."""
    backend, source, whole = customers(), changelog(), table(rows((7, "Adele")))
    async with running(backend, FETCH, sources=followed(source, whole)) as dimension:
        await until_whole(dimension)
        source.append(PARTITION, SplitPiece("", 0, ignored=2, undecodable=1))
        once = {UnusedMessage.IGNORED: 2, UnusedMessage.UNDECODABLE: 1}
        await until(lambda: feed_of(dimension).unused_messages == once)
        whole.hold("read")
        backend.replace(ROWS.select(["id", "name"]), NAMES)
        dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)
        await lookup(dimension, 7)
        await until(lambda: dimension.schema.known() == NAMES)
        await until_feed_is(dimension, FeedState.LIVE)

        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        twice = {kind: 2 * count for kind, count in once.items()}
        assert (source.open_readers, feed_of(dimension).unused_messages) == (1, twice)
        assert reports(load_of(dimension).counts, ok=1)


# Warm-up


LOADING = LoadStatistics(is_loading=True, rows=1_500)
STALLED = FeedStatistics(FeedState.SILENT, last_error="gone")


@pytest.mark.parametrize(
    ("load", "feed", "reason"),
    [
        (None, None, "its load has not begun"),
        (LOADING, None, "loading: 1,500 rows"),
        (replace(LOADING, expected_rows=2_000), None, "loading: 1,500 of about 2,000 rows"),
        (replace(LOADING, last_error="no"), None, "loading: 1,500 rows; an attempt failed: no"),
        (LoadStatistics(last_error="no"), None, "its load failed: no"),
        (None, FeedStatistics(FeedState.STARTING), "its load waits for its feed"),
        (None, STALLED, "its load waits for its feed: gone"),
        (None, FeedStatistics(FeedState.LIVE), "its load has not begun"),
    ],
)
def test_cold_reason_names_the_cause(
    load: LoadStatistics | None, feed: FeedStatistics | None, reason: str
) -> None:
    """The reason gives the progress of the load, or what keeps it from beginning."""
    assert (
        Warmup(full(), began_at=0.0).cold_reason(RefreshStatistics(load=load, feed=feed), 1.0)
        == reason
    )


def test_start_ends_for_good() -> None:
    """A start ends with a whole table or after the longest wait, and does not begin again."""
    chosen = full(FullSettings(warmup_max_wait_s=60.0))
    whole, late = (Warmup(chosen, began_at=100.0) for _ in range(2))

    loading = RefreshStatistics(load=LOADING)
    assert whole.cold_reason(loading, 101.0) == "loading: 1,500 rows"
    whole.end()
    assert whole.cold_reason(loading, 101.0) is None
    assert late.cold_reason(loading, 159.9) == "loading: 1,500 rows"
    assert late.cold_reason(loading, 160.0) is None
