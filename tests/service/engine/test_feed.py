"""Following changes: what is forgotten, and when the cache is believed."""

import time
from dataclasses import replace

from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.settings import FeedSettings
from lookup_core.statistics import FeedStatistics, UnusedMessage
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from tests.service.engine.refreshing import (
    SEES_ALL,
    SEES_NOTHING,
    Clock,
    changelog,
    fall_silent,
    followed,
    lookup,
    touched,
    until,
    until_feed_is,
    until_told,
)
from tests.service.engine.running import customers, running, settings

LOST = BackendError(ErrorCode.CONNECTION_LOST, "the connection broke")
STALENESS = FeedSettings(max_staleness_s=30.0)


async def test_nothing_is_kept_before_all_is_told() -> None:
    """What changed while nobody listened is not known: each lookup asks."""
    source = changelog()
    source.hold("read")

    async with running(customers(), sources=followed(source)) as dimension:
        answers = [await lookup(dimension, 7) for _ in range(2)]
        feed = dimension.refresh_statistics().feed

    assert answers == [{0: "fetched Ada"}] * 2
    assert feed is not None
    assert feed.state is FeedState.STARTING


async def test_live_feed_lets_rows_be_kept() -> None:
    """From then on a row stays until a change is told."""
    async with running(customers(), sources=followed(changelog())) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        answers = [await lookup(dimension, 7) for _ in range(2)]

    assert answers == [{0: "fetched Ada"}, {0: "hit Ada"}]


async def test_change_lets_its_key_be_read_anew() -> None:
    """The key that was told is asked for again, all others are not."""
    source, store = changelog(), customers()
    store.snapshot = SEES_ALL
    async with running(store, sources=followed(source)) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7, 8)

        source.tell("planes-0", touched(7))
        await until_told(dimension, 1)

        assert await lookup(dimension, 7, 8) == {0: "fetched Ada", 1: "hit Bert"}
        assert await lookup(dimension, 7) == {0: "hit Ada"}


async def test_row_of_an_earlier_picture_is_not_kept() -> None:
    """What a read that did not see the change brought is answered, and asked for again."""
    source, store = changelog(), customers()
    store.snapshot = SEES_NOTHING
    async with running(store, sources=followed(source)) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        source.tell("planes-0", touched(7))
        await until_told(dimension, 1)

        answers = [await lookup(dimension, 7) for _ in range(2)]

    assert answers == [{0: "fetched Ada"}] * 2
    assert dimension.statistics().fenced_keys == 2


async def test_doubt_about_the_table_forgets_all() -> None:
    """Where nobody can tell which row has changed, any may have."""
    source, store = changelog(), customers()
    store.snapshot = SEES_ALL
    async with running(store, sources=followed(source)) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7, 8)

        source.tell("planes-0", SplitPiece("", 0, changes=[TableChange("truncated", 700)]))
        await until_told(dimension, 2)

        assert await lookup(dimension, 7, 8) == {0: "fetched Ada", 1: "fetched Bert"}


async def test_messages_that_tell_nothing_are_counted() -> None:
    """Of each kind, as long as the feed works for its runner."""
    source = changelog()
    async with running(customers(), sources=followed(source)) as dimension:
        source.tell("planes-0", *[SplitPiece("", 0, ignored=2, undecodable=1)] * 3, touched(7))
        await until_told(dimension, 1)
        feed = dimension.refresh_statistics().feed

    assert feed is not None
    assert feed.unused_messages == {UnusedMessage.IGNORED: 6, UnusedMessage.UNDECODABLE: 3}


async def test_failed_search_for_splits_is_told() -> None:
    """Whoever asks why nothing is believed hears it, until the search goes well."""
    source = changelog()
    source.fail_next("discover", BackendError(ErrorCode.FORBIDDEN, "it may not be read"))
    async with running(customers(), sources=followed(source)) as dimension:
        await until(lambda: _last_error(dimension) == "it may not be read")
        await until_feed_is(dimension, FeedState.LIVE)

        assert _last_error(dimension) is None


async def test_failed_reading_is_told() -> None:
    """The reason stands where people look first, until the feed lives again."""
    source = changelog()
    source.fail_next("read", LOST)
    async with running(customers(), sources=followed(source)) as dimension:
        await until(lambda: _last_error(dimension) == str(LOST))
        await until_feed_is(dimension, FeedState.LIVE)

        assert _last_error(dimension) is None


