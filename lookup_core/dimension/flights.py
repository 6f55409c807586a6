"""Flights: keys that are being fetched, and the waiters of each, in numpy columns by number.

A private part of `InFlight`. Holds no rows and sends no queries.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from lookup_core.dimension.dimension_events import BatchId, LookupId
from lookup_core.dimension.numbered_rows import NumberedRows, Numbers
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes, KeyId, is_among
from lookup_core.settings import OnMissingSettings

Positions = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

# {lookup: (its positions, the ordinals of their flights)} of all that wait for some flights
Waiters = dict[LookupId, tuple[Positions, Positions]]

_QUEUED = 0  # the batch id of flights in no query
_NO_LOOKUP = -(2**63)
_NOT_POSTPONED = -np.inf
# Few closed followers of a flight cost less than to look for them.
_MAX_CLOSED_FOLLOWERS = 8

_FLIGHT: dict[str, npt.DTypeLike] = {
    "key_id": object,
    "key_hash": np.uint64,
    "batch_id": np.int64,
    "is_joinable": np.bool_,  # its row may be cached, and any lookup may join it
    "postponed_to": np.float64,  # the next attempt for a missing key, or _NOT_POSTPONED
    "on_missing": object,  # the retries of a postponed flight's lookups
    "waiters": np.int32,  # the number of open ones
    "first": np.intp,  # the waiter that started it; all others are its followers
    "has_followers": np.bool_,
}
_WAITER: dict[str, npt.DTypeLike] = {
    "lookup_id": np.int64,  # _NO_LOOKUP once it is closed: answered, or its lookup has left
    "position": np.int32,
    "flight": np.intp,
}


@dataclass(frozen=True, slots=True)
class Flight:
    """The state of one key in flight; `batch_id` is None while it is queued."""

    batch_id: BatchId | None
    waiters: int
    is_postponed: bool
    retry_at: float | None = None  # while its query is parked


@dataclass(frozen=True, slots=True)
class PostponedKeys:
    """Keys of one query that wait for another attempt, with lookups of the same retries.

    A lookup whose deadline precedes that attempt is not among them.
    """

    on_missing: OnMissingSettings
    retry_at: float
    waiters: Waiters


@dataclass(frozen=True, slots=True)
class Postponed:
    """The waiters of lookups for another attempt, and the flights that it has."""

    waiters: dict[LookupId, Numbers]
    started: Numbers  # [m] the new flights
    ordinals: Numbers  # [m] which keys of the query they belong to


@dataclass(frozen=True, slots=True)
class Joined:
    """The waiters of a lookup's keys, and the flights that the lookup started."""

    waiters: Numbers  # [n] one for each key
    started: Numbers  # [m] the new flights
    indices: Numbers  # [m] which of the n keys each of those belongs to


