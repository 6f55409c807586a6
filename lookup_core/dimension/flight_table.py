"""Single-flight table: the keys that are being fetched, and the lookups that wait for each.

Holds no rows and sends no queries.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Any, NewType

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes, KeyId, is_among

Numbers = npt.NDArray[np.intp]  # of flights or waiters
Positions = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

LookupId = NewType("LookupId", int)
BatchId = NewType("BatchId", int)

# {lookup: (its positions, the ordinals of their flights)} of all that wait for some flights
Waiters = dict[LookupId, tuple[Positions, Positions]]

_QUEUED = 0  # in no query
_NO_LOOKUP = -(2**63)
_FEWEST_ROWS = 64
_SLACK = 8  # closed followers of a flight; few of them cost less than to look for them

_FLIGHT: dict[str, npt.DTypeLike] = {
    "key_id": object,
    "hash": np.uint64,  # of the key
    "batch_id": np.int64,
    "may_keep": np.bool_,  # its row may be cached, and lookups may join it
    "postponed_to": np.float64,  # the next attempt for a key without a row, else 0
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
    postponed_to: float


@dataclass(frozen=True, slots=True)
class Joined:
    """The waiters of a lookup's keys, and the flights that the lookup started."""

    waiters: Numbers  # [n] one for each key
    started: Numbers  # [m] the new flights
    indices: Numbers  # [m] which of the n keys each of those belongs to


class _NumberedRows:
    """Row allocator over numpy columns: a row has a number until it is given back."""

    def __init__(self, kinds: Mapping[str, npt.DTypeLike]) -> None:
        self._columns: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(0, kind) for name, kind in kinds.items()
        }
        self._free = np.zeros(0, np.intp)  # the first `_free_count` of them
        self._free_count = 0

    def __len__(self) -> int:
        return len(self._free) - self._free_count

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """A column over all numbers; a reference to it is valid until the next `take`."""
        return self._columns[column]

    def take(self, count: int) -> Numbers:
        """Free numbers; their rows hold former values or zeros."""
        if count > self._free_count:
            self._grow(count)
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].copy()

    def give_back(self, numbers: Numbers) -> None:
        """Free numbers, for use by a later `take`."""
        self._free[self._free_count : self._free_count + len(numbers)] = numbers
        self._free_count += len(numbers)

    def _grow(self, count: int) -> None:
        before = len(self._free)
        more = max(_FEWEST_ROWS, before, count)
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate((column, np.zeros(more, column.dtype)))
        free = self._free[: self._free_count]
        news = np.arange(before, before + more)
        self._free = np.concatenate((free, news, np.zeros(before - len(free), np.intp)))
        self._free_count += more


