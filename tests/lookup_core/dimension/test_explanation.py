"""Explanations: where the answer to a key comes from, and why."""

import pytest

from lookup_core.dimension.explanation import Explanation, KeyState
from lookup_core.errors import ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.settings import CacheMode
from lookup_core.table.full_table import FullTable
from tests.lookup_core.dimension.scenario import FAULTY, Key, Scenario, settings

CACHED = "answered from the cache until it expires or is invalidated"
FROM_THE_TABLE = "answered from the full table"
REFRESHED = "beyond its time to live: answered at once; its refresh is started by a lookup"
REFRESHING = "beyond its time to live: answered at once; its refresh is under way"
IF_ERROR = "beyond its time to live: read again, and the answer only if that fails"
IN_OUTAGE = "beyond its time to live: still the answer, as the backend does not respond"
STALLED = "the feed is {}: read again, and the answer only if that fails"
FIRST_LOAD = "lookups wait for the first load: see freshness.load"
AFTER_FEED = "lookups wait for the first load, which waits for its feed: see freshness.feed"
WITH_OTHERS = "; a lookup would wait with the others"
QUEUED = f"queued for the next query{WITH_OTHERS}"
SENT = f"at the backend{WITH_OTHERS}"
RETRIED = f"parked until the next attempt, because the query failed{WITH_OTHERS}"
MISSED = f"parked until the next attempt, because no row was found{WITH_OTHERS}"
UNKNOWN = "not cached: a lookup queries the backend"
NOT_KEPT = f"{UNKNOWN}; its row is not cached, as the feed is {{}}: see freshness.feed"
AFTER_OUTAGE = ", once it responds again"
REJECTED = "the backend refused its value, or its row; queried again in 28 s"
NULL = "a NULL part matches nothing"
FAULT = "refused before any query: type"


@pytest.fixture
def scenario() -> Scenario:
    """Rows expire at 10 s, are refreshed until 12 s and replace errors until 16 s."""
    return Scenario(settings(retries=1, missing_retries=1, revalidate_s=2.0, if_error_s=6.0))


def explained(state: KeyState, reason: str, **figures: int) -> Explanation:
    """An explanation while the breaker is closed."""
    return Explanation(state, reason, breaker="closed", **figures)


def explain(scenario: Scenario, key: Key = 7) -> Explanation:
    """The explanation of one key."""
    (explanation,) = scenario.explain(key)
    return explanation


def test_each_key_shows_its_source(scenario: Scenario) -> None:
    """A key is cached, known to be missing, rejected, unknown, or unfit for a query."""
    scenario.land(scenario.query(1, 1, 2), {1: "Ada"})
    scenario.now = 2.0
    scenario.land(scenario.resend())
    scenario.fail(scenario.query(2, 3), ErrorCode.KEY_REJECTED)
    scenario.now = 3.5

    assert scenario.explain(1, 2, 3, None, 4, FAULTY) == [
        explained(KeyState.CACHED, CACHED, age_ms=3500, expires_in_ms=6500),
        explained(KeyState.MISSING_CACHED, CACHED, age_ms=1500, expires_in_ms=3500),
        explained(KeyState.REFUSED, REJECTED),
        explained(KeyState.INVALID, NULL),
        explained(KeyState.NOT_CACHED, UNKNOWN),
        explained(KeyState.INVALID, FAULT),
    ]


def test_full_mode_never_expires() -> None:
    """In full mode an entry has an age, and no expiry."""
    scenario = Scenario(settings(mode=CacheMode.FULL))
    assert isinstance(scenario.state.local.cache, FullTable)
    scenario.state.begin_load(scenario.state.local.cache, now=0.0).finish(now=0.0)
    scenario.now = 1.5

    assert explain(scenario) == explained(KeyState.MISSING_CACHED, FROM_THE_TABLE, age_ms=1500)


