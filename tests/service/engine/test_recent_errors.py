"""Errors of the last while are remembered by kind, and never more than a few."""

import numpy as np
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import BackendError, ErrorCode
from service.engine.recent_errors import EPISODE_S, MOST, RecentError, RecentErrors
from tests.hand_clock import HandClock

GONE = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: nothing listens there")


@pytest.fixture
def clock() -> HandClock:
    """Shows 100 s."""
    return HandClock(100.0)


@pytest.fixture
def errors(clock: HandClock) -> RecentErrors:
    """Nothing has failed yet."""
    return RecentErrors(clock)


def failed(code: ErrorCode, keys: int) -> Answer:
    """The answer to so many keys that failed."""
    return rowless_answer(np.arange(keys, dtype=np.int32), Outcome.ERROR, error=code)


def test_queries_and_keys_are_counted_apart(errors: RecentErrors, clock: HandClock) -> None:
    """What fails alike is one entry, which says what the store said."""
    errors.on_answers([failed(GONE.code, 3)])
    clock.now_s += 1
    errors.on_query_failed(GONE)
    errors.on_answers([failed(GONE.code, 4)])

    expected = RecentError(GONE.code, GONE.detail, 100.0, 101.0, queries=1, keys=7)
    assert errors.latest() == [expected]


def test_good_answers_are_no_errors(errors: RecentErrors) -> None:
    """A key without a row has not failed."""
    errors.on_answers([rowless_answer(np.arange(3, dtype=np.int32), Outcome.MISSING)])

    assert errors.latest() == []


def test_keys_alone_have_a_meaning(errors: RecentErrors) -> None:
    """An error that no store told is explained in general words, without the key."""
    errors.on_answers([failed(ErrorCode.TIMEOUT, 2), failed(ErrorCode.TYPE, 1)])

    assert {error.code: (error.keys, error.detail) for error in errors.latest()} == {
        ErrorCode.TIMEOUT: (2, ErrorCode.TIMEOUT.meaning),
        ErrorCode.TYPE: (1, ErrorCode.TYPE.meaning),
    }


def test_same_error_later_is_another(errors: RecentErrors, clock: HandClock) -> None:
    """After a minute without it an error is a new entry, and the latest comes first."""
    errors.on_query_failed(GONE)
    clock.now_s += EPISODE_S + 1
    errors.on_query_failed(GONE)

    assert [error.first_at for error in errors.latest()] == [101.0 + EPISODE_S, 100.0]


def test_lasting_error_stays_one(errors: RecentErrors, clock: HandClock) -> None:
    """As long as it comes again within a minute, it is the same entry."""
    for _ in range(5):
        errors.on_query_failed(GONE)
        clock.now_s += EPISODE_S

    (error,) = errors.latest()
    assert (error.first_at, error.queries) == (100.0, 5)


def test_few_are_remembered(errors: RecentErrors, clock: HandClock) -> None:
    """The oldest ones make room."""
    for _ in range(MOST + 5):
        errors.on_query_failed(GONE)
        clock.now_s += EPISODE_S + 1

    assert len(errors.latest()) == MOST
    assert errors.latest()[-1].first_at == 100.0 + 5 * (EPISODE_S + 1)
