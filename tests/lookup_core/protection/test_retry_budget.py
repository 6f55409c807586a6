"""How many further tries a store gets."""

from hypothesis import given
from hypothesis import strategies as st

from lookup_core.protection.backend_guard import RetryBudget


def spent(budget: RetryBudget, now: float = 0.0) -> int:
    """How many retries there are at this time; takes them all."""
    count = 0
    while budget.take(now):
        count += 1
    return count


def test_begins_with_ten() -> None:
    """A first outage is met with some tries."""
    assert spent(RetryBudget()) == 10


def test_first_tries_earn_retries() -> None:
    """Five queries earn one retry: retries are a fifth of the load at most."""
    budget = RetryBudget()
    spent(budget)
    for _ in range(15):
        budget.on_first_try(0.0)

    assert spent(budget) == 3


def test_time_earns_retries() -> None:
    """Who asks rarely has one retry a second."""
    budget = RetryBudget()
    spent(budget)

    assert spent(budget, now=2.5) == 2


def test_little_is_saved_up() -> None:
    """Long quiet does not allow a storm."""
    budget = RetryBudget()
    for _ in range(1000):
        budget.on_first_try(0.0)

    assert spent(budget, now=1e6) == 10


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3))))
def test_retries_are_never_more_than_earned(events: list[tuple[bool, float]]) -> None:
    """At any time: ten, one a second, and a fifth of the first tries."""
    budget, now, firsts, retries = RetryBudget(), 0.0, 0, 0
    for is_first, pause_s in events:
        now += pause_s
        if is_first:
            firsts += 1
            budget.on_first_try(now)
        else:
            retries += budget.take(now)
        budget.check_invariants()
        assert retries <= 10 + now + 0.2 * firsts + 1e-6
