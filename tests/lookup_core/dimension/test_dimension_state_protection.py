"""How a dimension spares its store, and what callers get meanwhile."""

import pytest

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import BatchSettings, RetrySettings
from lookup_core.statistics import InvalidationOrigin
from tests.lookup_core.dimension.dimension_script import (
    NOTHING,
    DimensionScript,
    Order,
    Seen,
    settings,
    typed,
)

RETRYING = RetrySettings(max_retries=2, initial_s=1.0)


@pytest.fixture
def script() -> DimensionScript:
    """Rows live 10 s, are read anew behind 2 s more, and stand in for failures for 6 s more."""
    return DimensionScript(
        settings(retry=RETRYING, stale_while_revalidate_s=2.0, stale_if_error_s=6.0)
    )


def open_breaker(script: DimensionScript) -> None:
    """The store fails three times in a row."""
    for lookup in range(100, 103):
        script.submit(lookup, lookup, deadline=script.now + 3.0)
        order = script.order()
        assert order is not None
        script.fail(order.batch)


def begin_reading_anew(script: DimensionScript) -> None:
    """Row 7 is beyond its time and was served all the same; query 2 reads it anew."""
    script.keep({7: "Ada"})
    script.now = 11.0
    script.submit(1, 7)
    script.order()


def find_refused(script: DimensionScript, refused: set[int]) -> Seen:
    """Carry out all queries of a store that refuses every batch with one of these keys."""
    answers: dict[int, dict[int, str]] = {}
    while (order := script.order()) is not None:
        if refused & set(order.keys):
            seen = script.fail(order.batch, ErrorCode.KEY_REJECTED)
        else:
            seen = script.land(order.batch, {key: f"row {key}" for key in order.keys})
        for lookup, words in seen.answers.items():
            answers.setdefault(lookup, {}).update(words)
    return Seen(answers)


# Stale rows


def test_stale_row_is_answered_and_read_anew(script: DimensionScript) -> None:
    """A row just beyond its time is the answer at once; one query brings the next one."""
    script.keep({7: "Ada"})
    script.now = 11.0

    assert script.submit(1, 7) == {0: "stale Ada"}
    assert script.submit(2, 7) == {0: "stale Ada"}
    assert script.order() == Order(2, [7])
    assert script.order() is None
    assert script.land(2, {7: "Bea"}) == NOTHING
    assert script.submit(3, 7) == {0: "hit Bea"}


def test_reading_anew_is_nobodys_lookup(script: DimensionScript) -> None:
    """What is read anew is counted as no lookup, and who joins it is answered by it."""
    begin_reading_anew(script)
    script.now = 12.0
    assert script.submit(2, 7) == {}

    assert script.land(2, {7: "Bea"}) == Seen({2: {0: "fetched Bea"}}, ended=[2])
    outcomes = script.state.statistics().outcomes
    assert (outcomes[Outcome.FETCHED], outcomes[Outcome.STALE]) == (2, 1)


def test_failed_reading_anew_is_silent(script: DimensionScript) -> None:
    """When reading anew fails nobody is told, and the row stays what it was."""
    begin_reading_anew(script)

    assert script.fail(2, ErrorCode.FORBIDDEN) == NOTHING
    assert script.submit(2, 7) == {0: "stale Ada"}


def test_row_that_is_gone_is_not_stale(script: DimensionScript) -> None:
    """When reading anew finds no row, the old one is served no longer."""
    begin_reading_anew(script)
    script.land(2, {})

    assert script.submit(2, 7) == {0: "missing"}


def test_row_that_is_not_the_only_one_is_not_stale(script: DimensionScript) -> None:
    """When reading anew finds several rows, the old one is served no longer."""
    begin_reading_anew(script)
    script.land(2, {7: ["Ada", "Bea"]})

    assert script.submit(2, 7) == {}


def test_reading_anew_needs_room() -> None:
    """When too many keys wait already, stale rows are answered and not read anew."""
    script = DimensionScript(settings(max_waiting_keys=2, stale_while_revalidate_s=2.0))
    script.keep({7: "Ada"})
    script.now = 11.0
    script.submit(1, 1, 2)
    script.order()

    assert script.submit(2, 7) == {0: "stale Ada"}
    assert script.order() is None


def test_old_row_stands_in_for_a_failure(script: DimensionScript) -> None:
    """When the last try fails, who asked for a key with an old row gets that, others the error."""
    script.keep({7: "Ada"})
    script.now = 13.0
    assert script.submit(1, 7, 8, deadline=13.5) == {}
    script.order()

    seen = script.fail(2)

    assert seen == Seen(
        {1: {0: "stale Ada", 1: "error backend_unavailable"}},
        ended=[1],
    )
    assert script.ages[1, 0] == 13.0


