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
    """The state of one key; ages where it is cached, waiters where it is in flight.

    `retry_in_ms` where it is parked between two tries.
    """

    state: KeyState
    reason: str
    age_ms: int | None = None
    expires_in_ms: int | None = None
    waiters: int = 0
    retry_in_ms: int | None = None


def explain_unaskable(keys: TypedKeys, position: int) -> Explanation:
    """Why a key that is null or faulty never reaches the backend."""
    fault = keys.faults.get(position)
    why = "a NULL part matches nothing" if fault is None else f"refused before any query: {fault}"
    return Explanation(KeyState.UNASKABLE, why)


def explain_asked(
    probe: Probe,
    flights: Sequence[Flight | None],
    *,
    retries: Sequence[float | None],
    now: float,
) -> Iterator[Explanation]:
    """One explanation a probed key, given the flight that a lookup of it would join.

    `retries` tells of each when its query is tried again, None where it is not parked.
    """
    for index, (flight, retry_at) in enumerate(zip(flights, retries, strict=True)):
        if probe.is_row[index] or probe.is_missing[index]:
            yield Explanation(
                KeyState.CACHED if probe.is_row[index] else KeyState.MISSING_CACHED,
                "answered from the cache until it expires or is invalidated",
                age_ms=int(probe.ages_s[index] * 1000),
                expires_in_ms=int((probe.ttl_s[index] - probe.ages_s[index]) * 1000),
            )
        elif flight is not None:
            yield _explain_flight(flight, None if retry_at is None else retry_at - now)
        else:
            yield Explanation(KeyState.ABSENT, "not cached: a lookup asks the backend")


def _explain_flight(flight: Flight, retry_in_s: float | None) -> Explanation:
    if retry_in_s is not None:
        why = "no row was found" if flight.postponed_to else "the query failed"
        where = f"parked until the next try, because {why}"
    else:
        where = "at the backend" if flight.batch_id else "queued for the next query"
    return Explanation(
        KeyState.IN_FLIGHT,
        f"{where}; a lookup would wait with the others",
        waiters=len(flight.waiters),
        # Due already when all query slots are busy.
        retry_in_ms=None if retry_in_s is None else max(0, int(retry_in_s * 1000)),
    )
