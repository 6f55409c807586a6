"""Explanation of one key: where its answer would come from now, and why.

Turns facts of the dimension's state into words; reads no state itself.
"""

import math
from dataclasses import dataclass, replace

from lookup_core.compatibility import TextEnum
from lookup_core.dimension.flight_table import Flight
from lookup_core.errors import ErrorCode


class KeyState(TextEnum):
    """The state of a key."""

    CACHED = "cached"
    MISSING_CACHED = "missing_cached"
    STALE = "stale"
    IN_FLIGHT = "in_flight"
    NOT_CACHED = "not_cached"
    REFUSED = "refused"
    UNASKABLE = "unaskable"


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
class KeyFacts:
    """The facts about one valid key; times are seconds from now."""

    is_row: bool
    is_missing: bool  # a negative entry
    is_stale: bool
    is_revalidated: bool  # stale, and answered at once
    is_trusted: bool  # whether cached rows may be served
    is_backend_down: bool
    age_s: float
    ttl_s: float
    refused_for_s: float | None
    flight: Flight | None
    retry_in_s: float | None  # of the flight's query, if it is parked


def explain_invalid(fault: ErrorCode | None) -> Explanation:
    """The explanation of a key with this fault, or with a NULL."""
    why = "a NULL part matches nothing" if fault is None else f"refused before any query: {fault}"
    return Explanation(KeyState.UNASKABLE, why)


def explain_key(facts: KeyFacts) -> Explanation:
    """The explanation of a valid key."""
    if facts.is_row or facts.is_missing or facts.is_stale:
        return _cached(facts)
    if facts.refused_for_s is not None:
        next_try = f"queried again in {facts.refused_for_s:.0f} s"
        why = f"the backend refused its value, or its row; {next_try}"
        return Explanation(KeyState.REFUSED, why)
    if facts.flight is not None:
        return _in_flight(facts, facts.flight)
    why = f"not cached: a lookup queries the backend{_unless_down(facts)}"
    if not facts.is_trusted:
        why += "; its row is not cached, as changes are not followed: see freshness.feed"
    return Explanation(KeyState.NOT_CACHED, why)


def _cached(facts: KeyFacts) -> Explanation:
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


def _stale_reason(facts: KeyFacts) -> str:
    if facts.is_backend_down:
        then = "still the answer, as the backend does not respond"
    else:
        then = "read again, and the answer only if that fails"
    if not facts.is_trusted:
        return f"its changes are not reported at present: {then}"
    if facts.is_revalidated:
        refresh = "under way" if facts.flight is not None else "started by a lookup"
        return f"beyond its time to live: answered at once; its refresh is {refresh}"
    return f"beyond its time to live: {then}"


def _in_flight(facts: KeyFacts, flight: Flight) -> Explanation:
    if facts.retry_in_s is not None:
        why = "no row was found" if flight.postponed_to else "the query failed"
        where = f"parked until the next attempt, because {why}"
    else:
        where = "at the backend" if flight.batch_id else "queued for the next query"
    return Explanation(
        KeyState.IN_FLIGHT,
        f"{where}; a lookup would wait with the others{_unless_down(facts)}",
        waiters=flight.waiters,
        retry_in_ms=_retry_in_ms(facts),
    )


def _retry_in_ms(facts: KeyFacts) -> int | None:
    # In the past while all query slots are busy.
    return None if facts.retry_in_s is None else max(0, int(facts.retry_in_s * 1000))


def _unless_down(facts: KeyFacts) -> str:
    return ", once it responds again" if facts.is_backend_down else ""
