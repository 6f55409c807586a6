"""Explanation of one key: where its answer would come from now, and why.

Reads the parts of a dimension's state, and changes none.
"""

import math
from dataclasses import dataclass, replace

from lookup_core.compatibility import TextEnum
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.flights import Flight
from lookup_core.errors import ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.keys.typed_keys import TypedKeys


class KeyState(TextEnum):
    """The state of a key."""

    CACHED = "cached"
    MISSING_CACHED = "missing_cached"
    STALE = "stale"
    IN_FLIGHT = "in_flight"
    NOT_CACHED = "not_cached"
    REFUSED = "refused"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of one key; ages if it is cached, waiters if it is in flight.

    `expires_in_ms` is negative for a row beyond its time to live, and None for one of a full
    table. `retry_in_ms` is set while its query is parked. `breaker` is the breaker's state.
    """

    state: KeyState
    reason: str
    age_ms: int | None = None
    expires_in_ms: int | None = None
    waiters: int = 0
    retry_in_ms: int | None = None
    breaker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyFacts:
    """The facts about one valid key; times are seconds from now."""

    is_row: bool
    is_missing: bool  # a negative entry
    is_stale: bool
    is_revalidated: bool  # stale, and answered at once
    distrusted_feed: FeedState | None  # None: cached rows may be served
    is_held: bool  # queries wait for the first load
    is_backend_down: bool
    age_s: float
    ttl_s: float
    refused_for_s: float | None
    flight: Flight | None
    retry_in_s: float | None  # while the flight's query is parked


def explain(state: DimensionState, keys: TypedKeys, now: float) -> list[Explanation]:
    """The explanation of each key, to lookups without options; counts as no visit.

    `now` is monotonic seconds.
    """
    local, in_flight, guard = state.local, state.in_flight, state.guard
    explained = [_explain_invalid(keys.faults.get(position)) for position in range(keys.size)]
    positions, canonical, probe = local.peek(keys, now)
    is_revalidated = local.is_revalidated(probe, now)
    for index, key_id in enumerate(canonical.ids()):
        refused_until = local.quarantine.until(key_id, now)
        flight = in_flight.flight(key_id)
        retry_at = None if flight is None else flight.retry_at
        facts = _KeyFacts(
            is_row=bool(probe.is_row[index]),
            is_missing=bool(probe.is_missing[index]),
            is_stale=bool(probe.is_stale[index]),
            is_revalidated=bool(is_revalidated[index]),
            distrusted_feed=local.distrusted_feed(now),
            is_held=in_flight.is_held(now),
            is_backend_down=guard.is_open,
            age_s=float(probe.ages_s[index]),
            ttl_s=float(probe.ttl_s[index]),
            refused_for_s=None if refused_until is None else refused_until - now,
            flight=flight,
            retry_in_s=None if retry_at is None else retry_at - now,
        )
        explained[positions[index]] = _explain_key(facts)
    breaker = guard.breaker.state.label
    return [replace(each, breaker=breaker) for each in explained]


def _explain_invalid(fault: ErrorCode | None) -> Explanation:
    """The explanation of a key with this fault, or with a NULL."""
    why = "a NULL part matches nothing" if fault is None else f"refused before any query: {fault}"
    return Explanation(KeyState.INVALID, why)


def _explain_key(facts: _KeyFacts) -> Explanation:
    """The explanation of a valid key."""
    if facts.is_row or facts.is_missing or facts.is_stale:
        return _cached(facts)
    if facts.refused_for_s is not None:
        next_try = f"queried again in {facts.refused_for_s:.0f} s"
        why = f"the backend refused its value, or its row; {next_try}"
        return Explanation(KeyState.REFUSED, why)
    if facts.flight is not None:
        return _in_flight(facts, facts.flight)
    if facts.is_held:
        return Explanation(KeyState.NOT_CACHED, f"not cached: {_first_load(facts)}")
    why = f"not cached: a lookup queries the backend{_unless_down(facts)}"
    if facts.distrusted_feed is not None:
        feed = facts.distrusted_feed.value
        why += f"; its row is not cached, as the feed is {feed}: see freshness.feed"
    return Explanation(KeyState.NOT_CACHED, why)


def _first_load(facts: _KeyFacts) -> str:
    if facts.distrusted_feed is None:
        return "lookups wait for the first load: see freshness.load"
    return "lookups wait for the first load, which waits for its feed: see freshness.feed"


def _cached(facts: _KeyFacts) -> Explanation:
    state = KeyState.CACHED if facts.is_row else KeyState.MISSING_CACHED
    reason = "answered from the cache until it expires or is invalidated"
    expires_in_s = facts.ttl_s - facts.age_s
    if math.isinf(expires_in_s):
        reason = "answered from the full table"
    if facts.is_stale:
        state, reason = KeyState.STALE, _stale_reason(facts)
    explained = Explanation(
        state,
        reason,
        age_ms=int(facts.age_s * 1000),
        expires_in_ms=None if math.isinf(expires_in_s) else int(expires_in_s * 1000),
    )
    if facts.flight is None:
        return explained
    return replace(explained, waiters=facts.flight.waiters, retry_in_ms=_retry_in_ms(facts))


def _stale_reason(facts: _KeyFacts) -> str:
    if facts.is_backend_down:
        then = "still the answer, as the backend does not respond"
    else:
        then = "read again, and the answer only if that fails"
    if facts.distrusted_feed is not None:
        return f"the feed is {facts.distrusted_feed.value}: {then}"
    if facts.is_revalidated:
        refresh = "under way" if facts.flight is not None else "started by a lookup"
        return f"beyond its time to live: answered at once; its refresh is {refresh}"
    return f"beyond its time to live: {then}"


def _in_flight(facts: _KeyFacts, flight: Flight) -> Explanation:
    if facts.is_held:
        return Explanation(KeyState.IN_FLIGHT, _first_load(facts), waiters=flight.waiters)
    if facts.retry_in_s is not None:
        why = "no row was found" if flight.is_postponed else "the query failed"
        where = f"parked until the next attempt, because {why}"
    else:
        where = "at the backend" if flight.batch_id else "queued for the next query"
    return Explanation(
        KeyState.IN_FLIGHT,
        f"{where}; a lookup would wait with the others{_unless_down(facts)}",
        waiters=flight.waiters,
        retry_in_ms=_retry_in_ms(facts),
    )


def _retry_in_ms(facts: _KeyFacts) -> int | None:
    # In the past while all query slots are busy.
    return None if facts.retry_in_s is None else max(0, int(facts.retry_in_s * 1000))


def _unless_down(facts: _KeyFacts) -> str:
    return ", once it responds again" if facts.is_backend_down else ""
