"""The words for where a key's answer would come from."""

import pytest

from lookup_core.answer import Outcome
from lookup_core.dimension.explanation import Explanation, KeyState
from lookup_core.errors import ErrorCode
from lookup_core.settings import CacheMode, OnMissingSettings, RetrySettings
from tests.lookup_core.dimension.dimension_script import FAULTY, DimensionScript, Key, settings

RETRIES = RetrySettings(
    max_retries=1, initial_s=1.0, on_missing=OnMissingSettings(max_retries=1, delay_s=1.5)
)


@pytest.fixture
def script() -> DimensionScript:
    """Rows live 10 s; they may be served for 2 s more while they are read, 6 s more on errors."""
    return DimensionScript(
        settings(retry=RETRIES, stale_while_revalidate_s=2.0, stale_if_error_s=6.0)
    )


def explained(script: DimensionScript, key: Key = 7) -> Explanation:
    """The explanation of one key."""
    (explanation,) = script.explain(key)
    return explanation


def open_breaker(script: DimensionScript) -> None:
    """Let a store that is away be known as such."""
    for lookup in range(100, 103):
        script.submit(lookup, lookup)
        order = script.order()
        assert order is not None
        script.fail(order.batch)


def test_cached_row_tells_its_age(script: DimensionScript) -> None:
    """A hit tells how old it is and how long it will live."""
    script.keep({7: "Ada"})
    script.now = 1.5

    assert explained(script) == Explanation(
        KeyState.CACHED,
        "answered from the cache until it expires or is invalidated",
        age_ms=1500,
        expires_in_ms=8500,
        breaker="closed",
    )


def test_whole_table_has_no_time_to_live() -> None:
    """Where the table is held whole, what is known does not expire; here, that there is no row."""
    script = DimensionScript(settings(mode=CacheMode.FULL))
    assert script.state.whole is not None
    assert script.state.whole.begin_load(now=0.0).finish(now=0.0)
    script.now = 1.5

    assert explained(script) == Explanation(
        KeyState.MISSING_CACHED,
        "answered from the table, which is held whole",
        age_ms=1500,
        breaker="closed",
    )


def test_cached_absence_is_told_apart() -> None:
    """That there is no row is known for a time, too."""
    script = DimensionScript()
    script.submit(1, 7)
    script.order()
    script.land(1, {})

    assert explained(script).state is KeyState.MISSING_CACHED


def test_stale_row_tells_what_is_done(script: DimensionScript) -> None:
    """Beyond its time a row is answered and read anew; later it only stands in for failures."""
    script.keep({7: "Ada"})
    script.now = 11.0
    beyond = "beyond its time: answered at once, and read anew, which"
    assert explained(script).reason == f"{beyond} a lookup begins"

    script.submit(1, 7)

    assert explained(script) == Explanation(
        KeyState.STALE,
        f"{beyond} is under way",
        age_ms=11_000,
        expires_in_ms=-1000,
        waiters=1,
        breaker="closed",
    )
    script.now = 13.0
    assert explained(script).reason == (
        "beyond its time: read anew, and the answer only if that fails"
    )


def test_stale_row_stands_in_for_a_store_that_is_away(script: DimensionScript) -> None:
    """Who asks while nothing is sent is told that it is the answer, and why."""
    script.keep({7: "Ada"})
    script.now = 13.0
    open_breaker(script)

    reason = explained(script).reason
    script.submit(1, 7)

    assert reason == "beyond its time: the answer all the same, as the store does not answer"
    assert script.state.statistics().outcomes[Outcome.STALE] == 1


def test_flight_tells_where_it_is(script: DimensionScript) -> None:
    """Queued or sent: a lookup would wait with those who wait already."""
    script.submit(1, 7)
    script.submit(2, 7)
    with_others = "a lookup would wait with the others"

    queued = explained(script)
    script.order()

    assert queued == Explanation(
        KeyState.IN_FLIGHT,
        f"queued for the next query; {with_others}",
        waiters=2,
        breaker="closed",
    )
    assert explained(script).reason == f"at the store; {with_others}"


@pytest.mark.parametrize(
    ("code", "why", "delay_ms"),
    [(ErrorCode.TIMEOUT, "the query failed", 1000), (None, "no row was found", 1500)],
)
def test_parked_key_tells_when_it_is_asked(
    script: DimensionScript, code: ErrorCode | None, why: str, delay_ms: int
) -> None:
    """Between two tries a key tells why it waits, and how long from now; never in the past."""
    script.submit(1, 7)
    script.order()
    script.land(1, {}) if code is None else script.fail(1, code)

    parked = f"parked until the next try, because {why}; a lookup would wait with the others"
    assert explained(script) == Explanation(
        KeyState.IN_FLIGHT, parked, waiters=1, retry_in_ms=delay_ms, breaker="closed"
    )
    script.now = 5.0
    assert explained(script).retry_in_ms == 0


def test_unknown_key_asks_the_store(script: DimensionScript) -> None:
    """What is neither cached nor on its way has to be fetched."""
    assert explained(script) == Explanation(
        KeyState.NOT_CACHED, "not cached: a lookup asks the store", breaker="closed"
    )


def test_row_that_is_not_kept_is_told(script: DimensionScript) -> None:
    """While changes are not followed, who wonders about the next query learns why it comes."""
    script.state.changes.trust(is_trusted=False)

    assert explained(script).reason == (
        "not cached: a lookup asks the store; its row is not kept, as changes are not followed: "
        "see freshness.feed"
    )


def test_open_breaker_is_told(script: DimensionScript) -> None:
    """While the store is away a key tells that it will be asked when it is back."""
    open_breaker(script)

    assert explained(script) == Explanation(
        KeyState.NOT_CACHED,
        "not cached: a lookup asks the store, once it answers again",
        breaker="open",
    )


def test_refused_key_tells_until_when(script: DimensionScript) -> None:
    """A key whose value the store refused is not asked for a while."""
    script.submit(1, 7)
    script.order()
    script.fail(1, ErrorCode.KEY_REJECTED)
    script.now = 10.0

    assert explained(script) == Explanation(
        KeyState.REFUSED, "the store refused its value; asked again in 20 s", breaker="closed"
    )


def test_unaskable_key_tells_why(script: DimensionScript) -> None:
    """A NULL and a faulty key never reach the store, for different reasons."""
    null, faulty = script.explain(None, FAULTY)

    assert null.reason == "a NULL part matches nothing"
    assert faulty.reason == "refused before any query: type"
    assert {null.state, faulty.state} == {KeyState.UNASKABLE}
