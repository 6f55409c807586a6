"""Options of single channels: a maximal age, and their own retries for missing keys."""

import pytest

from lookup_core.dimension.explanation import KeyState
from lookup_core.lookup_options import LookupOptions
from lookup_core.settings import CacheMode
from tests.lookup_core.dimension.scenario import (
    AWAY,
    NOTHING,
    Order,
    Result,
    Scenario,
    ended,
    max_age,
    retrying,
    settings,
)

NAMED = retrying(2, 0.5, retry_if="name")


# Maximal age


@pytest.mark.parametrize(("age", "words"), [(2.999, {0: "hit Ada"}), (3.0, {})])
def test_row_of_the_maximal_age_is_read_again(
    scenario: Scenario, age: float, words: dict[int, str]
) -> None:
    """A cached row whose age reaches the maximum is read again, and the new row is for all."""
    scenario.cache({7: "Ada"})
    scenario.now = age

    assert scenario.look_up(1, 7, options=max_age(3.0)) == words
    if not words:
        assert scenario.look_up(2, 7) == {0: "hit Ada"}
        assert scenario.land(scenario.resend(), {7: "Ada Smith"}) == ended(1, "fetched Ada Smith")
        assert scenario.look_up(3, 7) == {0: "hit Ada Smith"}
        assert scenario.look_up(4, 7, options=max_age(3.0)) == {0: "hit Ada Smith"}


@pytest.mark.parametrize(("seconds", "is_joined"), [(1.001, True), (1.0, False)])
def test_recent_read_in_progress_is_joined(
    scenario: Scenario, seconds: float, *, is_joined: bool
) -> None:
    """A read that began within the maximal age is joined; an older one is not, nor kept."""
    first = scenario.query(1, 7)
    scenario.now = 1.0
    scenario.look_up(2, 7, options=max_age(seconds))
    second = scenario.send()

    assert (second is None) is is_joined
    if second is not None:
        scenario.look_up(3, 7, options=max_age(seconds))  # a queued read is recent enough
        assert scenario.land(second.batch, {7: "new"}).ended == [2, 3]
        assert scenario.land(first, {7: "old"}) == ended(1, "fetched old")
        assert scenario.look_up(4, 7) == {0: "hit new"}


@pytest.mark.parametrize(
    ("seconds", "word"), [(12.001, "stale Ada"), (12.0, f"error {AWAY}")], ids=["within", "beyond"]
)
def test_failure_is_not_hidden_by_an_old_row(seconds: float, word: str) -> None:
    """If the read fails, a stale row is the answer only below the maximal age."""
    scenario = Scenario(settings(if_error_s=50.0))
    scenario.cache({7: "Ada"})
    scenario.now = 12.0  # two seconds after its time to live

    assert scenario.fail(scenario.query(1, 7, options=max_age(seconds))) == ended(1, word)
    assert scenario.fail(scenario.query(2, 7)) == ended(2, "stale Ada")


def test_old_row_is_not_served_meanwhile() -> None:
    """A stale row beyond the maximal age is not served, even while the backend is down."""
    scenario = Scenario(settings(revalidate_s=50.0, if_error_s=50.0))
    scenario.cache({7: "Ada"})
    scenario.now = 12.0

    assert scenario.look_up(1, 7, options=max_age(12.0)) == {}
    assert scenario.look_up(2, 7, options=max_age(12.5)) == {0: "stale Ada"}
    scenario.open_breaker()
    assert scenario.look_up(3, 7) == {0: "stale Ada"}
    assert scenario.look_up(4, 7, options=max_age(12.0), deadline=14.0) == {}
    scenario.now = 14.0
    assert scenario.expire() == ended(4, f"error {AWAY}")


# Retries for missing keys


def test_channel_retries_missing_keys(scenario: Scenario) -> None:
    """A channel with retries waits for a late row; another one gets `missing` at once."""
    first = scenario.query(1, 7, options=retrying(2, 0.5))
    scenario.look_up(2, 7)

    assert scenario.land(first) == ended(2, "missing")
    assert scenario.look_up(3, 7) == {0: "missing"}  # from the cache
    scenario.now = 0.5
    assert scenario.land(scenario.resend()) == NOTHING
    scenario.now = 1.0
    assert scenario.send() == Order(3, [7], attempt=3)
    assert scenario.land(3, {7: "Ada"}) == ended(1, "fetched Ada")
    assert scenario.look_up(4, 7) == {0: "hit Ada"}


def test_cached_absence_ends_no_retries(scenario: Scenario) -> None:
    """A channel with retries gets `missing` after attempts of its own, never from the cache."""
    scenario.land(scenario.query(1, 7))

    assert scenario.look_up(2, 7, options=retrying(0)) == {0: "missing"}
    assert scenario.land(scenario.query(3, 7, options=retrying(1, 0.5))) == NOTHING
    scenario.now = 0.5
    assert scenario.land(scenario.resend()) == ended(3, "missing")


