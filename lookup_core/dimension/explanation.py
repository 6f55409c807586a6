"""Where the answer to a key would come from now, and why: for people who wonder about one.

Only words for what cache, flights and guard know; looking changes nothing.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from lookup_core.cache.row_cache import Probe
from lookup_core.dimension.flight_table import Flight, FlightTable
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.dimension.query_table import QueryTable
from lookup_core.keys.canonical_keys import KeyId
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.protection.backend_guard import BackendGuard


class KeyState(StrEnum):
    """Where a key stands."""

    CACHED = "cached"
    MISSING_CACHED = "missing_cached"
    STALE = "stale"
    IN_FLIGHT = "in_flight"
    NOT_CACHED = "not_cached"
    REFUSED = "refused"
    UNASKABLE = "unaskable"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of one key; ages where it is cached, waiters where it is in flight.

    `expires_in_ms` is negative for a row that is kept beyond its time, and None for one that has
    none, being of a table that is held whole. `retry_in_ms` where it is
    parked between two tries. `breaker` is the state of the dimension's breaker.
    """

    state: KeyState
    reason: str
    age_ms: int | None = None
    expires_in_ms: int | None = None
    waiters: int = 0
    retry_in_ms: int | None = None
    breaker: str = ""


@dataclass(frozen=True, slots=True)
class Explainer:
    """Looks at the parts of one dimension's state; `now` is monotonic seconds."""

    known: LocalResolver
    flights: FlightTable
    queries: QueryTable
    guard: BackendGuard

    def explain(self, keys: TypedKeys, now: float) -> list[Explanation]:
        """One explanation a key, in order."""
        explained = [_unaskable(keys, position) for position in range(keys.size)]
        positions, canonical, probe = self.known.peek(keys, now)
        for index, key_id in enumerate(canonical.ids()):
            explained[positions[index]] = self._asked(key_id, probe, index, now=now)
        return [replace(each, breaker=self.guard.breaker_state.label) for each in explained]

    def _asked(self, key_id: KeyId, probe: Probe, index: int, *, now: float) -> Explanation:
        if probe.is_row[index] or probe.is_missing[index] or probe.is_stale[index]:
            return self._cached(key_id, probe, index, now=now)
        refused_until = self.known.refused_until(key_id, now)
        if refused_until is not None:
            why = f"the store refused its value; asked again in {refused_until - now:.0f} s"
            return Explanation(KeyState.REFUSED, why)
        flight = self.flights.get(key_id)
        if flight is not None:
            return self._in_flight(flight, now)
        why = "not cached: a lookup asks the store" + self._unless()
        if not self.known.is_trusted:
            why += "; its row is not kept, as changes are not followed: see freshness.feed"
        return Explanation(KeyState.NOT_CACHED, why)

    def _cached(self, key_id: KeyId, probe: Probe, index: int, *, now: float) -> Explanation:
        state = KeyState.CACHED if probe.is_row[index] else KeyState.MISSING_CACHED
        reason = "answered from the cache until it expires or is invalidated"
        expires_in_s = float(probe.ttl_s[index] - probe.ages_s[index])
        if math.isinf(expires_in_s):
            reason = "answered from the table, which is held whole"
        if probe.is_stale[index]:
            state, reason = KeyState.STALE, self._stale_reason(key_id, probe, index)
        explained = Explanation(
            state,
            reason,
            age_ms=int(probe.ages_s[index] * 1000),
            expires_in_ms=None if math.isinf(expires_in_s) else int(expires_in_s * 1000),
        )
        flight = self.flights.get(key_id)
        if flight is None:
            return explained
        under_way = self._in_flight(flight, now)
        return replace(explained, waiters=under_way.waiters, retry_in_ms=under_way.retry_in_ms)

    def _stale_reason(self, key_id: KeyId, probe: Probe, index: int) -> str:
        if not self.known.is_trusted:
            return f"its changes are not told at present: {self._stands_in()}"
        if self.known.is_revalidated(probe)[index]:
            is_being_read = self.flights.get(key_id) is not None
            then = "which is under way" if is_being_read else "which a lookup begins"
            return f"beyond its time: answered at once, and read anew, {then}"
        return f"beyond its time: {self._stands_in()}"

    def _stands_in(self) -> str:
        if self.guard.is_open:
            return "the answer all the same, as the store does not answer"
        return "read anew, and the answer only if that fails"

    def _in_flight(self, flight: Flight, now: float) -> Explanation:
        retry_at = self.queries.retry_at(flight.batch_id)
        if retry_at is not None:
            why = "no row was found" if flight.postponed_to else "the query failed"
            where = f"parked until the next try, because {why}"
        else:
            where = "at the store" if flight.batch_id else "queued for the next query"
        return Explanation(
            KeyState.IN_FLIGHT,
            f"{where}; a lookup would wait with the others" + self._unless(),
            waiters=flight.waiters,
            # Due already when all query slots are busy.
            retry_in_ms=None if retry_at is None else max(0, int((retry_at - now) * 1000)),
        )

    def _unless(self) -> str:
        return ", once it answers again" if self.guard.is_open else ""


def _unaskable(keys: TypedKeys, position: int) -> Explanation:
    fault = keys.faults.get(position)
    why = "a NULL part matches nothing" if fault is None else f"refused before any query: {fault}"
    return Explanation(KeyState.UNASKABLE, why)
