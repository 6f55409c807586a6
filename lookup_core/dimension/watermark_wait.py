"""Watermark wait: lookups that wait until the dimension's watermark reaches their event time.

Decides which keys are released; the shell looks them up.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_core.changelog.change_decoder import Change, RowChanges
from lookup_core.deadlines import Deadlines
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.keys.canonical_keys import Hashes

Positions = npt.NDArray[np.int32]

_RESERVED_SHARE = 0.25  # of a lookup's time, for the lookup itself after the wait


@dataclass(frozen=True, slots=True)
class Released:
    """Keys of one lookup whose wait is over."""

    lookup_id: LookupId
    positions: Positions


@dataclass(slots=True)
class _Held:
    event_time_ms: int
    positions: Positions  # that still wait
    hashes: Hashes  # of their keys
    may_wake: npt.NDArray[np.bool_]  # released by a change of the key: it has no cached row


class WatermarkWait:
    """The lookups of one dimension that are ahead of its watermark; `now` is monotonic seconds.

    All keys wait for the watermark, at most `wait_s`. A key without a cached row is released by a
    change of the key as well.
    """

    def __init__(self, resolver: LocalResolver, wait_s: float) -> None:
        self._resolver = resolver
        self._wait_s = wait_s
        self._watermark_ms = NO_WATERMARK_MS
        self._held: dict[LookupId, _Held] = {}
        self._due = Deadlines[LookupId]()
        self._wakeable: tuple[Hashes, npt.NDArray[np.int64]] | None = None  # keys and lookups

    def __len__(self) -> int:
        """The number of keys that wait."""
        return sum(len(held.positions) for held in self._held.values())

    def is_ahead(self, request: LookupRequest) -> bool:
        """Whether a lookup has to wait: changes before its event time may be outstanding."""
        time_ms = request.event_time_ms
        return bool(self._wait_s and request.keys.size) and (
            time_ms is not None and time_ms >= self._watermark_ms
        )

    def hold(self, request: LookupRequest, now: float) -> None:
        """Let a lookup that is ahead wait."""
        assert request.event_time_ms is not None
        found, keys, probe = self._resolver.peek(request.keys, now)
        hashes = np.zeros(request.keys.size, np.uint64)
        may_wake = np.zeros(request.keys.size, np.bool_)
        hashes[found], may_wake[found] = keys.hashes, ~probe.is_row
        positions = np.arange(request.keys.size, dtype=np.int32)
        self._held[request.id] = _Held(request.event_time_ms, positions, hashes, may_wake)
        latest = request.deadline_s - _RESERVED_SHARE * (request.deadline_s - now)
        self._due.add(request.id, min(now + self._wait_s, latest))
        self._wakeable = None

    def on_watermark(self, watermark_ms: int) -> list[Released]:
        """Advance the watermark, and release the lookups of earlier event times."""
        if watermark_ms <= self._watermark_ms:
            return []
        self._watermark_ms = watermark_ms
        reached = [name for name, held in self._held.items() if held.event_time_ms < watermark_ms]
        return [self._release(lookup_id) for lookup_id in reached]

    def on_changes(self, changes: Iterable[Change]) -> list[Released]:
        """Release the keys of these changes that had no cached row."""
        released = []
        for change in changes:
            if self._held and isinstance(change, RowChanges):
                hashes = self._resolver.canonical(change.keys).hashes
                known, lookups = self._wakeable_keys()
                woken = np.unique(lookups[np.isin(known, hashes)]).tolist()
                released += [self._wake(LookupId(lookup_id), hashes) for lookup_id in woken]
        return released

    def expire(self, now: float) -> list[Released]:
        """Release the lookups that have waited for the longest allowed time."""
        released = []
        while (lookup_id := self._due.pop_due(now)) is not None:
            released.append(self._release(lookup_id))
        return released

    def leave(self, lookup_id: LookupId) -> None:
        """Remove a lookup whose caller has left; a no-op if it does not wait here."""
        if lookup_id in self._held:
            self._release(lookup_id)

    def release_all(self) -> list[Released]:
        """Release all lookups."""
        return [self._release(lookup_id) for lookup_id in list(self._held)]

    def next_deadline(self) -> float | None:
        """The time at which the next lookup has waited for the longest allowed time."""
        return self._due.earliest()

    def check_invariants(self) -> None:
        """For tests: each lookup here has keys and a deadline."""
        assert all(self._due.get(lookup_id) is not None for lookup_id in self._held)
        assert len(self._due) == len(self._held)
        for held in self._held.values():
            assert len(held.positions) == len(held.hashes) == len(held.may_wake) > 0
        self._due.check_invariants()

    def _release(self, lookup_id: LookupId) -> Released:
        self._due.discard(lookup_id)
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

    def _wakeable_keys(self) -> tuple[Hashes, npt.NDArray[np.int64]]:
        if self._wakeable is None:
            known = [held.hashes[held.may_wake] for held in self._held.values()]
            lookups = np.array(list(self._held), np.int64)
            counts = [len(each) for each in known]
            self._wakeable = np.concatenate(known), np.repeat(lookups, counts)
        return self._wakeable