async def test_silence_lets_nothing_be_believed() -> None:
    """Rows of a source that was not heard for too long are asked for; they come back with it."""
    source, clock = changelog(), Clock()
    async with running(customers(), sources=followed(source), clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)

        await fall_silent(dimension, source, clock)
        silent = await lookup(dimension, 7)
        source.silent_s = 0.0
        await until_feed_is(dimension, FeedState.LIVE)

        assert (silent, await lookup(dimension, 7)) == ({0: "fetched Ada"}, {0: "hit Ada"})


async def test_old_word_of_the_source_is_silence() -> None:
    """A connector that stopped leaves its topic as it is, and brokers that answer."""
    source = changelog()
    source.tell("planes-0", SplitPiece("", 0, watermark_ms=1_000))
    chosen = replace(settings(), feed=STALENESS)

    async with running(customers(), chosen, sources=followed(source)) as dimension:
        await until_feed_is(dimension, FeedState.SILENT)
        feed = dimension.refresh_statistics().feed

    assert feed is not None
    assert (feed.watermark_ms, [split.split_id for split in feed.splits]) == (1_000, ["planes-0"])


async def test_defect_costs_freshness_only() -> None:
    """Whatever is raised where nothing should be, lookups go on and all is followed anew."""
    source, store = changelog(), customers()
    with capture_logs() as logs:
        async with running(store, sources=followed(source)) as dimension:
            await until_feed_is(dimension, FeedState.LIVE)
            source.tell("planes-0", SplitPiece("", 0, changes=[None]))  # type: ignore[list-item]
            await until_feed_is(dimension, FeedState.STARTING)

            assert await lookup(dimension, 7) == {0: "fetched Ada"}

    assert "feed.failed" in [entry["event"] for entry in logs]


def _last_error(dimension: Dimension) -> str | None:
    feed = dimension.refresh_statistics().feed
    assert feed is not None
    return feed.last_error


async def test_broken_reader_is_not_believed_meanwhile() -> None:
    """What is told while nobody reads is not known: no row is served until it is made up for."""
    source = changelog()
    async with running(customers(), sources=followed(source)) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)

        source.hold("open")
        source.fail_next("read", LOST)
        await until_feed_is(dimension, FeedState.STARTING)
        meanwhile = await lookup(dimension, 7)
        source.release("open")
        await until_feed_is(dimension, FeedState.LIVE)

        assert (meanwhile, await lookup(dimension, 7)) == ({0: "fetched Ada"}, {0: "hit Ada"})


async def test_time_to_come_does_not_outlast_its_source() -> None:
    """A clock that is an hour ahead must not make a dead source look alive for an hour."""
    source, clock = changelog(), Clock()
    ahead_ms = int((time.time() + 3_600) * 1000)
    source.tell("planes-0", SplitPiece("", 0, watermark_ms=ahead_ms))
    chosen = replace(settings(), feed=STALENESS)

    async with running(customers(), chosen, sources=followed(source), clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        clock.ahead_s += 60.0

        await until_feed_is(dimension, FeedState.SILENT)


async def test_paused_split_is_not_believed() -> None:
    """What it has to tell is not read on purpose: no row is served meanwhile."""
    source = changelog()
    source.add("planes-1")
    source.tell("planes-0", SplitPiece("", 0, watermark_ms=1_000))
    source.tell("planes-1", SplitPiece("", 0, watermark_ms=900_000))
    chosen = replace(settings(), feed=FeedSettings(max_drift_s=1.0))

    def feed() -> FeedStatistics:
        statistics = dimension.refresh_statistics().feed
        assert statistics is not None
        return statistics

    async with running(customers(), chosen, sources=followed(source)) as dimension:
        await until(lambda: [each.is_paused for each in feed().splits] == [False, True])
        await until_feed_is(dimension, FeedState.STARTING)

        assert await lookup(dimension, 7) == {0: "fetched Ada"}


async def test_reason_of_a_flush_is_logged() -> None:
    """Whoever wonders why all rows are read anew finds it there."""
    source = changelog()
    with capture_logs() as logs:
        async with running(customers(), sources=followed(source)) as dimension:
            await until_feed_is(dimension, FeedState.LIVE)
            source.tell("planes-0", SplitPiece("", 0, changes=[TableChange("truncated", 700)]))
            await until(lambda: any(entry["event"] == "feed.flushed" for entry in logs))

    assert [entry["reason"] for entry in logs if entry["event"] == "feed.flushed"] == ["truncated"]