class FlightTable:
    """Flights by number; each is in one queue or one query, which ends it.

    Flights that lookups may join are found by key. Lookup ids are used once each.
    """

    def __init__(self) -> None:
        self._joinable: dict[KeyId, int] = {}
        self._rows = _NumberedRows(_FLIGHT)
        self._waiters = _NumberedRows(_WAITER)
        self._followers: defaultdict[int, list[int]] = defaultdict(list)  # {flight: waiters}
        self._latest_postponement = 0.0

    def __len__(self) -> int:
        """The number of flights that lookups may join."""
        return len(self._joinable)

    def get(self, key_id: KeyId) -> Flight | None:
        """The flight of a key that lookups may join, if there is one."""
        number = self._joinable.get(key_id)
        if number is None:
            return None
        batch_id = int(self._rows["batch_id"][number])
        return Flight(
            None if batch_id == _QUEUED else BatchId(batch_id),
            int(self._rows["waiters"][number]),
            float(self._rows["postponed_to"][number]),
        )

    def may_join(self, key_ids: Sequence[KeyId]) -> Mask:
        """Which keys have a flight that lookups may join."""
        return np.array([key_id in self._joinable for key_id in key_ids], np.bool_)

    def join(
        self, lookup_id: LookupId, keys: CanonicalKeys, *, positions: Positions, deadline_s: float
    ) -> Joined:
        """Let a lookup wait for keys.

        A key whose next attempt comes after the deadline gets another flight at once. The older
        flight still answers its own waiters; its row is not kept.
        """
        key_ids = keys.ids()
        if deadline_s <= self._latest_postponement:
            found = self._found(key_ids)
            self._take_out(found[self._rows["postponed_to"][found] >= deadline_s])
        flights, is_new = self._placed(key_ids)
        waiters = self._waiters.take(len(flights))
        self._waiters["lookup_id"][waiters] = lookup_id
        self._waiters["position"][waiters] = positions
        self._waiters["flight"][waiters] = flights
        started = flights[is_new]
        self._rows["hash"][started] = keys.hashes[is_new]
        self._rows["first"][started] = waiters[is_new]
        if not is_new.all():
            self._follow(flights[~is_new], waiters[~is_new])
        return Joined(waiters, started, np.flatnonzero(is_new))

    def send(self, flights: Numbers, batch_id: BatchId) -> None:
        """Note that the flights are in this query from now on."""
        self._rows["batch_id"][flights] = batch_id

    def restart(self, flights: Numbers, *, at: float = 0.0) -> None:
        """Clear or move a postponement: the attempt at `at`, or now, answers all that join."""
        self._rows["postponed_to"][flights] = at

    def with_hashes(self, hashes: Hashes | None) -> Numbers:
        """The flights with waiters of keys with these hashes; all of them for None."""
        wanted = np.flatnonzero(self._rows["waiters"] > 0)
        return wanted if hashes is None else wanted[is_among(self.hashes(wanted), hashes)]

    def detach(self, flights: Numbers) -> None:
        """Neither keep what these flights read, nor let lookups join them.

        A queued flight stays as it is: it has read nothing. A parked one is detached as well, so
        that later lookups do not wait for a delay that began before the change.
        """
        self._take_out(flights[self._rows["batch_id"][flights] != _QUEUED])

    def is_postponed(self, flights: Numbers) -> Mask:
        """Which flights wait for another attempt because there was no row."""
        return self._rows["postponed_to"][flights] > 0

    def leave(self, lookups: Mapping[LookupId, Numbers]) -> set[BatchId]:
        """Close the waiters of lookups that have left.

        No lookup can join a flight that has no waiters left. Returns the queries of such flights.
        """
        owners = np.repeat(np.array(list(lookups), np.int64), _sizes(lookups.values()))
        waiters = np.concatenate([np.zeros(0, np.intp), *lookups.values()])
        waiters = waiters[self._waiters["lookup_id"][waiters] == owners]
        self._close(waiters)
        flights = np.unique(self._waiters["flight"][waiters])
        deserted = flights[~self.is_wanted(flights)]
        self._take_out(deserted)
        self._free_closed_followers(flights)
        return {batch_id for batch_id in self.batch_ids(deserted) if batch_id != _QUEUED}

    def end(self, flights: Numbers) -> None:
        """Remove flights: their keys are answered, or have no waiters."""
        self._take_out(flights)
        self._free(self._waiters_of(flights)[0])
        for flight in flights[self._rows["has_followers"][flights]].tolist():
            del self._followers[flight]
        self._rows["key_id"][flights] = None
        self._rows["waiters"][flights] = 0
        self._rows.give_back(flights)

    def postpone(self, flights: Numbers, lookups: AbstractSet[LookupId], *, until: float) -> None:
        """Keep flights for another attempt at `until`; only waiters of these lookups stay open."""
        waiters, _ = self._open_waiters_of(flights)
        is_patient = np.isin(self._waiters["lookup_id"][waiters], list(lookups))
        self._close(waiters[~is_patient])
        self._rows["postponed_to"][flights] = until
        self._latest_postponement = max(until, self._latest_postponement)

    def waiters(self, flights: Numbers) -> Waiters:
        """The open waiters of these flights, by lookup."""
        waiters, ordinals = self._open_waiters_of(flights)
        lookup_ids = self._waiters["lookup_id"][waiters]
        order = np.argsort(lookup_ids, kind="stable")
        lookup_ids, places = lookup_ids[order], ordinals[order].astype(np.int32)
        positions = self._waiters["position"][waiters[order]]
        ends = (np.flatnonzero(np.diff(lookup_ids, append=_NO_LOOKUP)) + 1).tolist()
        return {
            LookupId(int(lookup_ids[start])): (positions[start:end], places[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        }

    def open_waiters(self, lookup_id: LookupId, waiters: Numbers) -> Numbers:
        """Those of a lookup's waiters that are open."""
        return waiters[self._waiters["lookup_id"][waiters] == lookup_id]

    def left_open(self, lookup_id: LookupId, waiters: Numbers) -> tuple[Positions, list[KeyId]]:
        """The positions, and their keys, that a lookup with these waiters still waits for."""
        waiters = self.open_waiters(lookup_id, waiters)
        positions: Positions = self._waiters["position"][waiters]
        return positions, self.key_ids(self._waiters["flight"][waiters])

    def is_wanted(self, flights: Numbers) -> Mask:
        """Which flights have waiters."""
        return self._rows["waiters"][flights] > 0

    def may_keep(self, flights: Numbers) -> Mask:
        """Which flights may have their rows cached."""
        return self._rows["may_keep"][flights]

    def key_ids(self, flights: Numbers) -> list[KeyId]:
        """The keys of flights."""
        return self._rows["key_id"][flights].tolist()

    def hashes(self, flights: Numbers) -> Hashes:
        """The hashes of the flights' keys."""
        return self._rows["hash"][flights]

    def batch_ids(self, flights: Numbers) -> list[BatchId]:
        """The queries of these flights, each once; 0 for the queue."""
        return [BatchId(each) for each in np.unique(self._rows["batch_id"][flights]).tolist()]

    def check_invariants(self, carried: Numbers) -> None:
        """For tests: tables, counts and links agree.

        `carried` are the flights in queues and queries: all flights, each once.
        """
        assert len(set(carried.tolist())) == len(carried) == len(self._rows)
        joinable = np.array(list(self._joinable.values()), np.intp)
        assert self.key_ids(joinable) == list(self._joinable)
        assert self.is_wanted(joinable).all()
        assert set(joinable.tolist()) == set(carried[self._rows["may_keep"][carried]].tolist())
        waiters, _ = self._waiters_of(carried)
        assert len(set(waiters.tolist())) == len(waiters) == len(self._waiters)
        _, ordinals = self._open_waiters_of(carried)
        counts = np.bincount(ordinals, minlength=len(carried))
        assert counts.tolist() == self._rows["waiters"][carried].tolist()
        followed = carried[self._rows["has_followers"][carried]]
        assert set(followed.tolist()) == self._followers.keys()

    def _found(self, key_ids: Iterable[KeyId]) -> Numbers:
        """The flights of those keys that have one, each once."""
        numbers = map(self._joinable.get, dict.fromkeys(key_ids))
        return np.array([number for number in numbers if number is not None], np.intp)

    def _placed(self, key_ids: Sequence[KeyId]) -> tuple[Numbers, Mask]:
        """The flight of each key, and which keys started one: the first of several equal keys."""
        numbers = self._rows.take(len(key_ids))
        placed = map(self._joinable.setdefault, key_ids, numbers.tolist())
        flights = np.fromiter(placed, np.intp, len(key_ids))
        is_new = flights == numbers
        self._rows.give_back(numbers[~is_new])
        self._start(flights[is_new], np.array(key_ids, object)[is_new])
        return flights, is_new

    def _start(self, flights: Numbers, key_ids: npt.NDArray[np.object_]) -> None:
        self._rows["key_id"][flights] = key_ids
        self._rows["batch_id"][flights] = _QUEUED
        self._rows["may_keep"][flights] = True
        self._rows["postponed_to"][flights] = 0.0
        self._rows["waiters"][flights] = 1
        self._rows["has_followers"][flights] = False

    def _follow(self, flights: Numbers, waiters: Numbers) -> None:
        np.add.at(self._rows["waiters"], flights, 1)
        self._rows["has_followers"][flights] = True
        for flight, waiter in zip(flights.tolist(), waiters.tolist(), strict=True):
            self._followers[flight].append(waiter)

    def _close(self, waiters: Numbers) -> None:
        self._waiters["lookup_id"][waiters] = _NO_LOOKUP
        np.subtract.at(self._rows["waiters"], self._waiters["flight"][waiters], 1)

    def _free(self, waiters: Numbers) -> None:
        self._waiters["lookup_id"][waiters] = _NO_LOOKUP
        self._waiters.give_back(waiters)

    def _take_out(self, flights: Numbers) -> None:
        """Let no lookup join these flights, and keep nothing that they read."""
        current = flights[self._rows["may_keep"][flights]]
        self._rows["may_keep"][current] = False
        deque(map(self._joinable.pop, self.key_ids(current)), maxlen=0)  # the fastest loop

    def _waiters_of(self, flights: Numbers) -> tuple[Numbers, Numbers]:
        """The waiters of flights, closed ones included, each with the ordinal of its flight."""
        ordinals = np.flatnonzero(self._rows["has_followers"][flights])
        followers = [self._followers[flight] for flight in flights[ordinals].tolist()]
        repeated = np.repeat(ordinals, _sizes(followers))
        waiters = np.fromiter(chain.from_iterable(followers), np.intp, len(repeated))
        all_waiters = np.concatenate((self._rows["first"][flights], waiters))
        return all_waiters, np.concatenate((np.arange(len(flights)), repeated))

    def _open_waiters_of(self, flights: Numbers) -> tuple[Numbers, Numbers]:
        waiters, ordinals = self._waiters_of(flights)
        is_open = self._is_open(waiters)
        return waiters[is_open], ordinals[is_open]

    def _is_open(self, waiters: Numbers) -> Mask:
        return self._waiters["lookup_id"][waiters] != _NO_LOOKUP

    def _free_closed_followers(self, flights: Numbers) -> None:
        """Free closed followers where they are many.

        During an outage they would add up at a flight that always has some open waiter.
        """
        for flight in flights[self._rows["has_followers"][flights]].tolist():
            if len(self._followers[flight]) > 2 * self._rows["waiters"][flight] + _SLACK:
                followers = np.array(self._followers[flight], np.intp)
                is_open = self._is_open(followers)
                self._free(followers[~is_open])
                self._followers[flight] = followers[is_open].tolist()


def _sizes(lists: Collection[Sized]) -> Numbers:
    return np.fromiter(map(len, lists), np.intp, len(lists))
