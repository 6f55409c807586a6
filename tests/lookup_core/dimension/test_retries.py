"""Retries: of failed queries, of keys without a row, and in search of a rejected key."""

from dataclasses import replace

import pytest

from lookup_core.errors import ErrorCode
from lookup_core.settings import RetrySettings
from tests.lookup_core.dimension.scenario import (
    AWAY,
    NOTHING,
    Order,
    Result,
    Scenario,
    Words,
    ended,
    settings,
)


@pytest.fixture
def retrying() -> Scenario:
    """Failed queries are retried once, after 1 s."""
    return Scenario(settings(retries=1))


@pytest.fixture
def patient() -> Scenario:
    """Missing keys are retried twice, every 2 s."""
    return Scenario(settings(missing_retries=2))


OF_ONE_KEY = (ErrorCode.KEY_REJECTED, ErrorCode.VALUE_REJECTED)


def search(
    scenario: Scenario, rejected: set[int], code: ErrorCode = ErrorCode.KEY_REJECTED
) -> tuple[Words, int]:
    """Let the backend reject queries with these keys; the words of lookup 1, and all queries."""
    words: Words = {}
    queries = 0
    while (order := scenario.send()) is not None:
        queries += 1
        if rejected & set(order.keys):
            result = scenario.fail(order.batch, code)
        else:
            result = scenario.land(order.batch, {key: f"row {key}" for key in order.keys})
        words |= result.answers.get(1, {})
    return words, queries


@pytest.mark.parametrize(
    ("retries", "times"),
    [
        (RetrySettings(max_retries=0), [None]),
        (RetrySettings(max_retries=1, initial_s=0.5), [0.5, None]),
        (RetrySettings(max_retries=2, initial_s=0.5, multiplier=1.0), [0.5, 1.0]),
        (RetrySettings(max_retries=2, initial_s=0.5, max_s=9.0), [0.5, 1.5]),
        (RetrySettings(max_retries=2, initial_s=1.0, max_s=1.5), [1.0, 2.5]),
    ],
    ids=["none", "one", "fixed", "exponential", "bounded"],
)
def test_failures_back_off(retries: RetrySettings, times: list[float | None]) -> None:
    """Each delay is a multiple of the one before, up to `max_s`, for `max_retries` retries."""
    scenario = Scenario(replace(settings(), retry=retries))
    scenario.look_up(1, 7)
    found: list[float | None] = []
    while len(found) < len(times):
        scenario.fail(scenario.resend())
        found.append(scenario.next_deadline)
        scenario.now = scenario.next_deadline or 0.0

    assert found == times


