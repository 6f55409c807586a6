"""Loading a whole table: when, and what becomes of lookups meanwhile and afterwards."""

import asyncio
from dataclasses import replace

import pyarrow as pa
from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.settings import FullSettings, ReloadSettings, WhileLoading
from lookup_core.sources.splits import ReadingMode
from lookup_core.statistics import InvalidationOrigin, LoadResult
from service.connectors.memory.source import FakeSource
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.service.engine.refreshing import (
    SEES_ALL,
    Clock,
    changelog,
    fall_silent,
    followed,
    full,
    lookup,
    named,
    rows,
    table,
    touched,
    until,
    until_feed_is,
    until_told,
    until_whole,
)
from tests.service.engine.running import ROWS, SCHEMA, customers, running, told, typed

DOWN = BackendError(ErrorCode.CONNECTION_LOST, "down")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: may not be read")


def loaded(source: FakeSource) -> RefreshSources:
    """A whole table that nobody follows."""
    return RefreshSources(table=source)


def counts(dimension: Dimension) -> dict[LoadResult, int]:
    """How loads have ended."""
    load = dimension.refresh_statistics().load
    assert load is not None
    return load.counts


async def test_whole_table_answers_without_a_query() -> None:
    """A row is a hit, and a key that is not there is missing."""
    store, source = customers(), table(rows((1, "Zoe")), rows((2, "Yan")))

    async with running(store, full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)
        answers = await lookup(dimension, 1, 2, 7)

    assert answers == {0: "hit Zoe", 1: "hit Yan", 2: "missing"}
    assert store.batches == []


async def test_lookups_wait_for_the_first_load() -> None:
    """They are answered by the table, and the store is not asked for any of them.

    Their rows are as old as the load, which may have begun before they were asked for.
    """
    store, source, clock = customers(), table(rows((1, "Zoe"))), Clock()
    source.hold("read")

    async with running(store, full(), sources=loaded(source), clock=clock) as dimension:
        await source.wait_for(lambda: "read" in source.diary)
        clock.ahead_s += 5.0
        waiting = asyncio.create_task(dimension.lookup(typed(1, 7), columns=None, timeout_s=None))
        await until(lambda: dimension.is_waited_for)
        source.release("read")
        answers = await waiting

    assert told(answers) == {0: "fetched Zoe", 1: "missing"}
    assert all((answer.ages_ms >= 5_000).all() for answer in answers)
    assert store.batches == []


async def test_lookups_may_be_fetched_meanwhile() -> None:
    """Who would not wait is answered by the store; nothing is kept of it."""
    source = table(rows((1, "Zoe")))
    source.hold("read")
    chosen = full(FullSettings(WhileLoading.FETCH))

    async with running(customers(), chosen, sources=loaded(source)) as dimension:
        assert [await lookup(dimension, 7) for _ in range(2)] == [{0: "fetched Ada"}] * 2


async def test_waiting_ends_with_the_warmup() -> None:
    """A table that cannot be loaded holds nobody for longer than the start may take."""
    source = table()
    source.hold("read")
    chosen = full(FullSettings(warmup_max_wait_s=0.01))

    async with running(customers(), chosen, sources=loaded(source)) as dimension:
        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        assert dimension.cold_reason() is None


async def test_dimension_is_cold_until_it_is_loaded() -> None:
    """What it waits for is told as far as it is known."""
    source = table(rows((1, "Zoe"), (2, "Yan")), rows((3, "Xia")))
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await source.wait_for(lambda: "open" in source.diary)
        cold = dimension.cold_reason()
        await until_whole(dimension)

        assert (cold, dimension.cold_reason()) == ("loading: 0 rows", None)


async def test_rows_are_expected_of_splits_not_begun() -> None:
    """Splits that have not said how large they are count as about as large as the others."""
    source = FakeSource(is_bounded=True, reading_mode=ReadingMode.SEQUENTIAL)
    source.add("first", rows((1, "Zoe")))
    source.add("second", rows((2, "Yan")))
    source.ended.clear()  # the first one is never read to its end
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until(lambda: bool((load := dimension.refresh_statistics().load) and load.rows))
        load = dimension.refresh_statistics().load

        assert load is not None
        assert (load.rows, load.expected_rows) == (1, 2)


