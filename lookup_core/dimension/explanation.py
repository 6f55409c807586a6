"""Where the answer to a key would come from now, and why: for people who wonder about one.

Only words for what cache and flights know; looking changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lookup_core.cache.row_cache import Probe
from lookup_core.dimension.flight_table import Flight
from lookup_core.keys.typed_keys import TypedKeys


class KeyState(StrEnum):
    """Where a key stands."""

    CACHED = "cached"
    MISSING_CACHED = "missing_cached"
    IN_FLIGHT = "in_flight"
    ABSENT = "absent"
    UNASKABLE = "unaskable"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of one key; ages where it is cached, waiters where it is in flight."""

    state: KeyState
    reason: str
    age_ms: int | None = None
    expires_in_ms: int | None = None
    waiters: int = 0


def explain_unaskable(keys: TypedKeys, position: int) -> Explanation:
    """Why a key that is null or faulty never reaches the backend."""
    fault = keys.faults.get(position)
    why = "a NULL part matches nothing" if fault is None else f"refused before any query: {fault}"
    return Explanation(KeyState.UNASKABLE, why)


def explain_asked(probe: Probe, flights: Sequence[Flight | None]) -> Iterator[Explanation]:
    """One explanation a probed key, given the flight that a lookup of it would join."""
    for index, flight in enumerate(flights):
        if probe.is_row[index] or probe.is_missing[index]:
            yield Explanation(
                KeyState.CACHED if probe.is_row[index] else KeyState.MISSING_CACHED,
                "answered from the cache until it expires or is invalidated",
                age_ms=int(probe.ages_s[index] * 1000),
                expires_in_ms=int((probe.ttl_s[index] - probe.ages_s[index]) * 1000),
            )
        elif flight is not None:
            where = "at the backend" if flight.batch_id else "queued for the next query"
            reason = f"{where}; a lookup would wait with the others"
            yield Explanation(KeyState.IN_FLIGHT, reason, waiters=len(flight.waiters))
        else:
            yield Explanation(KeyState.ABSENT, "not cached: a lookup asks the backend")
