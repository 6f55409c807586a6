"""Two dimensions over fake backends that share the connections of one database."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.protection.connection_shares import ConnectionShares
from lookup_core.settings import BatchSettings, DimensionSettings
from service.engine.dimension import Dimension
from service.engine.shared_connections import ConnectionShare
from tests.hand_clock import HandClock
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.running import (
    PATIENCE_S,
    Caller,
    customers,
    is_fit,
    lookup,
    queried,
    running,
    settings,
    start,
    until,
)

ONE_KEY_EACH = settings(batch=BatchSettings(max_keys=1, max_in_flight=8))
DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: no right to read it")
CHANGED = BackendError(ErrorCode.SCHEMA_CHANGED, "customers: not what it was")


@dataclass(frozen=True, slots=True)
class Member:
    """A dimension and its backend."""

    dimension: Dimension
    backend: FakeBackend

    def in_flight(self) -> int:
        """Queries at the backend."""
        return self.dimension.statistics().queries_in_flight

    def queued(self) -> int:
        """Keys that wait for a query."""
        return self.dimension.statistics().queued_keys


@asynccontextmanager
async def sharing(
    size: int,
    chosen: DimensionSettings | None = None,
    *,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[tuple[Member, Member]]:
    """A busy dimension, whose queries are held, and another one; both are described."""
    clock = clock or asyncio.get_running_loop().time
    shares = ConnectionShares(size, ["busy", "other"])
    for_busy, for_other = (ConnectionShare(shares, each, clock=clock) for each in ("busy", "other"))
    backends = customers(), customers()
    async with (
        running(backends[0], chosen, connections=for_busy, clock=clock) as busy,
        running(backends[1], connections=for_other, clock=clock) as other,
    ):
        backends[0].hold()
        yield Member(busy, backends[0]), Member(other, backends[1])
        backends[0].release()
        shares.check_invariants()


async def test_keys_gather_without_a_connection() -> None:
    """While all connections are in use, the keys of several lookups are gathered for one query."""
    async with sharing(1) as (busy, other):
        held = start(busy.dimension, 7)
        await busy.backend.wait_for_fetches(1)
        callers = [Caller(other.dimension), Caller(other.dimension)]
        for caller, keys in zip(callers, ([7, 9], [8, 9]), strict=True):
            caller.submit(*keys)
            await asyncio.sleep(0)
        assert (other.queued(), other.in_flight()) == (3, 0)

        busy.backend.release()
        assert await held == {0: "fetched Ada"}
        assert await callers[0].words() == {0: "fetched Ada", 1: "missing"}
        assert await callers[1].words() == {0: "fetched Bert", 1: "missing"}

    assert queried(other.backend) == [[7, 9, 8]]


async def test_hanging_dimension_leaves_one_connection() -> None:
    """A dimension whose queries hang does not stop the lookups of the others."""
    async with sharing(4, ONE_KEY_EACH) as (busy, other):
        hanging = [start(busy.dimension, key) for key in range(6)]
        await busy.backend.wait_for_fetches(3)
        answers = [await lookup(other.dimension, key) for key in (7, 8, 9)]
        assert (busy.in_flight(), busy.queued()) == (3, 3)
        busy.backend.release()
        await asyncio.gather(*hanging)

    assert answers == [{0: "fetched Ada"}, {0: "fetched Bert"}, {0: "missing"}]
    assert busy.dimension.statistics().concurrency_limit == 3  # max_in_flight is 8


async def test_wait_is_no_query_time() -> None:
    """The time of a query begins with its connection; the wait for it is counted separately."""
    clock = HandClock()
    async with sharing(1, clock=clock) as (busy, other):
        held = start(busy.dimension, 7)
        await busy.backend.wait_for_fetches(1)
        waiting = Caller(other.dimension)
        waiting.submit(8)
        await asyncio.sleep(0)
        clock.now_s += 5.0
        busy.backend.release()
        await held
        assert await waiting.words() == {0: "fetched Bert"}

        assert [each.ages_ms.tolist() for each in waiting.answers] == [[0]]
        assert other.dimension.statistics().connection_wait_s == 5.0
        assert busy.dimension.statistics().connection_wait_s == 0.0


async def test_unwanted_query_gives_its_turn_away() -> None:
    """A dimension whose lookups have ended takes no connection, and sends no query."""
    async with sharing(1) as (busy, other):
        held = start(busy.dimension, 7)
        await busy.backend.wait_for_fetches(1)
        leaving = start(other.dimension, 7)
        await until(lambda: other.queued() == 1)
        leaving.cancel()
        await asyncio.wait([leaving])
        busy.backend.release()
        await held
        assert await lookup(busy.dimension, 8) == {0: "fetched Bert"}

    assert queried(other.backend) == []


async def test_cancelled_query_returns_its_connection() -> None:
    """Once no lookup waits for a query, others get its connection."""
    async with sharing(1) as (busy, other):
        held = start(busy.dimension, 7)
        await busy.backend.wait_for_fetches(1)
        waiting = start(other.dimension, 8)
        await until(lambda: other.queued() == 1)
        held.cancel()

        assert await waiting == {0: "fetched Bert"}
        assert busy.backend.cancelled_total == 1


async def test_suspended_dimension_holds_no_connection() -> None:
    """A query that waits for a connection gives its turn away when its table may not be read."""
    async with sharing(1) as (busy, other):
        held = start(busy.dimension, 7)
        await busy.backend.wait_for_fetches(1)
        waiting = start(other.dimension, 8)
        await until(lambda: other.queued() == 1)
        other.backend.describe_error = FORBIDDEN
        describing = asyncio.ensure_future(other.dimension.described_again(PATIENCE_S))
        await asyncio.sleep(0)
        busy.backend.release()  # the description has its connection first, then the query
        assert await waiting == {0: "error forbidden"}
        assert await held == {0: "fetched Ada"}
        assert await lookup(busy.dimension, 8) == {0: "fetched Bert"}

        other.backend.describe_error = None
        await asyncio.wait([describing])
        await until(lambda: is_fit(other.dimension))
        assert await lookup(other.dimension, 8) == {0: "fetched Bert"}


async def test_stopped_dimension_holds_no_connection() -> None:
    """A dimension that stops ends the wait of its queries for a connection."""
    shares, backend = ConnectionShares(1, ["busy", "stopped"]), customers()
    for_busy, for_stopped = (ConnectionShare(shares, each) for each in ("busy", "stopped"))
    async with running(backend, connections=for_busy) as busy:
        async with running(customers(), connections=for_stopped) as stopped:
            backend.hold()
            held = start(busy, 7)
            await backend.wait_for_fetches(1)
            Caller(stopped).submit(8)
            await until(lambda: stopped.statistics().connection_wait_s > 0)
        backend.release()
        assert await held == {0: "fetched Ada"}
        assert await lookup(busy, 8) == {0: "fetched Bert"}


@pytest.mark.parametrize("size", [1, 2])
async def test_probe_waits_for_a_connection(size: int) -> None:
    """A probe begins with its connection: a wait for it is no failure of the backend."""
    async with sharing(size) as (busy, other):
        other.backend.fail_next(3, DOWN)
        for key in (7, 8, 9):
            await lookup(other.dimension, key)
        held = start(busy.dimension, 7)
        await busy.backend.wait_for_fetches(1)
        waiting = start(other.dimension, 8)
        if size == 1:
            await asyncio.sleep(0)
            busy.backend.release()

        assert await waiting == {0: "fetched Bert"}
        assert other.dimension.statistics().breaker_state is BreakerState.CLOSED
        busy.backend.release()
        await held


async def test_description_needs_no_second_connection() -> None:
    """A query that the backend refused for its schema lends its connection to the description."""
    async with sharing(1) as (_, other):
        other.backend.fail_next(1, CHANGED)

        assert await lookup(other.dimension, 7) == {0: "fetched Ada"}
        assert other.backend.descriptions_total == 2


async def test_table_is_described_while_others_query() -> None:
    """The first description of a table gets a connection next to the queries of another one."""
    shares, backend = ConnectionShares(2, ["busy", "late"]), customers()
    for_busy, for_late = (ConnectionShare(shares, each) for each in ("busy", "late"))
    async with running(backend, ONE_KEY_EACH, connections=for_busy) as busy:
        backend.hold()
        hanging = [start(busy, key) for key in (7, 8)]
        await backend.wait_for_fetches(1)
        async with running(customers(), connections=for_late) as late:
            assert await lookup(late, 7) == {0: "fetched Ada"}
        backend.release()
        await asyncio.gather(*hanging)
