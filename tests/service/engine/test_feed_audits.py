"""Audits of a running dimension: what is read, what a found contradiction does, and when."""

from dataclasses import replace

import pyarrow as pa
from structlog.testing import capture_logs

from lookup_core.answer import Outcome
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.settings import (
    AuditSettings,
    CacheMode,
    CacheSettings,
    FeedSettings,
)
from lookup_core.statistics import AuditResult, InvalidationOrigin
from service.engine.dimension import Dimension
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.refreshing import (
    PARTITION,
    SEES_ALL,
    Clock,
    changelog,
    feed_of,
    followed,
    load_of,
    rows,
    table,
    touched,
    until_changed,
    until_feed_is,
    until_whole,
)
from tests.service.engine.running import ROWS, SCHEMA, customers, lookup, running, settings, until

AUDITED = replace(settings(), feed=FeedSettings(audit=AuditSettings(every_s=0.05, grace_s=0.5)))
FULL = replace(AUDITED, cache=CacheSettings(mode=CacheMode.FULL))
HIT = {0: "hit Ada"}
RENAMED = ROWS.set_column(1, "name", pa.array(["Eve", "Eva", "new", "Bert"]))


def of_customers() -> FakeBackend:
    """The customers, read after all changes."""
    backend = customers()
    backend.snapshot = SEES_ALL
    return backend


async def audited_keys(dimension: Dimension, result: AuditResult, count: int) -> None:
    """Wait until so many comparisons had this result."""
    await until(lambda: feed_of(dimension).audited_keys[result] >= count)


async def test_incomplete_feed_bypasses_the_cache() -> None:
    """A row that changes without event ends the trust in the feed; lookups are queries."""
    backend = of_customers()
    with capture_logs() as logs:
        async with running(backend, AUDITED, sources=followed(changelog())) as dimension:
            await until_feed_is(dimension, FeedState.LIVE)
            await lookup(dimension, 7)
            backend.replace(RENAMED, SCHEMA)
            await until_feed_is(dimension, FeedState.INCOMPLETE)

            assert [await lookup(dimension, 7) for _ in range(2)] == [{0: "fetched new"}] * 2
            statistics = dimension.statistics()

    assert statistics.invalidations[InvalidationOrigin.AUDIT] == 1
    verdicts = [line["verdict"] for line in logs if line["event"] == "audit.verdict"]
    assert verdicts == ["a change of a row was not reported"]


async def test_incomplete_feed_empties_a_whole_table() -> None:
    """In full mode, too, all lookups are queries until the feed is trusted and a load ends."""
    backend, whole = of_customers(), table(rows((7, "Ada"), (8, "Bert")))
    sources = followed(changelog(), whole)
    async with running(backend, FULL, sources=sources) as dimension:
        await until_whole(dimension)
        backend.replace(RENAMED, SCHEMA)
        await until_feed_is(dimension, FeedState.INCOMPLETE)

        assert await lookup(dimension, 7) == {0: "fetched new"}
        assert not load_of(dimension).is_whole


async def test_other_schema_ends_no_distrust() -> None:
    """A table that is described again keeps an incomplete feed: it omits changes as before."""
    backend = of_customers()
    async with running(backend, AUDITED, sources=followed(changelog())) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)
        backend.replace(RENAMED, SCHEMA)
        await until_feed_is(dimension, FeedState.INCOMPLETE)
        wider = replace(SCHEMA, columns=SCHEMA.columns.append(pa.field("extra", pa.int32())))
        backend.replace(RENAMED.append_column("extra", pa.nulls(4, pa.int32())), wider)
        await dimension.described_again(5.0)
        await until(lambda: dimension.schema.known().columns.names == wider.columns.names)
        await until_feed_is(dimension, FeedState.INCOMPLETE)

        assert [await lookup(dimension, 7) for _ in range(2)] == [{0: "fetched new"}] * 2


async def test_event_of_the_change_keeps_trust() -> None:
    """A row that an event reports soon after it was read is no contradiction."""
    source, backend, clock = changelog(), of_customers(), Clock()
    chosen = replace(AUDITED, feed=FeedSettings(audit=AuditSettings(every_s=0.05, grace_s=3_600.0)))
    async with running(backend, chosen, sources=followed(source), clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)
        backend.replace(RENAMED, SCHEMA)
        await audited_keys(dimension, AuditResult.SUSPECT, 1)
        source.append(PARTITION, touched(7))
        await until_changed(dimension, 1)

        assert await lookup(dimension, 7) == {0: "fetched new"}
        assert await lookup(dimension, 7) == {0: "hit new"}
        assert feed_of(dimension).audited_keys[AuditResult.CONTRADICTED] == 0


async def test_failed_audit_changes_nothing() -> None:
    """A read of an audit that fails is counted as such, says nothing of rows, and is no lookup."""
    backend = of_customers()
    async with running(backend, AUDITED, sources=followed(changelog())) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await lookup(dimension, 7)
        fetches = len(backend.batches)
        backend.fail_next(3, BackendError(ErrorCode.CONNECTION_LOST, "the connection broke"))
        await backend.wait_for_fetches(fetches + 4)

        assert await lookup(dimension, 7) == HIT
        assert feed_of(dimension).audited_keys[AuditResult.FAILED] == 3
        assert dimension.statistics().outcomes[Outcome.ERROR] == 0