def test_stale_row_shows_its_use(scenario: Scenario) -> None:
    """An expired row is refreshed first; later it only replaces errors."""
    scenario.cache({7: "Ada"})
    scenario.now = 11.0
    stale = {"age_ms": 11_000, "expires_in_ms": -1000}
    assert explain(scenario) == explained(KeyState.STALE, REFRESHED, **stale)

    scenario.look_up(1, 7)

    assert explain(scenario) == explained(KeyState.STALE, REFRESHING, waiters=1, **stale)
    scenario.now = 13.0
    assert explain(scenario).reason == IF_ERROR
    scenario.open_breaker()
    assert (explain(scenario).reason, explain(scenario).breaker) == (IN_OUTAGE, "open")


def test_flight_shows_its_place(scenario: Scenario) -> None:
    """A key in flight is queued or at the backend, with its number of waiters."""
    scenario.look_up(1, 7)
    scenario.look_up(2, 7)

    queued = explain(scenario)
    scenario.send()

    assert queued == explained(KeyState.IN_FLIGHT, QUEUED, waiters=2)
    assert explain(scenario) == explained(KeyState.IN_FLIGHT, SENT, waiters=2)


@pytest.mark.parametrize(
    ("attempts", "reason", "delay_ms"),
    [("failed", RETRIED, 1000), ("missing", MISSED, 2000), ("missing failed", RETRIED, 1000)],
)
def test_waiting_retry_shows_its_time(
    scenario: Scenario, attempts: str, reason: str, delay_ms: int
) -> None:
    """A key between two attempts shows why it waits, and for how long, never less than zero."""
    scenario.look_up(1, 7)
    for attempt in attempts.split():
        scenario.now += 2.0
        batch = scenario.resend()
        scenario.fail(batch) if attempt == "failed" else scenario.land(batch)

    expected = explained(KeyState.IN_FLIGHT, reason, waiters=1, retry_in_ms=delay_ms)
    assert explain(scenario) == expected
    scenario.now += 5.0
    assert explain(scenario).retry_in_ms == 0


def test_outage_is_shown(scenario: Scenario) -> None:
    """While the breaker is open a key shows that it is queried after the outage."""
    scenario.open_breaker()

    expected = Explanation(KeyState.NOT_CACHED, UNKNOWN + AFTER_OUTAGE, breaker="open")
    assert explain(scenario) == expected
    assert explain(scenario, 102).reason == RETRIED + AFTER_OUTAGE


@pytest.mark.parametrize(
    ("feed", "shown"),
    [
        (FeedState.LIVE, "silent"),  # its trust has ended by time
        (FeedState.SILENT, "silent"),
        (FeedState.STARTING, "starting"),
        (FeedState.INCOMPLETE, "incomplete"),
    ],
)
def test_feed_without_trust_is_shown(scenario: Scenario, feed: FeedState, shown: str) -> None:
    """Without trust in the feed, its state is the reason why a row is not served or cached."""
    scenario.cache({7: "Ada"})
    scenario.trust(is_trusted=False, feed=feed)

    cached, unknown = scenario.explain(7, 8)

    stalled, not_kept = STALLED.format(shown), NOT_KEPT.format(shown)
    assert cached == explained(KeyState.STALE, stalled, age_ms=0, expires_in_ms=10_000)
    assert unknown == explained(KeyState.NOT_CACHED, not_kept)


@pytest.mark.parametrize(
    ("is_trusted", "reason"), [(True, FIRST_LOAD), (False, AFTER_FEED)], ids=["no feed", "feed"]
)
def test_wait_for_the_load_is_shown(is_trusted: bool, reason: str) -> None:  # noqa: FBT001
    """While lookups wait for the first load, no key is said to be queried."""
    scenario = Scenario(settings(mode=CacheMode.FULL))
    scenario.state.in_flight.hold_queries(10.0)
    scenario.trust(is_trusted=is_trusted, feed=FeedState.STARTING)
    scenario.look_up(1, 7)

    held = scenario.explain(7, 8)
    scenario.now = 10.0
    free = scenario.explain(7, 8)

    assert held == [
        explained(KeyState.IN_FLIGHT, reason, waiters=1),
        explained(KeyState.NOT_CACHED, f"not cached: {reason}"),
    ]
    not_kept = UNKNOWN if is_trusted else NOT_KEPT.format("starting")
    assert free == [
        explained(KeyState.IN_FLIGHT, QUEUED, waiters=1),
        explained(KeyState.NOT_CACHED, not_kept),
    ]
