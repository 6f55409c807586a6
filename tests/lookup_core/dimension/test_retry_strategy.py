"""When to try again and after how long: pure functions of the attempts so far.

The delays of each kind of strategy stand in the conformance cases; here is what holds for all.
"""

from hypothesis import given
from hypothesis import strategies as st

from lookup_core.backoff import RetryStrategy

strategies = st.builds(
    RetryStrategy,
    max_retries=st.integers(0, 10),
    initial_ms=st.integers(0, 10_000),
    max_ms=st.integers(0, 100_000),
    multiplier=st.floats(1.0, 1e6),
)


def test_default_never_tries_again() -> None:
    """Who says nothing about retries gets none."""
    assert not RetryStrategy().can_retry(1)


@given(strategies)
def test_retries_are_counted_apart(strategy: RetryStrategy) -> None:
    """`max_retries` does not count the first try: so many more may follow, and no more."""
    allowed = [strategy.can_retry(attempts) for attempts in range(1, 13)]

    assert allowed == [attempts <= strategy.max_retries for attempts in range(1, 13)]


@given(strategies)
def test_delays_stay_within_their_bounds(strategy: RetryStrategy) -> None:
    """Delays are never negative, and from the second on at most the longest allowed."""
    delays = [strategy.delay_ms(attempts) for attempts in range(2, 11)]

    assert min(delays) >= 0
    assert max(delays) <= strategy.max_ms


@given(strategies)
def test_first_delay_is_never_cut(strategy: RetryStrategy) -> None:
    """The first delay is the initial one, even above the longest; later ones do not shrink."""
    delays = [strategy.delay_ms(attempts) for attempts in range(1, 11)]

    assert delays[0] == strategy.initial_ms
    assert delays[1:] == sorted(delays[1:])


@given(strategies, st.integers(1, 10))
def test_asking_twice_changes_nothing(strategy: RetryStrategy, attempts: int) -> None:
    """Keys that retry at the same time do not disturb each other: there is no state."""
    alone = strategy.delay_ms(attempts)
    for other in range(1, 11):
        strategy.delay_ms(other)

    assert strategy.delay_ms(attempts) == alone
