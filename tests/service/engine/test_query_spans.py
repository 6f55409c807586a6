"""Each query is one span, linked to all whom it serves, and to nobody else."""

import asyncio

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import CacheSettings, DimensionSettings, RetrySettings
from service.engine.dimension import Dimension
from service.engine.fake_tracer import FakeCallerSpan, FakeTracer
from service.engine.observer import QueryStatus
from service.engine.tracer import TracedQuery
from tests.service.engine.running import PATIENCE_S, customers, running, settings, told, typed

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")
RETRIED = settings(retry=RetrySettings(max_retries=1, initial_s=0.001))


def asker(tracer: FakeTracer) -> FakeCallerSpan:
    """Somebody who is followed."""
    span = tracer.begin_lookup("customers", keys=1, parent=None)
    assert span is not None
    return span


async def ask(dimension: Dimension, span: FakeCallerSpan | None, *keys: int) -> dict[int, str]:
    """All answers for somebody, followed or not."""
    answers = await dimension.lookup(typed(*keys), columns=None, timeout_s=None, asked_by=span)
    return told(answers)


async def test_batch_links_all_whom_it_serves() -> None:
    """Keys of two askers in one query make one span with two links."""
    store, tracer = customers(), FakeTracer()
    async with running(store, tracer=tracer) as dimension:
        both = asker(tracer), asker(tracer)
        async with asyncio.TaskGroup() as asking:
            for key, span in zip((7, 8), both, strict=True):
                asking.create_task(ask(dimension, span, key))

    (query,) = tracer.queries
    assert (query.what, query.askers) == (TracedQuery("customers", 2), list(both))
    assert query.end_told == (QueryStatus.OK, None)


async def test_who_joins_a_flight_is_linked() -> None:
    """A key that is being fetched is not fetched again, and its query serves both."""
    store, tracer = customers(), FakeTracer()
    first, second = asker(tracer), asker(tracer)
    async with running(store, tracer=tracer) as dimension, asyncio.timeout(PATIENCE_S):
        store.hold()
        asking = [asyncio.ensure_future(ask(dimension, first, 7))]
        await store.wait_for_fetches(1)
        asking.append(asyncio.ensure_future(ask(dimension, second, 7)))
        await asyncio.sleep(0)
        store.release()
        assert await asyncio.gather(*asking) == [{0: "fetched Ada"}] * 2

    assert [query.askers for query in tracer.queries] == [[first, second]]


async def test_unfollowed_askers_are_no_links() -> None:
    """Who is not followed has no span to link, and its query is told all the same."""
    store, tracer = customers(), FakeTracer()
    async with running(store, tracer=tracer) as dimension:
        await ask(dimension, None, 7)

    assert [query.askers for query in tracer.queries] == [[]]


async def test_parts_of_one_asker_are_one_link() -> None:
    """However many lookups a request is parted into, it is linked once."""
    store, tracer = customers(), FakeTracer()
    async with running(store, tracer=tracer) as dimension:
        span = asker(tracer)
        await ask(dimension, span, *range(100, 200))

    assert {len(query.askers) for query in tracer.queries} == {1}


async def test_every_try_is_a_span() -> None:
    """A query that is tried again is a second span, which says so; the first has the code."""
    store, tracer = customers(), FakeTracer()
    store.fail_next(1, DOWN)
    async with running(store, RETRIED, tracer=tracer) as dimension:
        await ask(dimension, asker(tracer), 7)

    assert [(query.what.tries, query.end_told) for query in tracer.queries] == [
        (1, (QueryStatus.ERROR, ErrorCode.BACKEND_UNAVAILABLE)),
        (2, (QueryStatus.OK, None)),
    ]


async def test_deserted_query_is_cancelled() -> None:
    """A query that nobody waits for any more ends as such."""
    store, tracer = customers(), FakeTracer()
    async with running(store, tracer=tracer) as dimension, asyncio.timeout(PATIENCE_S):
        store.hold()
        asking = asyncio.ensure_future(ask(dimension, asker(tracer), 7))
        await store.wait_for_fetches(1)
        asking.cancel()
        while tracer.queries[0].end_told is None:  # noqa: ASYNC110  the port must not wait
            await asyncio.sleep(0)

    assert tracer.queries[0].end_told == (QueryStatus.CANCELLED, None)


async def test_rereading_for_the_cache_has_no_links() -> None:
    """A stale row is answered at once; what reads it anew serves nobody who waits."""
    now, tracer = [100.0], FakeTracer()
    cache = CacheSettings(ttl_s=1.0, stale_while_revalidate_s=60.0, ttl_jitter=0.0)
    chosen = DimensionSettings("customers", cache=cache, timeout_s=PATIENCE_S)
    async with running(customers(), chosen, tracer=tracer, clock=lambda: now[0]) as dimension:
        await ask(dimension, asker(tracer), 7)
        now[0] += 2.0
        assert await ask(dimension, asker(tracer), 7) == {0: "stale Ada"}
        while len(tracer.queries) < 2:  # noqa: ASYNC110  as above
            await asyncio.sleep(0)

    assert [len(query.askers) for query in tracer.queries] == [1, 0]
