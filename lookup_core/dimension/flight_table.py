"""Single flight: the keys that are being fetched, and the lookups that wait for each."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import NewType

import numpy as np
import numpy.typing as npt

from lookup_core.dimension.numbered_rows import NumberedRows, Numbers
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes, KeyId, is_among

Positions = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

NOBODY = -(2**63)  # no lookup's id
_WAITER: dict[str, npt.DTypeLike] = {
    "lookup_id": np.int64,  # nobody's once it was answered, or has left
    "position": np.int32,
    "flight": np.intp,
}


class WaiterTable:
    """Waiters by number; lookups' ids are plain numbers here, each used once."""

    def __init__(self) -> None:
        self._rows = NumberedRows(_WAITER)

    def __len__(self) -> int:
        """How many are not freed yet."""
        return len(self._rows)

    def add(self, lookup_id: int, flights: Numbers, positions: Positions) -> Numbers:
        """A lookup's positions wait for flights; their numbers."""
        waiters = self._rows.take(len(flights))
        self._rows["lookup_id"][waiters] = lookup_id
        self._rows["position"][waiters] = positions
        self._rows["flight"][waiters] = flights
        return waiters

    def lookup_ids(self, waiters: Numbers) -> npt.NDArray[np.int64]:
        """Whose they are, or nobody's."""
        return self._rows["lookup_id"][waiters]

    def positions(self, waiters: Numbers) -> Positions:
        """Where in their lookups they wait."""
        return self._rows["position"][waiters]

    def flights(self, waiters: Numbers) -> Numbers:
        """What they wait for."""
        return self._rows["flight"][waiters]

    def by_lookup(
        self, waiters: Numbers, ordinals: Positions
    ) -> dict[int, tuple[Positions, Positions]]:
        """The positions of open waiters by lookup, each with one of the ordinals."""
        lookup_ids = self.lookup_ids(waiters)
        order = np.argsort(lookup_ids, kind="stable")
        lookup_ids, ordinals = lookup_ids[order], ordinals[order]
        positions = self.positions(waiters[order])
        ends = (np.flatnonzero(np.diff(lookup_ids, append=NOBODY)) + 1).tolist()
        return {
            int(lookup_ids[start]): (positions[start:end], ordinals[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        }

    def is_open(self, waiters: Numbers) -> Mask:
        """Who of them still waits."""
        return self.lookup_ids(waiters) != NOBODY

    def close(self, waiters: Numbers) -> None:
        """Let them wait no longer; their numbers are theirs until they are freed."""
        self._rows["lookup_id"][waiters] = NOBODY

    def free(self, waiters: Numbers) -> None:
        """Let their numbers be others'."""
        self.close(waiters)
        self._rows.give_back(waiters)


LookupId = NewType("LookupId", int)
BatchId = NewType("BatchId", int)

# {lookup: (its positions, the ordinals of their flights)} over all who wait for some flights
Waiters = dict[LookupId, tuple[Positions, Positions]]

_QUEUED = 0  # in no batch
_FLIGHT: dict[str, npt.DTypeLike] = {
    "key_id": object,
    "hash": np.uint64,  # of the key
    "batch_id": np.int64,
    "may_keep": np.bool_,  # and be joined
    "postponed_to": np.float64,  # while a key without a row waits to be asked again
    "waiters": np.int32,  # how many wait
    "first": np.intp,  # the waiter who started it; all others are its followers
    "has_followers": np.bool_,
}
_SLACK = 8  # followers who are gone; few of them cost less than to look for them


@dataclass(frozen=True, slots=True)
class Flight:
    """What is told of one key on its way; `batch_id` is None while it is queued."""

    batch_id: BatchId | None
    waiters: int
    postponed_to: float


@dataclass(frozen=True, slots=True)
class Joined:
    """What became of a lookup's keys."""

    waiters: Numbers  # [n] one for each key
    started: Numbers  # [m] the flights that are new
    indices: Numbers  # [m] to which of the n keys each of those belongs


class FlightTable:
    """Flights by number; each is in one queue or one query, whose end is its own.

    Those that newcomers may join are found by key.
    """

    def __init__(self) -> None:
        self._joinable: dict[KeyId, int] = {}
        self._rows = NumberedRows(_FLIGHT)
        self._waiters = WaiterTable()
        self._followers: defaultdict[int, list[int]] = defaultdict(list)  # {flight: waiters}
        self._latest_postponement = 0.0

    def __len__(self) -> int:
        """How many may be joined."""
        return len(self._joinable)

    def get(self, key_id: KeyId) -> Flight | None:
        """The flight of a key, if one may be joined."""
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
        """Which keys have a flight already that may be joined."""
        return np.array([key_id in self._joinable for key_id in key_ids], np.bool_)

    def join(
        self,
        lookup_id: LookupId,
        keys: CanonicalKeys,
        *,
        positions: Positions,
        deadline_s: float,
    ) -> Joined:
        """Let a lookup wait for keys.

        A key whose next try comes too late for this lookup is asked at once, in a flight of its
        own: the older one goes on for those who have the time, and is not kept.
        """
        key_ids = keys.ids()
        if deadline_s <= self._latest_postponement:
            found = self._found(key_ids)
            self._take_out(found[self._rows["postponed_to"][found] >= deadline_s])
        flights, is_new = self._placed(key_ids)
        waiters = self._waiters.add(lookup_id, flights, positions)
        started = flights[is_new]
        self._rows["hash"][started] = keys.hashes[is_new]
        self._rows["first"][started] = waiters[is_new]
        if not is_new.all():
            self._follow(flights[~is_new], waiters[~is_new])
        return Joined(waiters, started, np.flatnonzero(is_new))

    def send(self, flights: Numbers, batch_id: BatchId) -> None:
        """Note that the keys are in this query from now on."""
        self._rows["batch_id"][flights] = batch_id

    def restart(self, flights: Numbers, *, at: float = 0.0) -> None:
        """Note that postponed keys are asked then, or now: who joins is answered by this try."""
        self._rows["postponed_to"][flights] = at

    def with_hashes(self, hashes: Hashes | None) -> Numbers:
        """The flights of keys with these hashes (all for None) that somebody waits for."""
        wanted = np.flatnonzero(self._rows["waiters"] > 0)
        return wanted if hashes is None else wanted[is_among(self.hashes(wanted), hashes)]

    def detach(self, flights: Numbers) -> None:
        """Let these land without being kept or joined.

        A queued flight has read nothing yet: it stays as it is. A parked one will read anew, too;
        but whoever asks after a change should not wait out a delay that began before it.
        """
        self._take_out(flights[self._rows["batch_id"][flights] != _QUEUED])

    def is_postponed(self, flights: Numbers) -> Mask:
        """Which of them wait to be asked again, because there was no row."""
        return self._rows["postponed_to"][flights] > 0

    def leave(self, lookups: Mapping[LookupId, Numbers]) -> set[BatchId]:
        """Let lookups wait no longer, each with its waiters.

        Flights that nobody waits for now are out of the table at once, so that a newcomer starts a
        fresh one; returns the queries that they are in.
        """
        owners = np.repeat(np.array(list(lookups), np.int64), _sizes(lookups.values()))
        waiters = np.concatenate([np.zeros(0, np.intp), *lookups.values()])
        waiters = waiters[self._waiters.lookup_ids(waiters) == owners]
        self._close(waiters)
        flights = np.unique(self._waiters.flights(waiters))
        deserted = flights[~self.is_wanted(flights)]
        self._take_out(deserted)
        self._free_closed_followers(flights)
        return {batch_id for batch_id in self.batch_ids(deserted) if batch_id != _QUEUED}

    def end(self, flights: Numbers) -> None:
        """Forget flights: their keys are answered, or nobody waits for them."""
        self._take_out(flights)
        waiters, _ = self._waiters_of(flights)
        self._waiters.free(waiters)
        for flight in flights[self._rows["has_followers"][flights]].tolist():
            del self._followers[flight]
        self._rows["key_id"][flights] = None
        self._rows["waiters"][flights] = 0
        self._rows.give_back(flights)

    def postpone(self, flights: Numbers, lookups: AbstractSet[LookupId], *, until: float) -> None:
        """Keep flights for another try at that time, for those of these lookups that wait."""
        waiters, _ = self._open_waiters_of(flights)
        is_patient = np.isin(self._waiters.lookup_ids(waiters), list(lookups))
        self._close(waiters[~is_patient])
        self._rows["postponed_to"][flights] = until
        self._latest_postponement = max(until, self._latest_postponement)

    def waiters(self, flights: Numbers) -> Waiters:
        """All who wait for these; a lookup that waits for none of them is not in it."""
        waiters, ordinals = self._open_waiters_of(flights)
        grouped = self._waiters.by_lookup(waiters, ordinals.astype(np.int32))
        return {LookupId(lookup_id): places for lookup_id, places in grouped.items()}

    def left_open(self, lookup_id: LookupId, waiters: Numbers) -> tuple[Positions, list[KeyId]]:
        """What has no answer yet of a lookup with these waiters: positions, and their keys."""
        waiters = waiters[self._waiters.lookup_ids(waiters) == lookup_id]
        return self._waiters.positions(waiters), self.key_ids(self._waiters.flights(waiters))

    def is_wanted(self, flights: Numbers) -> Mask:
        """Whether somebody waits for them."""
        return self._rows["waiters"][flights] > 0

    def may_keep(self, flights: Numbers) -> Mask:
        """Whether what they bring may be kept."""
        return self._rows["may_keep"][flights]

    def key_ids(self, flights: Numbers) -> list[KeyId]:
        """Their keys."""
        return self._rows["key_id"][flights].tolist()

    def hashes(self, flights: Numbers) -> Hashes:
        """The hashes of their keys."""
        return self._rows["hash"][flights]

    def batch_ids(self, flights: Numbers) -> list[BatchId]:
        """The queries that they are in, each once; 0 for the queue."""
        return [BatchId(each) for each in np.unique(self._rows["batch_id"][flights]).tolist()]

    def check_invariants(self, carried: Numbers) -> None:
        """For tests: whoever joins a flight is answered by it, and may have it kept.

        `carried` are the flights in queues and queries: each of them once, and no others.
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
        """The flights of keys, and at which of the keys each new one started: the first of it."""
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
        self._waiters.close(waiters)
        np.subtract.at(self._rows["waiters"], self._waiters.flights(waiters), 1)

    def _take_out(self, flights: Numbers) -> None:
        """Let nobody join these from now on, and keep nothing of what they bring."""
        current = flights[self._rows["may_keep"][flights]]
        self._rows["may_keep"][current] = False
        deque(map(self._joinable.pop, self.key_ids(current)), maxlen=0)  # the quickest way

    def _waiters_of(self, flights: Numbers) -> tuple[Numbers, Numbers]:
        """Their waiters, those who are gone included, each with the ordinal of its flight."""
        ordinals = np.flatnonzero(self._rows["has_followers"][flights])
        followers = [self._followers[flight] for flight in flights[ordinals].tolist()]
        repeated = np.repeat(ordinals, _sizes(followers))
        waiters = np.fromiter(chain.from_iterable(followers), np.intp, len(repeated))
        all_waiters = np.concatenate((self._rows["first"][flights], waiters))
        return all_waiters, np.concatenate((np.arange(len(flights)), repeated))

    def _open_waiters_of(self, flights: Numbers) -> tuple[Numbers, Numbers]:
        waiters, ordinals = self._waiters_of(flights)
        is_open = self._waiters.is_open(waiters)
        return waiters[is_open], ordinals[is_open]

    def _free_closed_followers(self, flights: Numbers) -> None:
        """Free the numbers of followers who are gone, where those are many.

        They would add up at a flight that always has somebody who waits, while the store is away.
        """
        for flight in flights[self._rows["has_followers"][flights]].tolist():
            if len(self._followers[flight]) > 2 * self._rows["waiters"][flight] + _SLACK:
                followers = np.array(self._followers[flight], np.intp)
                is_open = self._waiters.is_open(followers)
                self._waiters.free(followers[~is_open])
                self._followers[flight] = followers[is_open].tolist()


def _sizes(lists: Collection[Sized]) -> Numbers:
    return np.fromiter(map(len, lists), np.intp, len(lists))
