"""Stale rows and outages: what lookups get when rows expire, or the backend fails (RFC 5861)."""

import pytest

from lookup_core.errors import ErrorCode
from lookup_core.protection.circuit_breaker import BreakerState
from tests.lookup_core.dimension.scenario import (
    AWAY,
    NOTHING,
    Order,
    Result,
    Scenario,
    ended,
    settings,
)


@pytest.fixture
def stale() -> Scenario:
    """Row 7 expires at 10 s; it is refreshed until 12 s and replaces errors until 16 s."""
    scenario = Scenario(settings(revalidate_s=2.0, if_error_s=6.0))
    scenario.cache({7: "Ada"})
    return scenario


def begin_refresh(stale: Scenario) -> int:
    """At 11 s lookup 1 gets the stale row and a refresh is sent; its number."""
    stale.now = 11.0
    return stale.query(1, 7)


@pytest.mark.parametrize(
    ("now", "at_once", "on_failure"),
    [
        (9.99, "hit Ada", None),
        (10.0, "stale Ada", None),
        (11.99, "stale Ada", None),
        (12.0, None, "stale Ada"),
        (15.99, None, "stale Ada"),
        (16.0, None, f"error {AWAY}"),
    ],
)
def test_windows_end_at_their_limits(
    stale: Scenario, now: float, at_once: str | None, on_failure: str | None
) -> None:
    """An expired row is served to the end of each window; an expired negative entry never is."""
    stale.land(stale.query(1, 8))
    stale.now = now
    words = stale.look_up(2, 7, 8)

    result = stale.fail(stale.resend())

    assert words.get(0) == at_once
    assert result.answers.get(2, {}).get(0) == on_failure
    assert result.answers.get(2, {}).get(1) == f"error {AWAY}"


def test_stale_row_is_refreshed(stale: Scenario) -> None:
    """An expired row is the answer at once; one query of no caller refreshes it."""
    stale.now = 11.0

    assert stale.look_up(1, 7, 7) == {0: "stale Ada", 1: "stale Ada"}
    assert stale.look_up(2, 7) == {0: "stale Ada"}
    assert stale.send() == Order(2, [7])
    assert stale.send() is None
    assert stale.next_deadline == 13.0  # the timeout of the dimension
    assert stale.land(2, {7: "Bea"}) == NOTHING
    assert stale.look_up(3, 7) == {0: "hit Bea"}


@pytest.mark.parametrize(("names", "words"), [([], {0: "missing"}), (["Ada", "Bea"], {})])
def test_refresh_removes_a_lost_row(
    stale: Scenario, names: list[str], words: dict[int, str]
) -> None:
    """If a refresh finds no row, or several, the stale row is not served any more."""
    stale.land(begin_refresh(stale), {7: names})

    assert stale.look_up(2, 7) == words


def test_refresh_needs_room() -> None:
    """At the admission limit stale rows are served and not refreshed."""
    stale = Scenario(settings(max_waiting_keys=3, revalidate_s=2.0))
    stale.cache({7: "Ada", 8: "Bert"})
    stale.now = 11.0
    stale.query(1, 1, 2)

    assert stale.look_up(2, 7, 8) == {0: "stale Ada", 1: "stale Bert"}
    assert stale.send() is None
    assert stale.look_up(3, 7) == {0: "stale Ada"}
    assert stale.send_all() == [[7]]


def test_old_row_replaces_a_timeout(stale: Scenario) -> None:
    """At its deadline a lookup gets the old row of a key that has one, with its age."""
    stale.now = 13.0
    batch = stale.query(1, 8, 7, deadline=14.0)
    stale.now = 14.0

    assert stale.expire() == Result(
        {1: {0: "timeout timeout", 1: "stale Ada"}}, ended=[1], cancelled=[batch]
    )
    assert stale.ages[1, 1] == 14.0


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (ErrorCode.TIMEOUT, "stale Ada"),
        (ErrorCode.BACKEND_AUTH, "stale Ada"),
        (ErrorCode.FORBIDDEN, "error forbidden"),
        (ErrorCode.SCHEMA_CHANGED, "error schema_changed"),
        (ErrorCode.KEY_REJECTED, "error key_rejected"),
    ],
)
def test_only_passing_failures_are_hidden(stale: Scenario, code: ErrorCode, word: str) -> None:
    """A row that may not be read any more, or has another schema, is not served from memory."""
    stale.now = 13.0

    assert stale.fail(stale.query(1, 7), code).answers == {1: {0: word}}