@pytest.mark.parametrize(("jitter", "time_s"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_jitter_spreads_the_delay(retrying: Scenario, jitter: float, time_s: float) -> None:
    """The delay lies between its half and its whole."""
    retrying.fail(retrying.query(1, 7), jitter=jitter)

    assert retrying.next_deadline == time_s


def test_failed_query_is_retried(retrying: Scenario) -> None:
    """After a retriable failure the waiters, and lookups that join later, wait for the retry."""
    assert retrying.fail(retrying.query(1, 7)) == NOTHING
    retrying.look_up(2, 7)

    assert retrying.send() is None
    retrying.now = 1.5
    assert retrying.send() == Order(1, [7], attempt=2)
    retrying.now = 1.75
    result = retrying.land(1, {7: "Ada"})
    assert result == Result({1: {0: "fetched Ada"}, 2: {0: "fetched Ada"}}, ended=[1, 2])
    assert retrying.ages == {(1, 0): 0.25, (2, 0): 0.25}  # of the attempt that answered
    assert (retrying.statistics.retries, retrying.outcomes) == (1, {"fetched": 2})


@pytest.mark.parametrize("code", [ErrorCode.FORBIDDEN, ErrorCode.INTERNAL])
def test_lasting_failure_is_final(retrying: Scenario, code: ErrorCode) -> None:
    """A failure that a retry cannot mend is reported at once."""
    batch = retrying.query(1, 7, 8)

    assert retrying.fail(batch, code) == ended(1, f"error {code}", f"error {code}")


def test_lost_connection_is_replaced_at_once(retrying: Scenario) -> None:
    """The first lost connection costs no delay and no retry; each later one is a failure."""
    batch = retrying.query(1, 7)
    assert retrying.fail(batch, ErrorCode.CONNECTION_LOST) == NOTHING
    assert retrying.send() == Order(1, [7], attempt=2)

    assert retrying.fail(batch, ErrorCode.CONNECTION_LOST) == NOTHING

    assert (retrying.send(), retrying.next_deadline) == (None, 1.0)
    retrying.now = 1.0
    assert retrying.send() == Order(1, [7], attempt=3)


@pytest.mark.parametrize(("deadline", "is_retried"), [(1.0, False), (1.001, True)])
def test_retry_precedes_the_last_deadline(
    retrying: Scenario, deadline: float, *, is_retried: bool
) -> None:
    """A query is retried only if one of its waiters has a deadline after the retry."""
    retrying.look_up(1, 7, deadline=deadline)
    retrying.look_up(2, 7, deadline=0.1)

    assert (retrying.fail(retrying.resend()) == NOTHING) is is_retried


@pytest.mark.parametrize(("keys", "halves"), [([1, 2, 3], [[1, 2], [3]]), ([1], [[1]])])
def test_timed_out_query_is_halved(
    retrying: Scenario, keys: list[int], halves: list[list[int]]
) -> None:
    """After a timeout the keys are retried in two smaller queries; a single key as it is."""
    retrying.fail(retrying.query(1, *keys), ErrorCode.TIMEOUT)
    assert retrying.send() is None
    retrying.now = 1.0

    assert retrying.send_all() == halves
    result = retrying.fail(len(halves) + 1, ErrorCode.TIMEOUT)
    assert result.answers == {1: {len(keys) - 1: "timeout timeout"}}


def test_retries_spend_a_budget(retrying: Scenario) -> None:
    """Without budget a failure is final; first attempts earn a fifth of a retry each."""
    while retrying.state.guard.retries.take_token(0.0):
        pass
    result = retrying.fail(retrying.query(1, 7), ErrorCode.CONNECTION_LOST)
    assert result == ended(1, "error connection_lost")

    for key in range(4):
        retrying.land(retrying.query(2, key))

    assert retrying.fail(retrying.query(2, 8), ErrorCode.CONNECTION_LOST) == NOTHING


@pytest.mark.parametrize("is_missing", [True, False])
def test_timeout_frees_a_waiting_key(*, is_missing: bool) -> None:
    """The deadline covers all retries: after it nothing is left, and late rows are ignored."""
    scenario = Scenario(settings(max_in_flight=1, retries=1, missing_retries=2))
    first = scenario.query(1, 7, deadline=2.5)
    scenario.land(first) if is_missing else scenario.fail(first)
    second = scenario.query(2, 8, deadline=2.1)
    scenario.now = 2.5

    timeout = {0: "timeout timeout"}
    assert scenario.expire() == Result({2: timeout, 1: timeout}, [2, 1], cancelled=[second])
    statistics = scenario.statistics
    assert (statistics.waiting_keys, statistics.queued_keys) == (0, 0)
    assert (statistics.queries_in_flight, scenario.next_deadline) == (0, None)
    assert scenario.land(first, {7: "late"}) == NOTHING


@pytest.mark.parametrize("code", OF_ONE_KEY)
@pytest.mark.parametrize(
    ("rejected", "queries"), [({3, 15, 16, 31}, 31), ({*range(31)}, 63)], ids=["few", "most"]
)
def test_rejected_keys_harm_no_other(code: ErrorCode, rejected: set[int], queries: int) -> None:
    """Exactly the keys whose value or row is rejected have its error, however many they are."""
    scenario = Scenario()
    keys = range(32)
    scenario.look_up(1, *keys)

    words, sent = search(scenario, rejected, code)

    assert sent == queries
    assert words == {
        key: f"error {code}" if key in rejected else f"fetched row {key}" for key in keys
    }


@pytest.mark.parametrize("code", OF_ONE_KEY)
@pytest.mark.parametrize("invalidated", [None, (7,), ()], ids=["none", "key", "all"])
def test_rejected_key_is_quarantined(invalidated: tuple[int, ...] | None, code: ErrorCode) -> None:
    """For 30 s a rejected key is answered without a query, or until it is invalidated."""
    scenario = Scenario()
    scenario.look_up(1, 7)
    search(scenario, {7}, code)

    scenario.now = 29.9
    assert scenario.look_up(2, 8, 7) == {1: f"error {code}"}
    assert scenario.send() == Order(2, [8])
    if invalidated is None:
        scenario.now = 30.0
    else:
        scenario.invalidate(*invalidated)
    assert scenario.look_up(3, 7) == {}


def test_late_row_is_found(patient: Scenario) -> None:
    """A row that arrives after the first attempt is found by a retry."""
    assert patient.land(patient.query(1, 7)) == NOTHING
    assert patient.next_deadline == 2.0
    patient.now = 1.999
    assert patient.send() is None
    patient.now = 2.0
    assert patient.send() == Order(2, [7], attempt=2)
    patient.look_up(2, 7, deadline=2.1)
    assert patient.send() is None  # a retry that was sent takes lookups with any deadline
    assert patient.land(2, {7: "Ada"}).ended == [1, 2]
    assert patient.look_up(3, 7) == {0: "hit Ada"}
    assert patient.outcomes == {"fetched": 2, "hit": 1}


def test_missing_follows_the_last_attempt(patient: Scenario) -> None:
    """A row that never arrives is missing after all retries, and only then a negative entry."""
    assert patient.land(patient.query(1, 7)) == NOTHING
    patient.now = 2.0
    assert patient.land(patient.resend()) == NOTHING
    patient.now = 4.0

    assert patient.land(patient.resend()) == ended(1, "missing")
    assert patient.look_up(2, 7) == {0: "missing"}
    assert (patient.statistics.retries, patient.next_deadline) == (2, None)


def test_only_missing_keys_wait(patient: Scenario) -> None:
    """Rows and ambiguous keys of a query are answered at once; keys without a row are retried."""
    patient.look_up(1, 7, 8, 9)
    patient.look_up(2, 8)
    batch = patient.resend()

    assert patient.land(batch, {7: "Ada", 9: ["Cora", "Cleo"]}) == Result(
        {1: {0: "fetched Ada", 2: "error ambiguous"}}
    )
    patient.now = 2.0
    assert patient.send() == Order(2, [8], attempt=2)
    assert patient.land(2, {8: "Bert"}) == Result(
        {1: {1: "fetched Bert"}, 2: {0: "fetched Bert"}}, ended=[1, 2]
    )


@pytest.mark.parametrize(("deadline", "is_retried"), [(2.0, False), (2.001, True)])
def test_missing_precedes_a_late_retry(
    patient: Scenario, deadline: float, *, is_retried: bool
) -> None:
    """Lookups whose deadline precedes the retry return `missing` immediately; it is not cached."""
    result = patient.land(patient.query(1, 7, deadline=deadline))

    assert result == (NOTHING if is_retried else ended(1, "missing"))
    assert (patient.next_deadline is None) is not is_retried
    patient.leave(1)
    assert patient.look_up(2, 7) == {}


def test_lookup_joins_a_waiting_key(patient: Scenario) -> None:
    """A lookup with enough time waits for the retry of a key; one without is queried at once."""
    patient.land(patient.query(1, 7))
    patient.now = 1.0
    patient.look_up(2, 7, deadline=2.001)
    assert patient.send() is None
    assert patient.query(3, 7, 7, deadline=2.0) == 3

    assert patient.land(3) == ended(3, "missing", "missing")
    patient.now = 2.0
    assert patient.send() == Order(2, [7], attempt=2)
    assert patient.land(2, {7: "Ada"}).ended == [1, 2]


@pytest.mark.parametrize("is_timeout", [True, False])
def test_failed_retry_is_not_missing(patient: Scenario, *, is_timeout: bool) -> None:
    """A retry that fails or times out is an error, although an earlier attempt found no row."""
    patient.land(patient.query(1, 7, deadline=3.0))
    patient.now = 2.0
    retry = patient.resend()
    patient.now = 3.0

    result = patient.expire() if is_timeout else patient.fail(retry)

    word = "timeout timeout" if is_timeout else f"error {AWAY}"
    assert result == Result({1: {0: word}}, [1], cancelled=[retry] if is_timeout else [])
    assert patient.land(retry, {7: "late"}) == NOTHING
    assert patient.look_up(2, 7) == {}