async def test_failed_load_is_tried_again() -> None:
    """The reason is told meanwhile, and the rows are there in the end."""
    source = table(rows((1, "Zoe")))
    source.fail_next("connect", FORBIDDEN)
    with capture_logs() as logs:
        async with running(customers(), full(), sources=loaded(source)) as dimension:
            await until_whole(dimension)
            answers, ended = await lookup(dimension, 1), counts(dimension)

    assert answers == {0: "hit Zoe"}
    assert ended[LoadResult.OK] == 1
    assert "source.discovery_failed" in [entry["event"] for entry in logs]


async def test_reload_takes_what_has_changed() -> None:
    """Rows that came, changed and went are those of the table; it counts as another load."""
    source = table(rows((1, "Zoe"), (2, "Yan")))
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)
        source.add("all", rows((2, "Yann"), (3, "Xia")))

        dimension.reload()
        await until(lambda: counts(dimension)[LoadResult.OK] == 2)

        assert await lookup(dimension, 1, 2, 3) == {0: "missing", 1: "hit Yann", 2: "hit Xia"}


async def test_failed_reload_leaves_the_former_rows() -> None:
    """They are served on, older and older."""
    source = table(rows((1, "Zoe")))
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)
        source.fail_next("open", *[FORBIDDEN] * 5)

        dimension.reload()
        await until(lambda: source.diary.count("open") > 2)

        assert await lookup(dimension, 1) == {0: "hit Zoe"}
        refresh = dimension.refresh_statistics()
        assert refresh.staleness_s is not None
        assert refresh.staleness_s > 0.0


async def test_first_failed_try_is_told() -> None:
    """A reload that goes on trying shows why, and what is held meanwhile."""
    source = table(rows((1, "Zoe")))
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)
        source.fail_next("open", *[DOWN] * 4)

        dimension.reload()
        await until(lambda: bool((load := dimension.load_statistics()) and load.last_error))
        load = dimension.load_statistics()

    assert load is not None
    assert (load.is_loading, load.rows, load.held_rows) == (True, 0, 1)
    assert (load.last_error, load.counts[LoadResult.ERROR]) == (str(DOWN), 0)


async def test_other_columns_are_described_and_loaded() -> None:
    """A load that meets other columns has the store asked at once, and the table begun anew."""
    store, source, former = customers(), table(rows((1, "Zoe"))), named((2, "Yan"))
    columns = pa.schema({"name": pa.utf8()})
    async with running(store, full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)
        store.replace(ROWS, DimensionSchema(SCHEMA.key, columns))
        change = replace(former, rows=former.rows.select(["name"]))
        source.add("all", SplitPiece("", 0, changes=[change], snapshot=SEES_ALL))
        source.fail_next("open", BackendError(ErrorCode.SCHEMA_CHANGED, "other columns"))

        dimension.reload()
        await until(lambda: dimension.schema.columns == columns)
        await until_whole(dimension)

        assert await lookup(dimension, 1, 2) == {0: "missing", 1: "hit Yan"}
        assert counts(dimension) == {
            LoadResult.OK: 2,
            LoadResult.ERROR: 1,
            LoadResult.OUTDATED: 0,
        }


async def test_table_is_loaded_every_so_often() -> None:
    """The pause counts from the end of a load."""
    source = table(rows((1, "Zoe")))
    chosen = full(FullSettings(reload=ReloadSettings(every_s=0.01)))

    async with running(customers(), chosen, sources=loaded(source)) as dimension:
        await until(lambda: counts(dimension)[LoadResult.OK] >= 3)

        assert await lookup(dimension, 1) == {0: "hit Zoe"}