@pytest.mark.parametrize(("if_error_s", "word"), [(6.0, "hit Bea"), (0.0, f"error {AWAY}")])
def test_newer_row_replaces_a_failure(if_error_s: float, word: str) -> None:
    """With `stale_if_error` a row that another query has fetched replaces the error."""
    scenario = Scenario(settings(if_error_s=if_error_s))
    outdated = scenario.query(1, 7)
    scenario.invalidate(7)
    scenario.land(scenario.query(2, 7), {7: "Bea"})

    assert scenario.fail(outdated) == ended(1, word)


def test_open_breaker_serves_old_rows(stale: Scenario) -> None:
    """While the breaker is open old rows are answered at once, and not refreshed."""
    stale.now = 11.0
    stale.open_breaker()

    assert stale.look_up(1, 7, 8) == {0: "stale Ada"}
    assert stale.statistics.waiting_keys == 2  # of keys 8 and 102
    stale.now = 13.0
    assert stale.look_up(2, 7) == {0: "stale Ada"}


@pytest.fixture
def scenario() -> Scenario:
    """Failed queries are retried twice."""
    return Scenario(settings(retries=2))


def test_lookups_wait_for_the_backend(scenario: Scenario) -> None:
    """While the breaker is open only probes are sent; after a good one all waiters get rows."""
    scenario.open_breaker()
    scenario.look_up(1, 7)
    assert (scenario.send(), scenario.next_deadline) == (None, 0.1)
    scenario.now = 0.1
    state = scenario.state
    assert [state.guard.start_probe_if_due(0.1), state.guard.start_probe_if_due(0.1)] == [
        True,
        False,
    ]
    assert scenario.next_deadline == 3.0
    state.guard.on_probe(ErrorCode.TIMEOUT, now=0.2, jitter=1.0)
    assert scenario.next_deadline == 0.4
    scenario.now = 1.0
    assert state.guard.start_probe_if_due(1.0)
    state.guard.on_probe(None, now=1.0, jitter=0.0)

    assert sorted(scenario.send_all()) == [[7], [100], [101], [102]]


def test_open_breaker_holds_failed_queries() -> None:
    """A query without retries or budget left waits for the backend; a refused one does not."""
    scenario = Scenario()
    held, refused = scenario.query(1, 7), scenario.query(2, 8)
    scenario.open_breaker()
    while scenario.state.guard.retries.take_token(0.0):
        pass
    scenario.now = 0.5

    assert scenario.fail(held) == NOTHING
    assert scenario.fail(refused, ErrorCode.FORBIDDEN).answers == {2: {0: "error forbidden"}}
    assert scenario.breaker is BreakerState.CLOSED  # a refusal is a sign of life
    assert [7] in scenario.send_all()


def test_impatient_callers_hide_no_outage(scenario: Scenario) -> None:
    """Queries that are cancelled after half of their timeout, or later, count as timeouts."""
    states = []
    for lookup, patience_s in enumerate((0.9, 0.9, 0.9, 1.0, 1.0, 1.0)):
        scenario.query(lookup, lookup, deadline=scenario.now + patience_s)
        scenario.now += patience_s
        scenario.expire()
        states.append(scenario.breaker)

    assert states == [BreakerState.CLOSED] * 5 + [BreakerState.OPEN]


@pytest.mark.parametrize(("together", "limit"), [(1, 2), (2, 3)])
def test_full_use_raises_the_limit(together: int, limit: int) -> None:
    """Only queries that were sent while all slots were in use raise a lowered limit."""
    scenario = Scenario(settings(max_keys=1, max_in_flight=4))
    scenario.look_up(1, 1, 2, 3, 4)
    scenario.send_all()
    scenario.now = 0.5
    scenario.fail(1, ErrorCode.TIMEOUT)
    for batch in (2, 3, 4):
        scenario.land(batch)

    scenario.look_up(2, *range(10, 10 + together))
    for order in [*iter(scenario.send, None)]:
        scenario.land(order.batch)

    assert scenario.statistics.concurrency_limit == limit