def test_old_row_stands_in_for_a_timeout(script: DimensionScript) -> None:
    """Who has waited for the whole time gets the old row as well."""
    script.keep({7: "Ada"})
    script.now = 13.0
    script.submit(1, 7, 8, deadline=14.0)
    script.order()
    script.now = 14.0

    seen = script.expire()

    assert seen.answers == {1: {0: "stale Ada", 1: "timeout timeout"}}
    assert (seen.ended, seen.cancelled) == ([1], [2])


def test_old_rows_are_answered_at_once_in_an_outage(script: DimensionScript) -> None:
    """While the store is known to be away nobody waits for a key with an old row."""
    script.keep({7: "Ada"})
    script.now = 13.0
    open_breaker(script)

    assert script.submit(1, 7, 8) == {0: "stale Ada"}


# Refused keys


def test_refused_key_harms_no_other(script: DimensionScript) -> None:
    """Exactly the keys that the store refuses have an error, whatever was asked with them."""
    keys, refused = range(500), {3, 250, 251, 499}
    script.submit(1, *keys)

    seen = find_refused(script, refused)

    assert seen.answers == {
        1: {key: "error key_rejected" if key in refused else f"fetched row {key}" for key in keys}
    }


def test_refused_key_is_not_asked_again_soon(script: DimensionScript) -> None:
    """For 30 s a refused key is answered without the store; then it is asked again."""
    script.submit(1, 7)
    find_refused(script, {7})

    script.now = 29.9
    assert script.submit(2, 7, 8) == {0: "error key_rejected"}
    script.now = 30.0
    assert script.submit(3, 7) == {}


def test_invalidation_ends_a_refusal(script: DimensionScript) -> None:
    """A key that is said to have changed may be asked for again."""
    for invalidated in ((7,), ()):
        script.submit(1, 7)
        find_refused(script, {7})
        script.invalidate(*invalidated)

        assert script.submit(2, 7) == {}
        script.leave(2)


def test_search_for_refused_keys_is_bounded(script: DimensionScript) -> None:
    """Where nearly everything is refused, what was not found in time has another error."""
    keys = range(500)
    script.submit(1, *keys)
    seen = find_refused(script, set(keys))

    words = list(seen.answers[1].values())

    assert len(words) == 500
    assert set(words) == {"error key_rejected", "error backend_rejected"}
    assert script.order() is None


def test_search_for_refused_keys_delays_no_others() -> None:
    """New keys and the parts of a refused batch have the slots in turns."""
    one_slot = BatchSettings(max_keys=4, max_in_flight=1)
    script = DimensionScript(settings(batch=one_slot))
    script.submit(1, 1, 2, 3, 4)
    script.order()
    script.submit(2, 5, 6, 7, 8, 9, 10)
    script.fail(1, ErrorCode.KEY_REJECTED)
    sent = []
    while (order := script.order()) is not None:
        sent.append(order.keys)
        script.land(order.batch, {})

    assert sent in (
        [[1, 2], [5, 6, 7, 8], [3, 4], [9, 10]],
        [[5, 6, 7, 8], [1, 2], [9, 10], [3, 4]],
    )


def test_keys_given_up_are_not_searched(script: DimensionScript) -> None:
    """A part of a refused batch that nobody waits for any more is dropped."""
    script.submit(1, 1, 2)
    script.submit(2, 3)
    script.order()
    script.leave(1)
    script.fail(1, ErrorCode.KEY_REJECTED)

    assert script.order() == Order(2, [3])
    assert script.fail(2, ErrorCode.KEY_REJECTED).answers == {2: {0: "error key_rejected"}}


# The store in trouble


def test_query_that_took_too_long_is_halved(script: DimensionScript) -> None:
    """After a timeout the keys are tried again in two smaller queries."""
    script.submit(1, 1, 2, 3)
    script.order()
    script.fail(1, ErrorCode.TIMEOUT)
    script.now = 1.0

    assert (script.order(), script.order()) == (Order(2, [1, 2]), Order(3, [3]))


def test_lookups_wait_while_the_store_is_away(script: DimensionScript) -> None:
    """Nothing is sent but probes; when one is answered those who wait get their rows."""
    open_breaker(script)
    script.submit(1, 7)
    assert script.order() is None
    script.now = 1.0
    assert script.state.start_probe_if_due(script.now)
    script.state.on_probe(None, now=script.now, jitter=0.0)

    keys = {key for order in iter(script.order, None) for key in order.keys}

    assert keys == {7, 100, 101, 102}