async def test_forgotten_table_is_loaded_anew() -> None:
    """Who says that all may have changed gets rows of the store until it is whole again."""
    source = table(rows((1, "Zoe")))
    async with running(customers(), full(), sources=loaded(source)) as dimension:
        await until_whole(dimension)

        dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)
        await until(lambda: counts(dimension)[LoadResult.OK] == 2)

        assert await lookup(dimension, 1) == {0: "hit Zoe"}


# With a changelog


async def test_load_begins_when_changes_are_followed() -> None:
    """A change between the two would be lost."""
    source, whole = changelog(), table(rows((1, "Zoe")))
    source.hold("read")

    async with running(customers(), full(), sources=followed(source, whole)) as dimension:
        await source.wait_for(lambda: "read" in source.diary)
        before = list(whole.diary)
        source.release("read")
        await until_whole(dimension)

    assert before == []


async def test_changes_with_rows_are_applied() -> None:
    """No query is needed to know what a row is now, or that it is gone."""
    store, source, whole = customers(), changelog(), table(rows((1, "Zoe"), (2, "Yan")))
    async with running(store, full(), sources=followed(source, whole)) as dimension:
        await until_whole(dimension)

        source.tell("planes-0", SplitPiece("", 0, changes=[named((2, "Yann"), (3, "Xia"))]))
        await until_told(dimension, 2)

        assert await lookup(dimension, 1, 2, 3) == {0: "hit Zoe", 1: "hit Yann", 2: "hit Xia"}
    assert store.batches == []


async def test_change_without_its_row_is_fetched_once() -> None:
    """Whoever asks first fills the hole for all others."""
    store, source, whole = customers(), changelog(), table(rows((7, "Adele")))
    store.snapshot = SEES_ALL
    async with running(store, full(), sources=followed(source, whole)) as dimension:
        await until_whole(dimension)
        source.tell("planes-0", touched(7))
        await until_told(dimension, 1)

        answers = [await lookup(dimension, 7) for _ in range(2)]

    assert answers == [{0: "fetched Ada"}, {0: "hit Ada"}]


async def test_doubt_lets_the_table_be_loaded_anew() -> None:
    """Until it is whole again the store is asked."""
    store, source, whole = customers(), changelog(), table(rows((7, "Adele")))
    async with running(store, full(), sources=followed(source, whole)) as dimension:
        await until_whole(dimension)
        whole.hold("read")
        whole.add("all", rows((7, "Ada II")))
        source.tell("planes-0", SplitPiece("", 0, changes=[TableChange("truncated", 700)]))
        await until_told(dimension, 1)
        meanwhile = await lookup(dimension, 7)
        whole.release("read")
        await until_whole(dimension)

        assert (meanwhile, await lookup(dimension, 7)) == ({0: "fetched Ada"}, {0: "hit Ada II"})


async def test_silent_feed_takes_the_table_back() -> None:
    """Nothing is believed of it, and all is there when the feed is."""
    source, whole, clock = changelog(), table(rows((7, "Adele"))), Clock()
    sources = followed(source, whole)
    async with running(customers(), full(), sources=sources, clock=clock) as dimension:
        await until_whole(dimension)
        await fall_silent(dimension, source, clock)
        silent = await lookup(dimension, 7)
        source.silent_s = 0.0
        await until_feed_is(dimension, FeedState.LIVE)

        assert (silent, await lookup(dimension, 7)) == ({0: "fetched Ada"}, {0: "hit Adele"})


async def test_table_that_was_forgotten_by_whomever_is_loaded_anew() -> None:
    """After a failover nobody has to say that the rows are gone."""
    store, source = customers(), table(rows((7, "Adele")))
    chosen = full(FullSettings(WhileLoading.FETCH))
    store.store = "first"
    async with running(store, chosen, sources=loaded(source)) as dimension:
        await until_whole(dimension)
        dimension.invalidate(typed(7, 8), origin=InvalidationOrigin.ADMIN)
        await lookup(dimension, 7)
        store.store = "second"
        await lookup(dimension, 8)
        await until(lambda: counts(dimension)[LoadResult.OK] == 2)

        assert await lookup(dimension, 7) == {0: "hit Adele"}
