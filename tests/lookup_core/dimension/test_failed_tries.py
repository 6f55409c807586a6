"""What becomes of a query that failed."""

from dataclasses import dataclass, field

import pytest

from lookup_core.dimension.flight_table import FlightTable
from lookup_core.dimension.query_table import Bisection, Query, QueryTable
from lookup_core.dimension.retries import NEVER, FailedQueryRetries, RetryPolicy
from lookup_core.errors import ErrorCode
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import RetrySettings
from tests.lookup_core.dimension.key_runs import run_of


@dataclass(slots=True)
class Tries:
    """One try after a failure, 1 s later; somebody waits until 100 s."""

    guard: BackendGuard = field(default_factory=lambda: BackendGuard(8))

    def retry_at(self, query: Query, code: ErrorCode, *, now: float = 5.0) -> float:
        """When the query is tried again, after the failure of a try that was sent 1 s before."""
        policy = RetryPolicy(RetrySettings(max_retries=1, initial_s=1.0))
        query.sent_at = now - 1
        rules = FailedQueryRetries(policy, self.guard)
        return rules.retry_at(query, code, latest_s=100.0, now=now, jitter=1.0)

    def open_breaker(self) -> None:
        """The store is known to be away."""
        for _ in range(3):
            self.guard.on_failure(ErrorCode.BACKEND_UNAVAILABLE, sent_at=0.0, now=0.0)


def query_of(*keys: int) -> Query:
    """A query at the backend."""
    flights = FlightTable()
    return QueryTable(flights).start([run_of(flights, *keys)], 0.0)


def test_failure_waits_for_its_next_try() -> None:
    """A passing trouble is tried again by the rules, then no more."""
    tries, query = Tries(), query_of(1)

    assert tries.retry_at(query, ErrorCode.BACKEND_UNAVAILABLE) == 6.0
    assert tries.retry_at(query, ErrorCode.BACKEND_UNAVAILABLE) == NEVER


@pytest.mark.parametrize("code", [ErrorCode.FORBIDDEN, ErrorCode.INTERNAL])
def test_lasting_trouble_is_final(code: ErrorCode) -> None:
    """What time does not heal is not tried again."""
    assert Tries().retry_at(query_of(1), code) == NEVER


def test_broken_connection_is_replaced_at_once() -> None:
    """The first loss of a connection costs neither time nor a try; the next one is a failure."""
    tries, query = Tries(), query_of(1)

    assert tries.retry_at(query, ErrorCode.CONNECTION_LOST) == 5.0
    assert tries.retry_at(query, ErrorCode.CONNECTION_LOST) == 6.0


def test_nobody_waits_so_long() -> None:
    """A try for which nobody has the time is none."""
    assert Tries().retry_at(query_of(1), ErrorCode.TIMEOUT, now=99.5) == NEVER


def test_every_try_costs_the_budget() -> None:
    """When the store has had ten more tries than its share, failures are final."""
    tries = Tries()
    lost = [tries.retry_at(query_of(key), ErrorCode.CONNECTION_LOST) for key in range(2)]
    tries.guard.on_success(0.0, 5.0, in_flight=1)
    spent = [tries.guard.take_retry(5.0) for _ in range(9)]

    assert lost == [5.0, 5.0]
    assert spent == [True] * 8 + [False]
    assert tries.retry_at(query_of(9), ErrorCode.CONNECTION_LOST) == NEVER


def test_queries_are_held_while_the_store_is_away() -> None:
    """A query without tries left waits with the others; what the store refuses does not."""
    tries, query = Tries(), query_of(1)
    query.failures = 9
    tries.open_breaker()

    assert tries.retry_at(query, ErrorCode.BACKEND_UNAVAILABLE) == 5.0
    assert tries.retry_at(query, ErrorCode.FORBIDDEN) == NEVER


def test_refused_batch_is_parted_within_a_bound() -> None:
    """Parts are asked at once, 64 queries in all or as many as there are keys."""
    tries, query = Tries(), query_of(1, 2)
    assert tries.retry_at(query, ErrorCode.KEY_REJECTED) == 5.0
    assert query.bisection == Bisection(62)

    query.bisection = Bisection(1)

    assert tries.retry_at(query, ErrorCode.KEY_REJECTED) == NEVER


def test_single_refused_key_is_found() -> None:
    """A query of one key that is refused has nothing to be parted."""
    assert Tries().retry_at(query_of(1), ErrorCode.KEY_REJECTED) == NEVER


def test_only_batches_that_are_too_much_are_parted() -> None:
    """A refused value and a query that took too long go on in halves."""
    parted = {code for code in ErrorCode if FailedQueryRetries.is_parted(code)}

    assert parted == {ErrorCode.KEY_REJECTED, ErrorCode.TIMEOUT}
