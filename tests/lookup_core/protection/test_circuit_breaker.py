"""When a store is asked no more, and how it is found to be back."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.errors import ErrorCode
from lookup_core.protection.circuit_breaker import BreakerState, CircuitBreaker

AWAY = ErrorCode.BACKEND_UNAVAILABLE
REFUSED = ErrorCode.BACKEND_AUTH
CODES = (AWAY, REFUSED, ErrorCode.TIMEOUT)


def opened(code: ErrorCode = AWAY) -> CircuitBreaker:
    """A breaker that opened at 0 s; the first probe is due at 0.1 s."""
    breaker = CircuitBreaker()
    for _ in range(3):
        breaker.on_failure(code, 0.0)
    return breaker


def pauses(code: ErrorCode, count: int) -> list[float]:
    """How long each of several failed probes is followed by nothing, without jitter."""
    breaker, now, found = opened(code), 0.0, []
    for _ in range(count):
        due_at = breaker.probe_due_at()
        assert due_at is not None
        found.append(round(due_at - now, 6))
        now = due_at
        breaker.start_probe(now)
        breaker.on_probe_failure(code, now, 1.0)
    return found


def test_three_failures_in_a_row_open_it() -> None:
    """Two failures may be chance; a success between them begins the count anew."""
    breaker = CircuitBreaker()
    states = []
    for is_success in (False, False, True, False, False, False):
        breaker.on_success() if is_success else breaker.on_failure(AWAY, 0.0)
        states.append(breaker.state)

    assert states == [BreakerState.CLOSED] * 5 + [BreakerState.OPEN]
    assert not breaker.allows_query


def test_half_of_many_failing_opens_it() -> None:
    """A store that fails every other query is in trouble, although never in a row."""
    breaker = CircuitBreaker()
    for _ in range(5):
        breaker.on_success()
        assert breaker.allows_query
        breaker.on_failure(AWAY, 0.0)

    assert breaker.state is BreakerState.OPEN


def test_only_the_last_twenty_count() -> None:
    """Ten failures among the last twenty results open it; what was before does not matter."""
    breaker = CircuitBreaker()
    states = []
    for letter in "SSSSSSSSSS" + "FSSFSFSFSFSFSFSFSFSF":
        breaker.on_success() if letter == "S" else breaker.on_failure(AWAY, 0.0)
        states.append(breaker.state)

    assert states == [BreakerState.CLOSED] * 29 + [BreakerState.OPEN]


def test_probes_come_in_growing_pauses() -> None:
    """The first probe is soon, later ones at most half a second apart."""
    assert pauses(AWAY, 5) == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_next_outage_begins_with_short_pauses() -> None:
    """However long the last outage was, the first probe of the next one is soon."""
    breaker = opened()
    breaker.start_probe(0.1)
    breaker.on_probe_failure(AWAY, 0.1, 0.5)
    breaker.on_success()
    for _ in range(3):
        breaker.on_failure(AWAY, 2.0)

    assert breaker.probe_due_at() == 2.1


def test_refused_logins_pause_for_longer() -> None:
    """A server that refuses the login is asked every 30 s at last: it may lock the role out."""
    assert pauses(ErrorCode.BACKEND_AUTH, 11)[-2:] == [30.0, 30.0]


def test_jitter_shortens_pauses_by_half_at_most() -> None:
    """Sidecars that lost the same store do not all come at once."""
    breaker = opened()
    breaker.start_probe(0.1)
    breaker.on_probe_failure(AWAY, 1.0, 0.0)

    assert breaker.probe_due_at() == 1.1


def test_probe_under_way_is_the_only_one() -> None:
    """While a probe is under way no other is due, and still no query goes."""
    breaker = opened()
    breaker.start_probe(0.1)

    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.probe_due_at() is None
    assert not breaker.allows_query


def test_answered_probe_closes_it() -> None:
    """After a sign of life it takes three failures again."""
    breaker = opened()
    breaker.start_probe(0.1)
    breaker.on_probe_success()
    breaker.on_failure(AWAY, 0.3)
    breaker.on_failure(AWAY, 0.3)

    assert breaker.state is BreakerState.CLOSED


def test_late_answer_closes_it() -> None:
    """A query that was sent before shows that the store lives; a late failure shows nothing new."""
    breaker = opened()
    breaker.on_failure(AWAY, 5.0)
    assert breaker.probe_due_at() == 0.1

    breaker.on_success()

    assert breaker.allows_query


def test_probe_that_comes_too_late_is_harmless() -> None:
    """A probe that fails after a query has closed the breaker does not open it."""
    breaker = opened()
    breaker.start_probe(0.1)
    breaker.on_success()
    breaker.on_probe_failure(AWAY, 0.3, 0.0)

    assert breaker.allows_query


@pytest.mark.parametrize("state", BreakerState)
def test_labels_are_lower_case(state: BreakerState) -> None:
    """People read words; the metric has the number."""
    assert state.label == state.name.lower()


class BreakerMachine(RuleBasedStateMachine):
    """Answers, failures and probes in any order, against lists of what has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CircuitBreaker()
        self.results: list[bool] = []  # since it was last closed, whether each was a success
        self.state = BreakerState.CLOSED
        self.now = 0.0

    @rule(seconds=st.floats(0, 1))
    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds

    @rule()
    def answer_query(self) -> None:
        """A query brings its rows, be it one that was sent long ago."""
        self.breaker.on_success()
        if self.state is not BreakerState.CLOSED:
            self.results = []
        self.results.append(True)
        self.state = BreakerState.CLOSED

    @rule(code=st.sampled_from(CODES))
    def fail_query(self, code: ErrorCode) -> None:
        """A query fails because of the store."""
        self.breaker.on_failure(code, self.now)
        if self.state is BreakerState.CLOSED:
            self.results.append(False)
            latest = self.results[-20:]
            is_half = len(latest) >= 10 and 2 * sum(latest) <= len(latest)
            is_row = len(latest) >= 3 and not any(latest[-3:])
            self.state = BreakerState.OPEN if is_half or is_row else BreakerState.CLOSED

    @precondition(lambda self: self.state is BreakerState.OPEN)
    @rule()
    def start_probe(self) -> None:
        """A probe goes as soon as it is due."""
        due_at = self.breaker.probe_due_at()
        assert due_at is not None
        self.now = max(self.now, due_at)
        self.breaker.start_probe(self.now)
        self.state = BreakerState.HALF_OPEN

    @rule()
    def answer_probe(self) -> None:
        """A probe is answered, perhaps when nobody cares any more."""
        self.breaker.on_probe_success()
        self.results = []
        self.state = BreakerState.CLOSED

    @rule(code=st.sampled_from(CODES), jitter=st.floats(0, 1, exclude_max=True))
    def fail_probe(self, code: ErrorCode, jitter: float) -> None:
        """A probe fails; only the one that is under way counts."""
        self.breaker.on_probe_failure(code, self.now, jitter)
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN
            due_at, longest_s = self.breaker.probe_due_at(), 30 if code is REFUSED else 0.5
            assert due_at is not None
            assert self.now < due_at <= self.now + longest_s

    @invariant()
    def state_is_that_of_the_model(self) -> None:
        """It is closed, or a probe is due or under way; queries go only while it is closed."""
        self.breaker.check_invariants()
        assert self.breaker.state is self.state
        assert self.breaker.allows_query == (self.state is BreakerState.CLOSED)
        assert (self.breaker.probe_due_at() is None) == (self.state is not BreakerState.OPEN)


TestModel = BreakerMachine.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40)