class Flights:
    """Flights by number; each is in the queue or in one query, which ends it.

    Flights that lookups may join are found by key. A postponed flight waits for the next attempt
    for a missing key; only lookups with the same retries may join it.
    """

    def __init__(self) -> None:
        self._joinable: dict[KeyId, int] = {}
        self._postponed: dict[tuple[OnMissingSettings, KeyId], int] = {}
        self._rows = NumberedRows(_FLIGHT)
        self._flight = self._rows.columns
        self._waiters = NumberedRows(_WAITER)
        self._waiter = self._waiters.columns
        self._followers: defaultdict[int, list[int]] = defaultdict(list)  # {flight: waiters}

    def __len__(self) -> int:
        """The number of flights that lookups may join."""
        return len(self._joinable) + len(self._postponed)

    def get(self, key_id: KeyId, on_missing: OnMissingSettings | None) -> Flight | None:
        """The flight of a key that lookups with these retries may join, given the time."""
        number = self._joinable.get(key_id)
        if number is None and on_missing is not None:
            number = self._postponed.get((on_missing, key_id))
        if number is None:
            return None
        batch_id = int(self._flight["batch_id"][number])
        return Flight(
            None if batch_id == _QUEUED else BatchId(batch_id),
            int(self._flight["waiters"][number]),
            bool(self._flight["postponed_to"][number] != _NOT_POSTPONED),
        )

    def may_join(self, key_ids: Sequence[KeyId], on_missing: OnMissingSettings | None) -> Mask:
        """Which keys have a flight that lookups with these retries may join, given the time."""
        joinable, postponed = self._joinable, self._postponed
        may_join = [key in joinable or (on_missing, key) in postponed for key in key_ids]
        return np.array(may_join, np.bool_)

    def join(
        self,
        lookup_id: LookupId,
        keys: CanonicalKeys,
        *,
        positions: Positions,
        deadline_s: float,
        on_missing: OnMissingSettings | None,
    ) -> Joined:
        """Let a lookup with these retries wait for keys.

        A key that is postponed beyond the deadline, or by other retries, gets another flight.
        """
        key_ids = keys.ids()
        if self._postponed and on_missing is not None:
            flights, is_new = self._placed_or_postponed(key_ids, deadline_s, on_missing)
        else:
            flights, is_new = self._placed(key_ids)
        waiters = self._waiters.allocate(len(flights))
        self._waiter["lookup_id"][waiters] = lookup_id
        self._waiter["position"][waiters] = positions
        self._waiter["flight"][waiters] = flights
        started = flights[is_new]
        self._flight["key_hash"][started] = keys.hashes[is_new]
        self._flight["first"][started] = waiters[is_new]
        if not is_new.all():
            self._follow(flights[~is_new], waiters[~is_new])
        return Joined(waiters, started, np.flatnonzero(is_new))

    def send(self, flights: Numbers, batch_id: BatchId) -> None:
        """Note that the flights are in this query from now on."""
        self._flight["batch_id"][flights] = batch_id

    def restart(self, flights: Numbers) -> None:
        """Postponed ones among these flights are read now: any lookup may join them.

        An earlier read of the key is not kept. If the key is still queued, that read is the later
        one, and is kept instead.
        """
        is_read = self.is_postponed(flights) & self.is_wanted(flights)
        restarted = flights[is_read]
        self._take_out(restarted)
        self._flight["postponed_to"][restarted] = _NOT_POSTPONED
        for flight, key_id in zip(restarted.tolist(), self.key_ids(restarted), strict=True):
            other = self._joinable.get(key_id)
            if other is not None:
                if self._flight["batch_id"][other] == _QUEUED:
                    continue
                self._flight["is_joinable"][other] = False
            self._joinable[key_id] = flight
            self._flight["is_joinable"][flight] = True

    def postpone_to(self, flights: Numbers, retry_at: float) -> None:
        """Move the next attempt of postponed flights."""
        self._flight["postponed_to"][flights] = retry_at

    def with_hashes(self, hashes: Hashes | None) -> Numbers:
        """The flights with waiters of keys with these hashes; all of them for None."""
        wanted = np.flatnonzero(self._flight["waiters"] > 0)
        return (
            wanted if hashes is None else wanted[is_among(self._flight["key_hash"][wanted], hashes)]
        )

    def detach(self, flights: Numbers) -> None:
        """Neither keep what these flights read, nor let lookups join them.

        A queued flight stays as it is: it has read nothing. A parked one is detached as well, so
        that later lookups do not wait for a delay that began before the change.
        """
        self._take_out(flights[self._flight["batch_id"][flights] != _QUEUED])

    def detach_in(self, batch_ids: Sequence[BatchId], key_ids: Sequence[KeyId]) -> None:
        """Detach the flights of these keys that are in one of these queries."""
        numbers = map(self._joinable.get, dict.fromkeys(key_ids))
        found = np.array([number for number in numbers if number is not None], np.intp)
        self.detach(found[np.isin(self._flight["batch_id"][found], batch_ids)])

    def is_postponed(self, flights: Numbers) -> Mask:
        """Which flights wait for another attempt because there was no row."""
        return self._flight["postponed_to"][flights] != _NOT_POSTPONED

    def leave(self, lookups: Mapping[LookupId, Numbers]) -> set[BatchId]:
        """Close the waiters of lookups that have left.

        No lookup can join a flight that has no waiters left. Returns the queries of such flights.
        """
        owners = np.repeat(np.array(list(lookups), np.int64), _sizes(lookups.values()))
        waiters = np.concatenate([np.zeros(0, np.intp), *lookups.values()])
        waiters = waiters[self._waiter["lookup_id"][waiters] == owners]
        self._waiter["lookup_id"][waiters] = _NO_LOOKUP
        left = self._waiter["flight"][waiters]
        np.subtract.at(self._flight["waiters"], left, 1)
        flights = np.unique(left)
        deserted = flights[~self.is_wanted(flights)]
        self._take_out(deserted)
        self._free_closed_followers(flights)
        return {batch_id for batch_id in self.batch_ids(deserted) if batch_id != _QUEUED}

    def end(self, flights: Numbers) -> None:
        """Remove flights: their keys are answered, or have no waiters."""
        self._take_out(flights)
        waiters, _ = self._waiters_of(flights)
        self._waiter["lookup_id"][waiters] = _NO_LOOKUP
        self._waiters.give_back(waiters)
        for flight in flights[self._flight["has_followers"][flights]].tolist():
            del self._followers[flight]
        self._flight["key_id"][flights] = None
        self._flight["waiters"][flights] = 0
        self._rows.give_back(flights)

    def postpone(self, flights: Numbers, keys: PostponedKeys) -> Postponed:
        """Let lookups wait for another attempt for keys of these flights, which end then.

        They join the flights of an attempt with the same retries that comes no later.
        """
        sizes = [len(positions) for positions, _ in keys.waiters.values()]
        places = [ordinals for _, ordinals in keys.waiters.values()]
        ordinals, own = np.unique(np.concatenate(places), return_inverse=True)
        placed, is_new = self._postponed_flights(flights[ordinals], keys)
        waiters = self._waiters.allocate(len(own))
        self._waiter["lookup_id"][waiters] = np.repeat(list(keys.waiters), sizes)
        self._waiter["position"][waiters] = np.concatenate(
            [positions for positions, _ in keys.waiters.values()]
        )
        self._waiter["flight"][waiters] = placed[own]
        _, first = np.unique(own, return_index=True)
        first = first[is_new]
        self._flight["first"][placed[is_new]] = waiters[first]
        is_follower = np.ones(len(own), np.bool_)
        is_follower[first] = False
        self._follow(placed[own[is_follower]], waiters[is_follower])
        parts = np.split(waiters, np.cumsum(sizes)[:-1])
        return Postponed(
            dict(zip(keys.waiters, parts, strict=True)),
            placed[is_new],
            ordinals[is_new].astype(np.intp),
        )

    def waiters(self, flights: Numbers) -> Waiters:
        """The open waiters of these flights, by lookup."""
        waiters, ordinals = self._waiters_of(flights)
        lookup_ids = self._waiter["lookup_id"][waiters]
        is_open = lookup_ids != _NO_LOOKUP
        waiters, ordinals, lookup_ids = waiters[is_open], ordinals[is_open], lookup_ids[is_open]
        order = np.argsort(lookup_ids, kind="stable")
        lookup_ids, places = lookup_ids[order], ordinals[order].astype(np.int32)
        positions = self._waiter["position"][waiters[order]]
        ends = (np.flatnonzero(np.diff(lookup_ids, append=_NO_LOOKUP)) + 1).tolist()
        return {
            LookupId(int(lookup_ids[start])): (positions[start:end], places[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        }

    def open_waiters(self, lookup_id: LookupId, waiters: Numbers) -> Numbers:
        """Those of a lookup's waiters that are open."""
        return waiters[self._waiter["lookup_id"][waiters] == lookup_id]

    def left_open(self, lookup_id: LookupId, waiters: Numbers) -> tuple[Positions, list[KeyId]]:
        """The positions, and their keys, that a lookup with these waiters still waits for."""
        waiters = self.open_waiters(lookup_id, waiters)
        positions: Positions = self._waiter["position"][waiters]
        return positions, self.key_ids(self._waiter["flight"][waiters])

    def is_wanted(self, flights: Numbers) -> Mask:
        """Which flights have waiters."""
        return self._flight["waiters"][flights] > 0

    def hashes_and_joinable(self, flights: Numbers) -> tuple[Hashes, Mask]:
        """The hashes of the flights' keys, and which of them lookups may join: no change came."""
        return self._flight["key_hash"][flights], self._flight["is_joinable"][flights]

    def key_ids(self, flights: Numbers) -> list[KeyId]:
        """The keys of flights."""
        return self._flight["key_id"][flights].tolist()

    def batch_ids(self, flights: Numbers) -> list[BatchId]:
        """The queries of these flights, each once; 0 for the queue."""
        return [BatchId(each) for each in np.unique(self._flight["batch_id"][flights]).tolist()]

    def check_invariants(self, carried: Numbers) -> None:
        """For tests: tables, counts and links agree.

        `carried` are the flights in queues and queries: all flights, each once.
        """
        assert len(set(carried.tolist())) == len(carried) == len(self._rows)
        joinable = np.array(list(self._joinable.values()), np.intp)
        assert self.key_ids(joinable) == list(self._joinable)
        assert self.is_wanted(joinable).all()
        assert set(joinable.tolist()) == set(carried[self._flight["is_joinable"][carried]].tolist())
        waiters, _ = self._waiters_of(carried)
        assert len(set(waiters.tolist())) == len(waiters) == len(self._waiters)
        ordinals = [ordinals for _, ordinals in self.waiters(carried).values()]
        counts = np.bincount(
            np.concatenate([[], *ordinals]).astype(np.intp), minlength=len(carried)
        )
        assert counts.tolist() == self._flight["waiters"][carried].tolist()
        postponed = np.array(list(self._postponed.values()), np.intp)
        terms = zip(self._flight["on_missing"][postponed], self.key_ids(postponed), strict=True)
        assert list(terms) == list(self._postponed)
        assert (self.is_postponed(postponed) & self.is_wanted(postponed)).all()
        assert set(postponed.tolist()) <= set(carried.tolist())
        assert not (self.is_postponed(carried) & self._flight["is_joinable"][carried]).any()
        followed = carried[self._flight["has_followers"][carried]]
        assert set(followed.tolist()) == self._followers.keys()

    def _placed_or_postponed(
        self, key_ids: Sequence[KeyId], deadline_s: float, on_missing: OnMissingSettings
    ) -> tuple[Numbers, Mask]:
        """Like `_placed`; keys without another flight join a postponed one that comes in time."""
        flights = np.full(len(key_ids), -1, np.intp)
        for index, key_id in enumerate(key_ids):
            number = self._postponed.get((on_missing, key_id))
            if number is None or key_id in self._joinable:
                continue
            if self._flight["postponed_to"][number] < deadline_s:
                flights[index] = number
        others = np.flatnonzero(flights < 0)
        is_new = np.zeros(len(key_ids), np.bool_)
        placed = self._placed([key_ids[index] for index in others.tolist()])
        flights[others], is_new[others] = placed
        return flights, is_new

    def _postponed_flights(self, flights: Numbers, keys: PostponedKeys) -> tuple[Numbers, Mask]:
        """The postponed flight for the key of each of these flights, and which are new."""
        numbers = self._rows.allocate(len(flights))
        placed = numbers.copy()
        for index, key_id in enumerate(self.key_ids(flights)):
            term = (keys.on_missing, key_id)
            other = self._postponed.get(term)
            if other is None or self._flight["postponed_to"][other] > keys.retry_at:
                self._postponed[term] = int(numbers[index])
            else:
                placed[index] = other
        is_new = placed == numbers
        self._rows.give_back(numbers[~is_new])
        new = placed[is_new]
        self._start(new, self._flight["key_id"][flights[is_new]])
        self._flight["key_hash"][new] = self._flight["key_hash"][flights[is_new]]
        self._flight["is_joinable"][new] = False
        self._flight["postponed_to"][new] = keys.retry_at
        self._flight["on_missing"][new] = keys.on_missing
        return placed, is_new

    def _placed(self, key_ids: Sequence[KeyId]) -> tuple[Numbers, Mask]:
        """The flight of each key, and which keys started one: the first of several equal keys."""
        numbers = self._rows.allocate(len(key_ids))
        placed = map(self._joinable.setdefault, key_ids, numbers.tolist())
        flights = np.fromiter(placed, np.intp, len(key_ids))
        is_new = flights == numbers
        self._rows.give_back(numbers[~is_new])
        self._start(flights[is_new], np.array(key_ids, object)[is_new])
        return flights, is_new

    def _start(self, flights: Numbers, key_ids: npt.NDArray[np.object_]) -> None:
        self._flight["key_id"][flights] = key_ids
        self._flight["batch_id"][flights] = _QUEUED
        self._flight["is_joinable"][flights] = True
        self._flight["postponed_to"][flights] = _NOT_POSTPONED
        self._flight["waiters"][flights] = 1
        self._flight["has_followers"][flights] = False

    def _follow(self, flights: Numbers, waiters: Numbers) -> None:
        np.add.at(self._flight["waiters"], flights, 1)
        self._flight["has_followers"][flights] = True
        for flight, waiter in zip(flights.tolist(), waiters.tolist(), strict=True):
            self._followers[flight].append(waiter)

    def _take_out(self, flights: Numbers) -> None:
        """Let no lookup join these flights, and keep nothing that they read."""
        current = flights[self._flight["is_joinable"][flights]]
        self._flight["is_joinable"][current] = False
        for key_id in self.key_ids(current):
            del self._joinable[key_id]
        if self._postponed:
            for flight in flights[self.is_postponed(flights)].tolist():
                term = (self._flight["on_missing"][flight], self._flight["key_id"][flight])
                if self._postponed.get(term) == flight:
                    del self._postponed[term]

    def _waiters_of(self, flights: Numbers) -> tuple[Numbers, Numbers]:
        """The waiters of flights, closed ones included, each with the ordinal of its flight."""
        ordinals = np.flatnonzero(self._flight["has_followers"][flights])
        followers = [self._followers[flight] for flight in flights[ordinals].tolist()]
        repeated = np.repeat(ordinals, _sizes(followers))
        waiters = np.fromiter(chain.from_iterable(followers), np.intp, len(repeated))
        all_waiters = np.concatenate((self._flight["first"][flights], waiters))
        return all_waiters, np.concatenate((np.arange(len(flights)), repeated))

    def _free_closed_followers(self, flights: Numbers) -> None:
        """Free closed followers where they are many.

        During an outage they would add up at a flight that always has some open waiter.
        """
        for flight in flights[self._flight["has_followers"][flights]].tolist():
            if (
                len(self._followers[flight])
                > 2 * self._flight["waiters"][flight] + _MAX_CLOSED_FOLLOWERS
            ):
                followers = np.array(self._followers[flight], np.intp)
                is_open = self._waiter["lookup_id"][followers] != _NO_LOOKUP
                self._waiters.give_back(followers[~is_open])
                self._followers[flight] = followers[is_open].tolist()


def _sizes(lists: Collection[Sized]) -> Numbers:
    return np.fromiter(map(len, lists), np.intp, len(lists))
