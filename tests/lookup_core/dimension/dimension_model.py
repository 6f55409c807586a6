"""A dimension's rules once more, one key at a time over lists: slow, plain, and without sharing.

What the real state is compared with; which keys make a query it learns from the real one, and
checks that they may.
"""

from dataclasses import dataclass

from lookup_core.errors import ErrorCode
from tests.lookup_core.dimension.dimension_script import FAULTY, Key, Order, Seen, Told

TTL_S = 10.0
NEGATIVE_TTL_S = 5.0
RETRY_DELAY_S = 1.0


@dataclass(slots=True)
class Flight:
    """A key that somebody waits for."""

    key: int
    waiters: list[tuple[int, int]]  # (lookup, position)
    batch: int | None = None
    is_overtaken: bool = False  # by an invalidation, while it was read


class NaiveDimension:
    """All flights in a list, the cache in a dictionary; at most one retry."""

    def __init__(self, *, max_keys: int, max_in_flight: int) -> None:
        self.max_keys = max_keys
        self.max_in_flight = max_in_flight
        self.cache: dict[int, tuple[str | None, float]] = {}  # {key: (name or absence, since)}
        self.flights: list[Flight] = []  # oldest first
        self.deadlines: dict[int, float] = {}  # {lookup that waits: deadline}
        self.at_backend: dict[int, int] = {}  # {batch: attempts}
        self.parked: dict[int, float] = {}  # {batch: when its retry is due}

    def submit(self, lookup: int, keys: list[Key], *, deadline: float, now: float) -> Told:
        """What is answered at once; the rest waits."""
        words: Told = {}
        for position, key in enumerate(keys):
            if not isinstance(key, int):
                words[position] = "error type" if key == FAULTY else "missing"
            elif self._is_fresh(key, now):
                name, _ = self.cache[key]
                words[position] = "missing" if name is None else f"hit {name}"
            else:
                self._join(key, (lookup, position))
                self.deadlines[lookup] = deadline
        return words

    def take(self, order: Order | None, now: float) -> None:
        """Check that this is what may be sent now, and that nothing is left out."""
        has_slot = len(self.at_backend) < self.max_in_flight
        queued = [flight for flight in self.flights if flight.batch is None]
        due = [batch for batch, retry_at in self.parked.items() if retry_at <= now]
        if order is None:
            assert not has_slot or not (queued or due)
            return
        assert has_slot
        if order.batch in self.parked:
            assert self.parked.pop(order.batch) <= now
            self.at_backend[order.batch] = 2
            return
        assert len(order.keys) == len(set(order.keys)) == min(self.max_keys, len(queued))
        for flight in queued:
            if flight.key in order.keys:
                flight.batch = order.batch
        assert sorted(order.keys) == sorted(flight.key for flight in self._of(order.batch))
        self.at_backend[order.batch] = 1

    def land(self, batch: int, names: dict[int, str], now: float) -> Seen:
        """Rows came for a query."""
        for flight in self._of(batch):
            if not flight.is_overtaken:
                self.cache[flight.key] = (names.get(flight.key), now)
        return self._end(
            batch, {key: f"fetched {name}" for key, name in names.items()}, default="missing"
        )

    def fail(self, batch: int, code: ErrorCode, now: float) -> Seen:
        """A query failed."""
        waiting = [lookup for flight in self._of(batch) for lookup, _ in flight.waiters]
        latest = max(self.deadlines[lookup] for lookup in waiting)
        is_first = self.at_backend[batch] == 1
        if code.is_retryable and is_first and now + RETRY_DELAY_S < latest:
            del self.at_backend[batch]
            self.parked[batch] = now + RETRY_DELAY_S
            return Seen()
        is_timeout = code is ErrorCode.TIMEOUT
        return self._end(batch, {}, default="timeout timeout" if is_timeout else f"error {code}")

    def leave(self, lookup: int) -> Seen:
        """Nobody waits for this lookup."""
        self.deadlines.pop(lookup, None)
        for flight in self.flights:
            flight.waiters = [waiter for waiter in flight.waiters if waiter[0] != lookup]
        self.flights = [flight for flight in self.flights if flight.waiters]
        self.parked = {batch: at for batch, at in self.parked.items() if self._of(batch)}
        cancelled = [batch for batch in self.at_backend if not self._of(batch)]
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

    def invalidate(self, keys: list[int]) -> int:
        """These keys have changed."""
        for flight in self.flights:
            if flight.key in keys and flight.batch is not None:
                flight.is_overtaken = True
        return sum(self.cache.pop(key, None) is not None for key in set(keys))

    def next_deadline(self) -> float | None:
        """When something is to be done, while nothing can be sent now."""
        has_slot = len(self.at_backend) < self.max_in_flight
        times = [*self.deadlines.values(), *(self.parked.values() if has_slot else ())]
        return min(times, default=None)

    def _is_fresh(self, key: int, now: float) -> bool:
        name, since = self.cache.get(key, (None, -1e9))
        return now - since < (NEGATIVE_TTL_S if name is None else TTL_S)

    def _join(self, key: int, waiter: tuple[int, int]) -> None:
        for flight in self.flights:
            if flight.key == key and not flight.is_overtaken:
                flight.waiters.append(waiter)
                return
        self.flights.append(Flight(key, [waiter]))

    def _of(self, batch: int) -> list[Flight]:
        return [flight for flight in self.flights if flight.batch == batch]

    def _end(self, batch: int, words: dict[int, str], *, default: str) -> Seen:
        seen = Seen()
        for flight in self._of(batch):
            for lookup, position in flight.waiters:
                told = seen.answers.setdefault(lookup, {})
                told[position] = words.get(flight.key, default)
        self.flights = [flight for flight in self.flights if flight.batch != batch]
        del self.at_backend[batch]
        waiting = {lookup for flight in self.flights for lookup, _ in flight.waiters}
        seen.ended.extend(set(seen.answers) - waiting)
        for lookup in seen.ended:
            del self.deadlines[lookup]
        return seen
