"""Lookups that wait until the dimension's watermark reaches their event time."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_core.changelog.change_decoder import Change, RowChanges
from lookup_core.dimension.deadlines import Deadlines
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.keys.canonical_keys import Hashes
from lookup_core.watermark_valve import NO_WATERMARK_MS

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Released:
    """Keys of one lookup that need not wait any longer."""

    lookup_id: LookupId
    positions: Positions


@dataclass(slots=True)
class _Held:
    event_time_ms: int
    positions: Positions  # that wait
    hashes: Hashes  # of those
    may_wake: Mask  # which of those a change of their key releases


class HeldLookups:
    """Each waits for the watermark of its dimension, or till a time; `now` is monotonic seconds.

    A key that has no row as far as is known is released as soon as a change of it is told.
    """

    def __init__(self) -> None:
        self._held: dict[LookupId, _Held] = {}
        self._due = Deadlines[LookupId]()
        self._wakeable: tuple[Hashes, npt.NDArray[np.int64]] | None = None  # keys and lookups

    def __len__(self) -> int:
        """How many keys wait."""
        return sum(len(held.positions) for held in self._held.values())

    def hold(
        self,
        lookup_id: LookupId,
        hashes: Hashes,
        *,
        event_time_ms: int,
        until: float,
        may_wake: Mask,
    ) -> None:
        """Let all keys of a new lookup wait, which has one at least."""
        positions = np.arange(len(hashes), dtype=np.int32)
        self._held[lookup_id] = _Held(event_time_ms, positions, hashes, may_wake)
        self._due.add(lookup_id, until)
        self._wakeable = None

    def on_watermark(self, watermark_ms: int) -> list[Released]:
        """All changes before this time are told: who waited for no more need not wait."""
        reached = [
            lookup_id for lookup_id, held in self._held.items() if held.event_time_ms < watermark_ms
        ]
        return [self._release(lookup_id) for lookup_id in reached]

    def on_changes(self, hashes: Hashes) -> list[Released]:
        """Rows of these keys have changed: who missed one of them gets it now."""
        if not self._held:
            return []
        known, owners = self._by_key()
        is_woken = np.isin(known, hashes)
        woken = np.unique(owners[is_woken]).tolist()
        return [self._wake(LookupId(lookup_id), hashes) for lookup_id in woken]

    def expire(self, now: float) -> list[Released]:
        """Those that have waited for as long as they may."""
        released = []
        while (lookup_id := self._due.pop_due(now)) is not None:
            released.append(self._taken(lookup_id))
        return released

    def leave(self, lookup_ids: Iterable[LookupId]) -> None:
        """Nobody waits for these any more; harmless for those that do not wait here."""
        for lookup_id in lookup_ids:
            if lookup_id in self._held:
                self._release(lookup_id)

    def release_all(self) -> list[Released]:
        """Let nobody wait any longer."""
        return [self._release(lookup_id) for lookup_id in list(self._held)]

    def next_deadline(self) -> float | None:
        """When the first of them has waited for as long as it may."""
        return self._due.earliest()

    def check_invariants(self) -> None:
        """For tests: who is here waits for something, and till a time."""
        assert self._held.keys() == {name for name in self._held if self._due.get(name) is not None}
        assert len(self._due) == len(self._held)
        for held in self._held.values():
            assert len(held.positions) == len(held.hashes) == len(held.may_wake) > 0
        self._due.check_invariants()

    def _release(self, lookup_id: LookupId) -> Released:
        self._due.discard(lookup_id)
        return self._taken(lookup_id)

    def _taken(self, lookup_id: LookupId) -> Released:
        self._wakeable = None
        return Released(lookup_id, self._held.pop(lookup_id).positions)

    def _wake(self, lookup_id: LookupId, hashes: Hashes) -> Released:
        held = self._held[lookup_id]
        is_woken = held.may_wake & np.isin(held.hashes, hashes)
        if is_woken.all():
            return self._release(lookup_id)
        released = Released(lookup_id, held.positions[is_woken])
        held.positions = held.positions[~is_woken]
        held.hashes, held.may_wake = held.hashes[~is_woken], held.may_wake[~is_woken]
        self._wakeable = None
        return released

    def _by_key(self) -> tuple[Hashes, npt.NDArray[np.int64]]:
        if self._wakeable is None:
            known = [held.hashes[held.may_wake] for held in self._held.values()]
            owners = np.array(list(self._held), np.int64)
            self._wakeable = (
                np.concatenate(known),
                np.repeat(owners, [len(each) for each in known]),
            )
        return self._wakeable


_SHARE_OF_LOOKUP = 0.25  # of a lookup's time, which is not waited away


class WatermarkWait:
    """The lookups of one dimension that are ahead of it; `now` is monotonic seconds."""

    def __init__(self, known: LocalResolver, wait_s: float) -> None:
        self.held = HeldLookups()
        self._known = known
        self._wait_s = wait_s
        self._watermark_ms = NO_WATERMARK_MS

    def is_ahead(self, request: LookupRequest) -> bool:
        """Whether changes before the time of its records may still be told, and are waited for."""
        time_ms = request.event_time_ms
        return bool(self._wait_s and request.keys.size) and (
            time_ms is not None and time_ms >= self._watermark_ms
        )

    def hold(self, request: LookupRequest, now: float) -> None:
        """Let it wait; keys that have no row, as far as is known, may be woken by a change."""
        assert request.event_time_ms is not None  # it is ahead
        positions, keys, probe = self._known.peek(request.keys, now)
        hashes = np.zeros(request.keys.size, np.uint64)
        may_wake = np.zeros(request.keys.size, np.bool_)
        hashes[positions], may_wake[positions] = keys.hashes, ~probe.is_row
        # What is released has to be looked up yet, in what is left of its time.
        latest = request.deadline_s - _SHARE_OF_LOOKUP * (request.deadline_s - now)
        until = min(now + self._wait_s, latest)
        self.held.hold(
            request.id,
            hashes,
            event_time_ms=request.event_time_ms,
            until=until,
            may_wake=may_wake,
        )

    def on_watermark(self, watermark_ms: int) -> list[Released]:
        """All changes before this time are told."""
        if watermark_ms <= self._watermark_ms:
            return []
        self._watermark_ms = watermark_ms
        return self.held.on_watermark(watermark_ms)

    def on_changes(self, changes: Iterable[Change]) -> list[Released]:
        """These are told: who waits for such a row need not wait any longer."""
        if not len(self.held):
            return []
        released = []
        for change in changes:
            if isinstance(change, RowChanges):
                every = np.arange(change.keys.num_rows, dtype=np.int32)
                hashes = self._known.canonical(change.keys, every).hashes
                released += self.held.on_changes(hashes)
        return released
