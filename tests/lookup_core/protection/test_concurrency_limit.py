"""How many queries a store gets at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.protection.backend_guard import ConcurrencyLimit


def lowered() -> ConcurrencyLimit:
    """A limit of 10 that was lowered to 7 at 1 s."""
    limit = ConcurrencyLimit(10)
    limit.on_overload(0.5, 1.0)
    return limit


def rounds(limit: ConcurrencyLimit, count: int) -> int:
    """The limit after so many rounds of quick queries that use it up."""
    for _ in range(count):
        for _ in range(limit.limit):
            limit.on_success(2.0, 2.001, limit.limit)
    return limit.limit


def test_begins_at_what_is_allowed() -> None:
    """Somebody has chosen the number for this store."""
    assert ConcurrencyLimit(8).limit == 8


def test_overload_lowers_it() -> None:
    """A timeout takes three tenths away, down to one query at a time."""
    limit = ConcurrencyLimit(10)
    seen = []
    for now in range(8):
        limit.on_overload(float(now), now + 0.5)
        seen.append(limit.limit)

    assert seen == [7, 4, 3, 2, 1, 1, 1, 1]


def test_one_round_lowers_it_once() -> None:
    """What was sent before the last decrease tells of the time before it."""
    limit = lowered()
    for _ in range(9):
        limit.on_overload(0.9, 1.1)

    assert limit.limit == 7


def test_earlier_queries_do_not_raise_it() -> None:
    """Rows that were on their way before the last decrease do not take it back."""
    limit = lowered()
    for _ in range(9):
        limit.on_success(0.9, 1.1, 10)

    assert limit.limit == 7


def test_earlier_queries_teach_nothing() -> None:
    """How long queries took before the last decrease is not what is usual after it."""
    limit = lowered()
    limit.on_success(0.0, 10.0, 1)
    limit.on_success(2.0, 2.05, 1)

    limit.on_success(3.0, 3.2, 7)

    assert limit.limit == 4


def test_success_raises_it_slowly() -> None:
    """A round of queries that uses the limit up raises it by about one, at most to the bound."""
    limit = lowered()

    assert rounds(limit, 1) in {7, 8}
    assert rounds(limit, 10) == 10


def test_unused_limit_stays() -> None:
    """Queries that do not use it up say nothing about more of them."""
    limit = lowered()
    for _ in range(100):
        limit.on_success(2.0, 2.001, 3)

    assert limit.limit == 7


@pytest.mark.parametrize(("seconds", "expected"), [(0.14, 10), (0.3, 7)])
def test_queue_at_the_store_lowers_it(seconds: float, expected: int) -> None:
    """Together queries take far longer than alone: the store has a queue."""
    limit = ConcurrencyLimit(10)
    limit.on_success(0.0, 0.05, 1)

    limit.on_success(1.0, 1.0 + seconds, 10)

    assert limit.limit == expected


def test_fast_store_is_never_throttled_by_noise() -> None:
    """A hundred times the usual latency is nothing as long as it is short."""
    limit = ConcurrencyLimit(10)
    limit.on_success(0.0, 0.001, 1)

    limit.on_success(1.0, 1.099, 10)

    assert limit.limit == 10


def test_slow_query_alone_is_no_overload() -> None:
    """One query that takes long while hardly any other runs does not lower the limit."""
    limit = ConcurrencyLimit(10)
    limit.on_success(0.0, 0.05, 1)

    limit.on_success(1.0, 3.0, 5)

    assert limit.limit == 10


def test_slow_queries_are_the_usual_ones() -> None:
    """Where a query takes long also when it runs alone, that is no overload."""
    limit = ConcurrencyLimit(10)
    for at in range(50):
        limit.on_success(float(at), at + 0.5, 1)

    limit.on_success(100.0, 100.9, 10)

    assert limit.limit == 10


@given(st.integers(1, 50), st.lists(st.integers(1, 60), min_size=1))
def test_quick_queries_never_lower_it(most: int, beside: list[int]) -> None:
    """Below a tenth of a second nothing is slow, however many queries run side by side."""
    limit, seen = ConcurrencyLimit(most), [0]
    limit.on_overload(0.0, 0.0)
    for in_flight in beside:
        limit.on_success(1.0, 1.099, in_flight)
        seen.append(limit.limit)

    assert seen == sorted(seen)


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.booleans(), st.floats(0, 5), st.integers(1, 60))),
)
def test_limit_stays_in_its_bounds(most: int, samples: list[tuple[bool, float, int]]) -> None:
    """Whatever happens, at least one query may go and at most as many as are allowed."""
    limit = ConcurrencyLimit(most)
    for now, (is_success, seconds, in_flight) in enumerate(samples):
        if is_success:
            limit.on_success(float(now), now + seconds, in_flight)
        else:
            limit.on_overload(float(now), now + seconds)
        limit.check_invariants()
