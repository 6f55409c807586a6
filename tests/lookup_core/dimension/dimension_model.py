"""A dimension's rules once more, one key at a time over lists: slow, plain, and without sharing.

What the real state is compared with; which keys make a query it learns from the real one, and
checks that they may.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lookup_core.errors import ErrorCode
from tests.lookup_core.dimension.dimension_script import FAULTY, Key, Order, Seen, Told

TTL_S = 10.0
NEGATIVE_TTL_S = 5.0
RETRY_DELAY_S = 1.0
MISSING_RETRIES = 1
MISSING_DELAY_S = 1.5


@dataclass(slots=True)
class Query:
    """Keys that are asked together; while it is parked, it is due at some time."""

    keys: list[int]  # also those that were given up since
    sent_at: float
    failures: int = 0
    misses: int = 0
    due: float | None = None
    is_postponed: bool = False  # parked because there were no rows


@dataclass(slots=True)
class Flight:
    """A key that somebody waits for."""

    key: int
    waiters: list[tuple[int, int]]  # (lookup, position)
    query: Query | None = None
    is_overtaken: bool = False  # by an invalidation, or by somebody who could not wait


@dataclass(slots=True)
class NaiveDimension:
    """All flights in a list, the cache in a dictionary; one retry of errors, one of absences."""

    max_keys: int
    max_in_flight: int
    cache: dict[int, tuple[str | None, float]] = field(
        default_factory=dict
    )  # {key: (name or absence, since)}
    flights: list[Flight] = field(default_factory=list)  # oldest first
    deadlines: dict[int, float] = field(default_factory=dict)  # {lookup that waits: deadline}
    at_backend: dict[int, Query] = field(default_factory=dict)  # {batch: query}
    parked: list[Query] = field(default_factory=list)  # in the order in which they were made
    ages: dict[tuple[int, int], float] = field(default_factory=dict)  # {(lookup, position): s}

    def submit(self, lookup: int, keys: list[Key], *, deadline: float, now: float) -> Told:
        """What is answered at once; the rest waits."""
        words: Told = {}
        for position, key in enumerate(keys):
            if not isinstance(key, int):
                words[position] = "error type" if key == FAULTY else "missing"
            elif self._is_fresh(key, now):
                name, since = self.cache[key]
                words[position] = "missing" if name is None else f"hit {name}"
                self.ages[lookup, position] = now - since
            else:
                self._join(key, (lookup, position), deadline)
                self.deadlines[lookup] = deadline
        return words

    def may_send(self, now: float) -> bool:
        """Whether there is a slot, and something to send."""
        has_slot = len(self.at_backend) < self.max_in_flight
        return has_slot and bool(self._queued() or self._due_at(now))

    def take(self, order: Order, now: float) -> None:
        """Check that this is what may be sent now, and that nothing is left out."""
        due = self._due_at(now)
        query = self._restarted(order, due) if due else self._begun(order, self._queued())
        query.sent_at, query.due, query.is_postponed = now, None, False
        self.at_backend[order.batch] = query

    def land(self, batch: int, names: dict[int, str], now: float) -> Seen:
        """Rows came for a query; what has no row may be asked again."""
        query = self.at_backend.pop(batch)
        is_last_try = query.misses == MISSING_RETRIES
        retry_at = now + MISSING_DELAY_S
        again = replace(query, keys=[], misses=query.misses + 1, due=retry_at, is_postponed=True)
        seen = Seen()
        for flight in self._of(query):
            name = names.get(flight.key)
            if not flight.is_overtaken and (name is not None or is_last_try):
                self.cache[flight.key] = (name, query.sent_at)
            patient = [each for each in flight.waiters if self._is_patient(each[0], again)]
            if name is None and not is_last_try and patient:
                again.keys.append(flight.key)
                flight.query = again
            else:
                patient = []
            done = [each for each in flight.waiters if each not in patient]
            self._tell(seen, done, "missing" if name is None else f"fetched {name}")
            self.ages |= dict.fromkeys(done, now - query.sent_at)
            flight.waiters = patient
        self.parked += [again] if again.keys else []
        return self._ended(seen)

    def fail(self, batch: int, code: ErrorCode, now: float) -> Seen:
        """A query failed."""
        query = self.at_backend.pop(batch)
        waiting = [lookup for flight in self._of(query) for lookup, _ in flight.waiters]
        latest = max(self.deadlines[lookup] for lookup in waiting)
        query.failures += 1
        if code.is_retryable and query.failures == 1 and now + RETRY_DELAY_S < latest:
            query.due = now + RETRY_DELAY_S
            self.parked.append(query)
            return Seen()
        seen = Seen()
        word = "timeout timeout" if code is ErrorCode.TIMEOUT else f"error {code}"
        for flight in self._of(query):
            self._tell(seen, flight.waiters, word)
            flight.waiters = []
        return self._ended(seen)

    def leave(self, lookup: int) -> Seen:
        """Nobody waits for this lookup."""
        self.deadlines.pop(lookup, None)
        for flight in self.flights:
            flight.waiters = [waiter for waiter in flight.waiters if waiter[0] != lookup]
        self.flights = [flight for flight in self.flights if flight.waiters]
        self.parked = [query for query in self.parked if self._of(query)]
        cancelled = [batch for batch, query in self.at_backend.items() if not self._of(query)]
        for batch in cancelled:
            del self.at_backend[batch]
        return Seen(cancelled=cancelled)

    def expire(self, now: float) -> Seen:
        """The clock is looked at."""
        seen = Seen()
        for lookup in [each for each, deadline in self.deadlines.items() if deadline <= now]:
            open_positions = [p for f in self.flights for each, p in f.waiters if each == lookup]
            seen.answers[lookup] = dict.fromkeys(open_positions, "timeout timeout")
            seen.ended.append(lookup)
            seen.cancelled.extend(self.leave(lookup).cancelled)
        return seen

    def invalidate(self, keys: Iterable[int]) -> int:
        """These keys have changed."""
        for flight in self.flights:
            if flight.key in keys and flight.query is not None:
                flight.is_overtaken = True
        return sum(self.cache.pop(key, None) is not None for key in set(keys))

    def next_deadline(self) -> float | None:
        """When something is to be done, while nothing can be sent now."""
        has_slot = len(self.at_backend) < self.max_in_flight
        times = [*self.deadlines.values(), *(map(self._due, self.parked) if has_slot else ())]
        return min(times, default=None)

    def _is_fresh(self, key: int, now: float) -> bool:
        name, since = self.cache.get(key, (None, -1e9))
        return now - since < (NEGATIVE_TTL_S if name is None else TTL_S)

    def _join(self, key: int, waiter: tuple[int, int], deadline: float) -> None:
        for flight in self.flights:
            if flight.key != key or flight.is_overtaken:
                continue
            query = flight.query
            if query is None or not query.is_postponed or self._due(query) < deadline:
                flight.waiters.append(waiter)
                return
            flight.is_overtaken = True
        self.flights.append(Flight(key, [waiter]))

    def _queued(self) -> list[Flight]:
        return [flight for flight in self.flights if flight.query is None]

    def _due_at(self, now: float) -> list[Query]:
        return [query for query in self.parked if self._due(query) <= now]

    def _restarted(self, order: Order, due: list[Query]) -> Query:
        first = min(map(self._due, due))
        query = next(
            each for each in due if each.due == first and sorted(each.keys) == sorted(order.keys)
        )
        self.parked.remove(query)
        return query

    def _begun(self, order: Order, queued: list[Flight]) -> Query:
        assert len(order.keys) == len(set(order.keys)) == min(self.max_keys, len(queued))
        query = Query(order.keys, 0.0)
        for flight in queued:
            if flight.key in order.keys:
                flight.query = query
        assert sorted(order.keys) == sorted(flight.key for flight in self._of(query))
        return query

    def _of(self, query: Query) -> list[Flight]:
        return [flight for flight in self.flights if flight.query is query]

    def _is_patient(self, lookup: int, again: Query) -> bool:
        return self.deadlines[lookup] > self._due(again)

    @staticmethod
    def _due(query: Query) -> float:
        assert query.due is not None
        return query.due

    @staticmethod
    def _tell(seen: Seen, waiters: list[tuple[int, int]], word: str) -> None:
        for lookup, position in waiters:
            seen.answers.setdefault(lookup, {})[position] = word

    def _ended(self, seen: Seen) -> Seen:
        self.flights = [flight for flight in self.flights if flight.waiters]
        waiting = {lookup for flight in self.flights for lookup, _ in flight.waiters}
        seen.ended.extend(set(seen.answers) - waiting)
        for lookup in seen.ended:
            del self.deadlines[lookup]
        return seen