def test_impatience_hides_no_outage(script: DimensionScript) -> None:
    """Callers who give up before a query's own timeout do not hide that the store hangs."""
    states = []
    for lookup, patience_s in enumerate((0.9, 0.9, 0.9, 1.0, 1.0, 1.0)):
        script.submit(lookup, lookup, deadline=script.now + patience_s)
        script.order()
        script.now += patience_s
        script.expire()
        states.append(script.state.statistics().breaker_state)

    assert states == [BreakerState.CLOSED] * 5 + [BreakerState.OPEN]


def test_waiting_ends_with_what_is_wrong(script: DimensionScript) -> None:
    """Whose time is over while the store is away gets that as the error, never an absence."""
    open_breaker(script)
    script.submit(1, 7, deadline=2.0)
    script.now = 2.0

    assert script.expire().answers == {1: {0: "error backend_unavailable"}}


def test_keys_given_up_make_room_in_an_outage(script: DimensionScript) -> None:
    """Keys that nobody waits for any more are not held until the store is back."""
    open_breaker(script)
    for lookup in range(1, 6):
        script.submit(lookup, *range(1000 * lookup, 1000 * lookup + 900))
        script.leave(lookup)

    assert script.state.statistics().queued_keys <= 100


def test_failed_probe_is_followed_by_another(script: DimensionScript) -> None:
    """Each probe is asked for once, the next one after a pause."""
    open_breaker(script)
    script.now = 0.1

    assert script.state.start_probe_if_due(script.now)
    assert not script.state.start_probe_if_due(script.now)
    script.state.on_probe(ErrorCode.TIMEOUT, now=0.2, jitter=1.0)
    assert not script.state.start_probe_if_due(0.2)
    assert script.state.start_probe_if_due(0.4)


def test_statistics_tell_of_the_breaker(script: DimensionScript) -> None:
    """Closed at first, open when the store is away."""
    assert script.state.statistics().breaker_state is BreakerState.CLOSED

    open_breaker(script)

    assert script.state.statistics().breaker_state is BreakerState.OPEN


def test_slow_store_gets_fewer_queries_at_once() -> None:
    """A timeout lowers the limit of queries in flight."""
    script = DimensionScript(settings(batch=BatchSettings(max_keys=1, max_in_flight=4)))
    script.submit(1, 1, 2, 3, 4, 5)
    for _ in range(4):
        script.order()

    script.fail(1, ErrorCode.TIMEOUT)

    assert script.state.statistics().concurrency_limit == 2
    assert script.order() is None


# The default row, and the room for rows


def test_default_row_stands_for_absences() -> None:
    """Whether the absence is read, remembered, or a NULL: the default row is the answer."""
    script = DimensionScript(settings(default={"name": "nobody"}))
    assert script.submit(1, 7, None) == {1: "default nobody"}
    script.order()

    assert script.land(1, {}) == Seen({1: {0: "default nobody"}}, ended=[1])
    assert script.submit(2, 7) == {0: "default nobody"}


def test_default_row_stands_for_no_error() -> None:
    """A failure stays a failure."""
    script = DimensionScript(settings(default={"name": "nobody"}))
    script.submit(1, 7)
    script.order()

    assert script.fail(1, ErrorCode.FORBIDDEN).answers == {1: {0: "error forbidden"}}


def test_cache_gives_its_room_up(script: DimensionScript) -> None:
    """A cache whose room is taken away lets its rows go, and keeps rows again when it has room."""
    script.keep({7: "Ada"})

    script.state.limit_cache(0.0)
    assert script.state.statistics().cache.rows == 0
    script.state.limit_cache(1.0)
    script.keep({7: "Ada"})

    assert script.submit(1, 7) == {0: "hit Ada"}


def test_origin_of_an_invalidation_is_told(script: DimensionScript) -> None:
    """Rows that went because another server answered are counted apart."""
    script.keep({7: "Ada", 8: "Bert"})

    assert script.state.invalidate(None, InvalidationOrigin.FAILOVER) == 2
    assert script.state.invalidate(typed(7), InvalidationOrigin.ADMIN) == 0
    assert script.state.statistics().invalidations == {
        InvalidationOrigin.ADMIN: 1,
        InvalidationOrigin.CHANGELOG: 0,
        InvalidationOrigin.NOTIFICATION: 0,
        InvalidationOrigin.FAILOVER: 2,
        InvalidationOrigin.SCHEMA: 0,
    }