def test_attempts_of_others_do_not_count(scenario: Scenario) -> None:
    """A lookup that joins a retry of other lookups still has all of its own retries."""
    scenario.land(scenario.query(1, 7, options=retrying(2, 0.5)))
    scenario.now = 0.5
    retry = scenario.resend()
    scenario.look_up(2, 7, options=retrying(1, 1.0))

    assert scenario.land(retry) == NOTHING
    scenario.now = 1.0
    assert scenario.land(scenario.resend()) == ended(1, "missing")
    scenario.now = 1.5
    assert scenario.land(scenario.resend(), {7: "Ada"}) == ended(2, "fetched Ada")


def test_retry_leaves_a_queued_read_alone() -> None:
    """A retry that is sent before a queued read of the key is not kept: that read is later."""
    scenario = Scenario(settings(max_in_flight=2))
    scenario.land(scenario.query(1, 7, options=retrying(1, 0.001)))
    busy = [scenario.query(2, 8), scenario.query(3, 9)]
    scenario.invalidate(7)
    scenario.look_up(4, 7)
    scenario.now = 0.001
    scenario.land(busy[0])
    retry = scenario.resend()
    scenario.land(busy[1])
    later = scenario.resend()

    assert scenario.land(later, {7: "later"}) == ended(4, "fetched later")
    assert scenario.land(retry, {7: "sooner"}) == ended(1, "fetched sooner")
    assert scenario.look_up(5, 7) == {0: "hit later"}


def test_row_with_null_is_retried(scenario: Scenario) -> None:
    """A row with NULL in the named column is read again for its channel, and is others' answer."""
    first = scenario.query(1, 7, 8, options=NAMED)
    scenario.look_up(2, 7)
    assert scenario.land(first, {7: [None], 8: "Bert"}) == Result(
        {1: {1: "fetched Bert"}, 2: {0: "fetched"}}, ended=[2]
    )
    assert scenario.look_up(3, 7) == {0: "hit"}
    scenario.now = 0.5

    assert scenario.land(scenario.resend(), {7: "Ada"}) == Result(
        {1: {0: "fetched Ada"}}, ended=[1]
    )
    assert scenario.look_up(4, 7, options=NAMED) == {0: "hit Ada"}


def test_change_hastens_all_retries() -> None:
    """A reported change queries a waiting key at once, whatever the retries of its lookups."""
    scenario = Scenario(settings(missing_retries=1))
    scenario.now = 1.0
    first = scenario.query(1, 7)
    scenario.look_up(2, 7, options=retrying(3, 9.0))
    scenario.land(first)
    scenario.now = 1.5
    scenario.change(7)

    orders = [scenario.resend(), scenario.resend()]
    assert [scenario.land(each, {7: "Ada"}) for each in orders] == [
        ended(1, "fetched Ada"),
        ended(2, "fetched Ada"),
    ]


def test_later_attempt_is_not_joined_from_a_sooner_one(scenario: Scenario) -> None:
    """A lookup waits for its own next attempt, not for one of a hastened key that comes later."""
    options = retrying(2, 2.0)
    scenario.now = 1.0
    scenario.land(scenario.query(1, 7, options=options))  # due at 3.0
    scenario.now = 2.0
    scenario.change(7)
    hastened = scenario.resend()
    scenario.now = 2.5
    scenario.invalidate(7)
    scenario.land(scenario.query(2, 7, options=options))  # due at 4.5

    assert scenario.land(hastened) == NOTHING  # due at 3.0 again
    scenario.now = 3.0
    assert scenario.land(scenario.resend(), {7: "Ada"}) == ended(1, "fetched Ada")


@pytest.mark.parametrize("mode", [CacheMode.PARTIAL, CacheMode.NONE])
def test_lookup_with_waiting_keys_may_leave(mode: CacheMode) -> None:
    """A lookup that leaves during its retries leaves nothing behind."""
    scenario = Scenario(settings(mode=mode))
    options = LookupOptions(max_age_ms=0, max_retries=5, retry_delay_ms=500)
    batch = scenario.query(1, 7, 8, options=options)
    scenario.look_up(2, 8, options=options)
    scenario.land(batch)
    scenario.invalidate(7)
    scenario.leave(1)
    scenario.leave(2)

    assert (scenario.send(), scenario.next_deadline) == (None, None)
    assert scenario.statistics.waiting_keys == 0


def test_explanation_is_for_plain_lookups(scenario: Scenario) -> None:
    """A key that waits by the retries of one channel is not cached for lookups without them."""
    scenario.land(scenario.query(1, 7, options=retrying(1)))
    scenario.invalidate(7)
    configured = Scenario(settings(missing_retries=1))
    configured.land(configured.query(1, 7, options=retrying(1)))

    assert scenario.explain(7)[0].state is KeyState.NOT_CACHED
    assert configured.explain(7)[0].state is KeyState.IN_FLIGHT
