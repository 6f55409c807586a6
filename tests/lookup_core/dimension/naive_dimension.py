"""Reference model of a dimension: one key at a time, over lists, slow and plain.

The model learns from the real state which keys make a query, and checks that they may. Its guard
is a second one of the same class, which has tests of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lookup_core.errors import ErrorCode
from lookup_core.lookup_options import LookupOptions
from lookup_core.protection.backend_guard import BackendGuard
from tests.lookup_core.dimension.scenario import (
    FAULTY,
    MISSING_RETRY_S,
    NEGATIVE_TTL_S,
    RETRY_S,
    TIMEOUT_S,
    TTL_S,
    Key,
    Order,
    Result,
    Words,
)

REVALIDATE_S = 2.0
IF_ERROR_S = 6.0
QUARANTINE_S = 30.0
NEVER = float("inf")
RETRIES = 1
MISSING_RETRIES = 1


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries of a lookup for missing keys, and for rows without a name."""

    count: int
    delay_s: float
    needs_name: bool = False


CONFIGURED = Retries(MISSING_RETRIES, MISSING_RETRY_S)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a lookup asks for, with the deadline and the time up to which reads are too old."""

    deadline: float
    read_after: float = -NEVER
    retries: Retries = CONFIGURED
    uses_missing: bool = True  # whether a cached `missing` is an answer


def terms(options: LookupOptions | None, *, deadline: float, now: float) -> Terms:
    """The terms of a lookup at this time."""
    if options is None:
        return Terms(deadline)
    read_after = -NEVER if options.max_age_ms is None else now - options.max_age_ms / 1000
    if options.max_retries is None or options.retry_delay_ms is None:
        return Terms(deadline, read_after)
    needs_name = options.retry_if is not None
    retries = Retries(options.max_retries, options.retry_delay_ms / 1000, needs_name)
    return Terms(deadline, read_after, retries, uses_missing=not retries.count)


@dataclass(slots=True)
class Query:
    """Keys of one query; `due` is the time of its next attempt."""

    batch: int
    keys: list[int]  # including those without waiters
    sent_at: float
    failures: int = 0
    losses: int = 0
    misses: int = 0
    in_flight: int = 1
    due: float = NEVER  # while it is at the backend
    retries: Retries | None = None  # that `misses` counts towards
    is_postponed: bool = False  # waits because there were no rows


@dataclass(slots=True)
class Flight:
    """A key with waiters."""

    key: int
    waiters: list[tuple[int, int]]  # (lookup, position)
    query: Query | None = None
    is_detached: bool = False  # neither joined nor kept: an invalidation, or a later read


@dataclass(slots=True)
class NaiveDimension:
    """Flights in a list, the cache in a dictionary; one retry of errors, one of missing keys.

    A name of "" is NULL. Lookups may have other retries for missing keys, and a maximal age.
    """

    max_keys: int
    guard: BackendGuard
    cache: dict[int, tuple[str | None, float]] = field(
        default_factory=dict
    )  # {key: (name or None for no row, read at)}
    flights: list[Flight] = field(default_factory=list)  # oldest first
    terms: dict[int, Terms] = field(default_factory=dict)  # {waiting lookup: its terms}
    at_backend: dict[int, Query] = field(default_factory=dict)  # {batch: query}
    parked: list[Query] = field(default_factory=list)  # in the order of their creation
    ages: dict[tuple[int, int], float] = field(default_factory=dict)  # {(lookup, position): s}
    quarantine: dict[int, float] = field(default_factory=dict)  # {key: until}
    last_batch: int = 0  # batches are numbered in the order of their creation
    own_lookups: int = 0  # background refreshes so far; they have negative numbers

    def look_up(self, lookup: int, keys: list[Key], wanted: Terms, now: float) -> Words:
        """The immediate answers; all other keys wait."""
        words: Words = {}
        beyond_s = max(REVALIDATE_S, IF_ERROR_S if self.guard.is_open else 0.0)
        outdated = []
        for position, key in enumerate(keys):
            if not isinstance(key, int):
                words[position] = "error type" if key == FAULTY else "missing"
            elif self._is_answer(key, wanted) and (
                self._is_fresh(key, now) or self._is_stale(key, now, beyond_s)
            ):
                words[position] = self._cached(key, (lookup, position), now)
                outdated += [(position, key)] if self._is_stale(key, now, REVALIDATE_S) else []
            elif self.quarantine.get(key, 0.0) > now:
                words[position] = "error key_rejected"
            else:
                self._join(key, (lookup, position), wanted)
                self.terms[lookup] = wanted
        self._revalidate(outdated, now)
        return words

    def may_send(self, now: float) -> bool:
        """Whether there is a slot, and a query to send."""
        has_slot = self.guard.has_slot(len(self.at_backend))
        return has_slot and bool(self._queued() or self._due_at(now))

    def take(self, order: Order, now: float) -> None:
        """Check that this query may be sent now, and that it leaves no key out."""
        due, queued = self._due_at(now), self._queued()
        # If there are both, they alternate; a scenario shows that neither starves.
        is_new = order.batch > self.last_batch
        if is_new:
            self.guard.on_sent(now, is_first=True)
        query = self._begun(order, queued) if is_new else self._restarted(order, due)
        if query.is_postponed:
            for flight in self._of(query):
                self._begin_read(flight)
        query.sent_at, query.due, query.is_postponed = now, NEVER, False
        self.at_backend[order.batch] = query
        query.in_flight = len(self.at_backend)

    def land(self, batch: int, names: dict[int, str], now: float) -> Result:
        """A query returned its rows; keys without a row may be retried."""
        query = self.at_backend.pop(batch)
        self.guard.on_success(
            len(query.keys), sent_at=query.sent_at, now=now, in_flight=query.in_flight
        )
        is_last = query.retries == CONFIGURED and query.misses == CONFIGURED.count
        result = Result()
        late: list[tuple[int, int, int]] = []  # (lookup, key, position) for another attempt
        for flight in self._of(query):
            name = names.get(flight.key)
            if not flight.is_detached and (name is not None or is_last):
                self.cache[flight.key] = (name, query.sent_at)
            for lookup, position in flight.waiters:
                if self._waits_on(lookup, name, query, now):
                    late.append((lookup, flight.key, position))
                    continue
                word = "missing" if name is None else f"fetched {name}".strip()
                self._answer(result, [(lookup, position)], word)
                self.ages[lookup, position] = now - query.sent_at
            flight.waiters = []
        self._postpone(query, late, now)
        return self._ended(result)

    def fail(self, batch: int, code: ErrorCode, now: float) -> Result:
        """A query failed."""
        query = self.at_backend.pop(batch)
        self.guard.on_failure(code, sent_at=query.sent_at, now=now)
        due = self._due_after(query, code, now)
        if due < NEVER:
            self._park(query, due, is_split=code in {ErrorCode.TIMEOUT, ErrorCode.KEY_REJECTED})
            return Result()
        if code is ErrorCode.KEY_REJECTED:
            self.quarantine[query.keys[0]] = now + QUARANTINE_S
        result = Result()
        for flight in self._of(query):
            for waiter in flight.waiters:
                self._answer(result, [waiter], self._instead(flight.key, waiter, code, now))
            flight.waiters = []
        return self._ended(result)

    def leave(self, lookup: int) -> Result:
        """The caller of this lookup gave up."""
        self.terms.pop(lookup, None)
        for flight in self.flights:
            flight.waiters = [waiter for waiter in flight.waiters if waiter[0] != lookup]
        self.flights = [flight for flight in self.flights if flight.waiters]
        self.parked = [query for query in self.parked if self._of(query)]
        cancelled = [batch for batch, query in self.at_backend.items() if not self._of(query)]
        for batch in cancelled:
            del self.at_backend[batch]
        return Result(cancelled=cancelled)

    def expire(self, now: float) -> Result:
        """End the lookups whose deadline has passed."""
        result = Result()
        code = self.guard.late_code
        before = list(self.at_backend.values())
        for lookup in [each for each, wanted in self.terms.items() if wanted.deadline <= now]:
            waiters = [(f.key, each) for f in self.flights for each in f.waiters]
            for key, waiter in [(key, each) for key, each in waiters if each[0] == lookup]:
                self._answer(result, [waiter], self._instead(key, waiter, code, now))
            result.ended.append(lookup)
            result.cancelled.extend(self.leave(lookup).cancelled)
        for sent_at in [each.sent_at for each in before if each not in self.at_backend.values()]:
            if now - sent_at >= TIMEOUT_S / 2:
                self.guard.on_failure(ErrorCode.TIMEOUT, sent_at=sent_at, now=now)
        return _without_own_lookups(result)

    def abandon(self, code: ErrorCode) -> Result:
        """The schema is no longer valid, nor are the cached entries."""
        result = Result(ended=list(self.terms), cancelled=list(self.at_backend))
        for flight in self.flights:
            self._answer(result, flight.waiters, f"error {code}")
        self.cache, self.quarantine, self.flights, self.terms = {}, {}, [], {}
        self.at_backend, self.parked = {}, []
        return _without_own_lookups(result)

    def invalidate(self, keys: Iterable[int]) -> int:
        """These keys have changed; returns how many were cached."""
        for flight in self.flights:
            if flight.key in keys and flight.query is not None:
                flight.is_detached = True
        for key in keys:
            self.quarantine.pop(key, None)
        return sum(self.cache.pop(key, None) is not None for key in set(keys))

    def next_deadline(self) -> float | None:
        """The time of the next action, while no query can be sent."""
        probe_at = self.guard.breaker.probe_due_at()
        times = [
            *(each.deadline for each in self.terms.values()),
            *([] if probe_at is None else [probe_at]),
        ]
        if self.guard.has_slot(len(self.at_backend)):
            times += [query.due for query in self.parked]
        return min(times, default=None)

    def callers(self) -> set[int]:
        """The waiting lookups without background refreshes."""
        return {lookup for lookup in self.terms if lookup > 0}

    def waiting_keys(self) -> int:
        """How many keys wait, over all lookups."""
        return sum(len(flight.waiters) for flight in self.flights)

    def _is_answer(self, key: int, wanted: Terms) -> bool:
        """Whether these terms allow the cached entry, which may be neither fresh nor stale."""
        name, since = self.cache.get(key, (None, -1e9))
        is_unusable = not wanted.uses_missing if name is None else _is_unnamed(name, wanted.retries)
        return since > wanted.read_after and not is_unusable

    def _is_fresh(self, key: int, now: float) -> bool:
        name, since = self.cache.get(key, (None, -1e9))
        return now - since < (NEGATIVE_TTL_S if name is None else TTL_S)

    def _is_stale(self, key: int, now: float, beyond_s: float) -> bool:
        name, since = self.cache.get(key, (None, 0.0))
        return name is not None and TTL_S <= now - since < TTL_S + beyond_s

    def _cached(self, key: int, waiter: tuple[int, int], now: float) -> str:
        name, since = self.cache[key]
        self.ages[waiter] = now - since
        if name is None:
            return "missing"
        return f"{'hit' if self._is_fresh(key, now) else 'stale'} {name}".strip()

    def _instead(self, key: int, waiter: tuple[int, int], code: ErrorCode, now: float) -> str:
        """The answer after a failure: a cached row that may replace it, or the error."""
        is_row = self._is_fresh(key, now) and self.cache[key][0] is not None
        is_row |= self._is_stale(key, now, IF_ERROR_S)
        is_young = is_row and self.cache[key][1] > self.terms[waiter[0]].read_after
        if code.is_retryable and is_young:
            return self._cached(key, waiter, now)
        return "timeout timeout" if code is ErrorCode.TIMEOUT else f"error {code}"

    def _revalidate(self, outdated: list[tuple[int, int]], now: float) -> None:
        joinable = {each.key for each in self.flights if self._is_open_to(each, CONFIGURED)}
        idle = [(position, key) for position, key in outdated if key not in joinable]
        if not idle or self.guard.is_open:
            return
        self.own_lookups -= 1
        self.terms[self.own_lookups] = Terms(now + TIMEOUT_S)
        for position, key in idle:
            self._join(key, (self.own_lookups, position), self.terms[self.own_lookups])

    def _due_after(self, query: Query, code: ErrorCode, now: float) -> float:
        """The time of the next attempt of a failed query."""
        if code is ErrorCode.KEY_REJECTED:
            return now if len(query.keys) > 1 else NEVER
        waiting = [lookup for flight in self._of(query) for lookup, _ in flight.waiters]
        due = self._due_by_rules(query, code, now)
        if due >= max(self.terms[lookup].deadline for lookup in waiting):
            return NEVER
        is_held = code.is_retryable and self.guard.is_open
        return due if is_held or self.guard.retries.take_token(now) else NEVER

    def _due_by_rules(self, query: Query, code: ErrorCode, now: float) -> float:
        if code is ErrorCode.CONNECTION_LOST:
            query.losses += 1
            if query.losses == 1:
                return now
        query.failures += 1
        if code.is_retryable and self.guard.is_open:
            return now
        return now + RETRY_S if code.is_retryable and query.failures <= RETRIES else NEVER

    def _park(self, query: Query, due: float, *, is_split: bool) -> None:
        flights = self._of(query)
        middle = (len(flights) + 1) // 2
        parts = [flights[:middle], flights[middle:]] if is_split else [flights]
        for part in filter(None, parts):
            keys = [flight.key for flight in part] if is_split else query.keys
            batch = self._new_batch() if is_split else query.batch
            parked = replace(query, batch=batch, keys=keys, due=due)
            self.parked.append(parked)
            for flight in part:
                flight.query = parked

    def _join(self, key: int, waiter: tuple[int, int], wanted: Terms) -> None:
        current = self._current(key)
        query = None if current is None else current.query
        if current is None or query is None or query.batch not in self.at_backend:
            pass  # its read begins later
        elif query.sent_at <= wanted.read_after:
            current.is_detached, current = True, None
        joined = current or self._postponed(key, wanted.retries, before=wanted.deadline)
        if joined is None:
            self.flights.append(Flight(key, [waiter]))
        else:
            joined.waiters.append(waiter)

    def _current(self, key: int) -> Flight | None:
        """The flight of a key that any lookup may join, given its maximal age."""
        found = [each for each in self.flights if each.key == key and not each.is_detached]
        return next((each for each in found if not _is_postponed(each)), None)

    def _postponed(self, key: int, retries: Retries, *, before: float) -> Flight | None:
        for flight in self.flights:
            is_open = flight.key == key and self._is_open_to(flight, retries)
            due = flight.query.due if flight.query and flight.query.is_postponed else NEVER
            if is_open and due < before:
                return flight
        return None

    @staticmethod
    def _is_open_to(flight: Flight, retries: Retries) -> bool:
        """Whether lookups with these retries may join a flight, given the time."""
        query = flight.query
        is_same = query is None or not query.is_postponed or query.retries == retries
        return not flight.is_detached and is_same

    def _begin_read(self, flight: Flight) -> None:
        """A postponed key is read now; of several reads of a key the last is kept."""
        other = self._current(flight.key)
        flight.is_detached = other is not None and other.query is None
        if other is not None and other.query is not None:
            other.is_detached = True

    def _waits_on(self, lookup: int, name: str | None, query: Query, now: float) -> bool:
        """Whether a lookup waits for another attempt for a key with this result."""
        wanted = self.terms[lookup]
        misses = query.misses if query.retries == wanted.retries else 0
        is_late = name is None or _is_unnamed(name, wanted.retries)
        is_allowed = misses < wanted.retries.count
        return is_late and is_allowed and now + wanted.retries.delay_s < wanted.deadline

    def _postpone(self, query: Query, late: list[tuple[int, int, int]], now: float) -> None:
        """Park the late keys, by the retries of their lookups."""
        for retries in dict.fromkeys(self.terms[lookup].retries for lookup, _, _ in sorted(late)):
            misses = query.misses if query.retries == retries else 0
            retry = replace(
                query,
                keys=[],
                misses=misses + 1,
                due=now + retries.delay_s,
                retries=retries,
                is_postponed=True,
            )
            own = [each for each in late if self.terms[each[0]].retries == retries]
            for lookup, key, position in own:
                joined = self._postponed(key, retries, before=NEVER)
                if joined is None:
                    joined = Flight(key, [], retry)
                    self.flights.append(joined)
                    retry.keys.append(key)
                joined.waiters.append((lookup, position))
            if retry.keys:
                retry.batch = self._new_batch()
                self.parked.append(retry)

    def _new_batch(self) -> int:
        self.last_batch += 1
        return self.last_batch

    def _queued(self) -> list[Flight]:
        return [flight for flight in self.flights if flight.query is None]

    def _due_at(self, now: float) -> list[Query]:
        return [query for query in self.parked if query.due <= now]

    def _restarted(self, order: Order, due: list[Query]) -> Query:
        query = next(each for each in due if each.batch == order.batch)
        assert query.due == min(each.due for each in due)
        assert query.keys == order.keys
        self.parked.remove(query)
        return query

    def _begun(self, order: Order, queued: list[Flight]) -> Query:
        assert len(order.keys) == len(set(order.keys)) == min(self.max_keys, len(queued))
        assert order.batch == self._new_batch()
        query = Query(order.batch, order.keys, 0.0)
        for flight in queued:
            if flight.key in order.keys:
                flight.query = query
        assert sorted(order.keys) == sorted(flight.key for flight in self._of(query))
        return query

    def _of(self, query: Query) -> list[Flight]:
        flights = [flight for flight in self.flights if flight.query is query]
        return sorted(flights, key=lambda flight: query.keys.index(flight.key))

    @staticmethod
    def _answer(result: Result, waiters: list[tuple[int, int]], word: str) -> None:
        for lookup, position in waiters:
            result.answers.setdefault(lookup, {})[position] = word

    def _ended(self, result: Result) -> Result:
        self.flights = [flight for flight in self.flights if flight.waiters]
        waiting = {lookup for flight in self.flights for lookup, _ in flight.waiters}
        result.ended.extend(set(result.answers) - waiting)
        for lookup in result.ended:
            del self.terms[lookup]
        return _without_own_lookups(result)


def _is_unnamed(name: str, retries: Retries) -> bool:
    return retries.needs_name and retries.count > 0 and not name


def _is_postponed(flight: Flight) -> bool:
    return flight.query is not None and flight.query.is_postponed


def _without_own_lookups(result: Result) -> Result:
    """Background refreshes have no deliveries."""
    answers = {lookup: words for lookup, words in result.answers.items() if lookup > 0}
    return Result(answers, [each for each in result.ended if each > 0], result.cancelled)
