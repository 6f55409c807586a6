"""Backends that hang, fail over or are away: the border of connectors, probes, recent errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import numpy as np
import pytest
from structlog.testing import capture_logs

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import ServerEpoch, ServerIdentity
from lookup_core.protection.circuit_breaker import BreakerState
from service.engine.backend_call import backend_call
from service.engine.dimension import Dimension
from service.engine.recent_errors import EPISODE_S, MOST, RecentError, RecentErrors
from service.engine.split_reading import opened_port
from tests.hand_clock import HandClock
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.connectors.fake_source import FakeSource
from tests.service.engine.running import (
    ONE_BY_ONE,
    SCHEMA,
    customers,
    lookup,
    running,
    start,
)

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")


# One call to a connector


async def failing(error: BaseException) -> NoReturn:
    """A call that raises."""
    raise error


async def never() -> NoReturn:
    """A call that ignores its own timeout."""
    await asyncio.Future()
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), ErrorCode.TIMEOUT),
        (ZeroDivisionError(), ErrorCode.INTERNAL),
        (asyncio.CancelledError(), ErrorCode.INTERNAL),
    ],
)
async def test_foreign_error_is_mapped(error: BaseException, code: ErrorCode) -> None:
    """Any other exception of a connector becomes a BackendError with its cause."""
    with pytest.raises(BackendError) as caught:
        await backend_call(failing(error), timeout_s=1.0)

    assert (caught.value.code, caught.value.__cause__) == (code, error)


async def test_overrun_is_a_timeout() -> None:
    """A call that exceeds its timeout is cut off one second later, and not before."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    with pytest.raises(BackendError) as caught:
        await backend_call(never(), timeout_s=5.0)

    assert caught.value.code is ErrorCode.TIMEOUT
    assert loop.time() - began_at >= 6.0


async def test_fault_in_closing_is_logged() -> None:
    """A fault in closing is logged and does not fail the block."""
    source = FakeSource(is_bounded=True)
    source.fail_next("close", DOWN)

    with capture_logs() as logs:
        async with opened_port(source.reader(SCHEMA)):
            assert source.open_readers == 1

    assert [(line["event"], line["detail"]) for line in logs] == [("source.unclosed", DOWN.detail)]


# Failover


def server(epoch: int, *, system: str = "7") -> ServerEpoch:
    """A primary of this epoch; its number is its timeline, too."""
    return ServerEpoch(epoch, ServerIdentity(system, 16384, is_standby=False, timeline=epoch))


async def test_failover_empties_the_cache() -> None:
    """When another server answers, all cached rows are dropped, and the log names both."""
    backend = customers()
    backend.server = server(1)
    async with running(backend) as dimension:
        await lookup(dimension, 7)
        backend.server = server(2)
        with capture_logs() as logs:
            await lookup(dimension, 8)

        assert await lookup(dimension, 7) == {0: "fetched Ada"}
    assert [(line["before"], line["now"], line["forgotten"]) for line in logs] == [
        ("primary 7 1 16384 ?", "primary 7 2 16384 ?", 1)
    ]


async def test_description_finds_another_server() -> None:
    """A description by another server drops all cached rows, without a fetch."""
    backend = customers()
    backend.server = server(1)
    async with running(backend) as dimension:
        await lookup(dimension, 7)
        backend.server = server(2)
        backend.fail_next(2, BackendError(ErrorCode.SCHEMA_CHANGED, "refused"))
        await lookup(dimension, 8)

        assert await lookup(dimension, 7) == {0: "fetched Ada"}


async def test_late_reply_is_not_cached() -> None:
    """A reply of a former server answers its caller, is not cached, and is no switch back."""
    backend = customers()
    backend.server = server(2)
    async with running(backend) as dimension:
        await lookup(dimension, 7)
        backend.server = server(1)
        late = [await lookup(dimension, 8) for _ in range(2)]
        backend.server = server(2)

        assert [await lookup(dimension, 7, 8) for _ in range(2)] == [
            {0: "hit Ada", 1: "fetched Bert"},
            {0: "hit Ada", 1: "hit Bert"},
        ]
    assert late == [{0: "fetched Bert"}] * 2


# Probes


@asynccontextmanager
async def open_breaker(
    backend: FakeBackend, error: BaseException
) -> AsyncIterator[tuple[Dimension, "asyncio.Task[dict[int, str]]"]]:
    """A dimension whose breaker is open, and a caller that waits; probes fail with `error`."""
    backend.fail_next(3, DOWN)
    backend.probe_error = error  # type: ignore[assignment]  # also a defect
    async with running(backend, ONE_BY_ONE) as dimension:
        for key in (1, 2):
            await lookup(dimension, key)
        caller = start(dimension, 7)
        await backend.wait_for_probes(2)
        yield dimension, caller


@pytest.mark.parametrize("error", [DOWN, ZeroDivisionError()])
async def test_probe_closes_the_breaker(error: Exception) -> None:
    """While the breaker is open only probes go out; after one that succeeds, lookups do."""
    backend = customers()
    async with open_breaker(backend, error) as (dimension, caller):
        assert (len(backend.batches), caller.done()) == (3, False)
        backend.probe_error = None

        assert await caller == {0: "fetched Ada"}
        assert dimension.statistics().breaker_state is BreakerState.CLOSED


# Recent errors


def failed(code: ErrorCode, keys: int) -> Answer:
    """The answer to this many keys that failed."""
    return rowless_answer(np.arange(keys, dtype=np.int32), Outcome.ERROR, error=code)


def test_equal_errors_are_one_entry() -> None:
    """Queries and keys with one code are one entry; keys alone have the code's explanation."""
    clock = HandClock(100.0)
    errors = RecentErrors(clock)
    errors.on_answers([failed(DOWN.code, 3), failed(ErrorCode.TYPE, 1)])
    clock.now_s += 1
    errors.on_query_failed(DOWN)
    errors.on_answers([failed(DOWN.code, 4)])
    errors.on_answers([rowless_answer(np.arange(3, dtype=np.int32), Outcome.MISSING)])

    assert {each.code: each for each in errors.latest()} == {
        DOWN.code: RecentError(DOWN.code, DOWN.detail, 100.0, 101.0, queries=1, keys=7),
        ErrorCode.TYPE: RecentError(
            ErrorCode.TYPE, ErrorCode.TYPE.explanation, 100.0, 100.0, queries=0, keys=1
        ),
    }


def test_entry_ends_after_a_minute_without_error() -> None:
    """An error that recurs within a minute extends its entry; the latest 20 entries are kept."""
    clock = HandClock(100.0)
    errors = RecentErrors(clock)
    for pause_s in (EPISODE_S, EPISODE_S, EPISODE_S + 1):
        errors.on_query_failed(DOWN)
        clock.now_s += pause_s
    errors.on_query_failed(DOWN)
    extended = [(each.first_at, each.queries) for each in errors.latest()]
    for _ in range(MOST - 1):
        clock.now_s += EPISODE_S + 1
        errors.on_query_failed(DOWN)

    assert extended == [(281.0, 1), (100.0, 3)]
    assert (len(errors.latest()), errors.latest()[-1].first_at) == (MOST, 281.0)
