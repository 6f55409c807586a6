"""Watermark wait: lookups that wait until the dimension's watermark reaches their event time.

Decides which keys are released; the state looks them up, as lookups of their own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.changelog.change_decoder import Change, RowChanges
from lookup_core.deadlines import Deadlines
from lookup_core.dimension.dimension_events import Delivery, LookupId, LookupRequest
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.errors import ErrorCode
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.keys.canonical_keys import Hashes

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int32]

_RESERVED_SHARE = 0.25  # a lookup's own part of its time, after the wait


@dataclass(slots=True, eq=False)
class _Held:
    request: LookupRequest
    event_time_ms: int
    unanswered: int  # positions, waiting or released
    positions: Positions  # that still wait
    key_hashes: Hashes
    may_wake: Mask  # released by a change of the key: it has no cached row
    parts: list[LookupId] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    held: _Held
    positions: Positions


class WatermarkWait:
    """The lookups of one dimension that are ahead of its watermark; `now` is monotonic seconds.

    All keys wait for the watermark, at most `wait_s`. A key without a cached row is released by a
    change of the key as well. Keys that are released together are a lookup of their own, with an
    id of `part_ids`, whose answers are answers to the whole lookup.
    """

    def __init__(
        self, resolver: LocalResolver, wait_s: float, part_ids: Iterator[LookupId]
    ) -> None:
        self._resolver = resolver
        self._wait_s = wait_s
        self._part_ids = part_ids
        self._watermark_ms = NO_WATERMARK_MS
        self._lookups: dict[LookupId, _Held] = {}  # until their last answer
        self._parts: dict[LookupId, _Part] = {}
        # When lookups with keys that wait have waited for the longest allowed time; for reading.
        self.deadlines = Deadlines[LookupId]()
        self._wakeable: tuple[Hashes, npt.NDArray[np.int64]] | None = None  # keys and lookups
        self.keys = 0  # that wait; for reading

    def is_ahead(self, request: LookupRequest) -> bool:
        """Whether a lookup has to wait: changes before its event time may be outstanding."""
        time_ms = request.event_time_ms
        return bool(self._wait_s and request.keys.size) and (
            time_ms is not None and time_ms >= self._watermark_ms
        )

    def hold(self, request: LookupRequest, now: float) -> None:
        """Let a lookup that is ahead wait."""
        found, keys, probe = self._resolver.peek(request.keys, now)
        size = request.keys.size
        hashes, may_wake = np.zeros(size, np.uint64), np.zeros(size, np.bool_)
        hashes[found], may_wake[found] = keys.hashes, ~probe.is_row
        self._lookups[request.id] = _Held(
            request,
            NO_WATERMARK_MS if request.event_time_ms is None else request.event_time_ms,
            unanswered=size,
            positions=np.arange(size, dtype=np.int32),
            key_hashes=hashes,
            may_wake=may_wake,
        )
        latest = request.deadline_s - _RESERVED_SHARE * (request.deadline_s - now)
        self.deadlines.add(request.id, min(now + self._wait_s, latest))
        self.keys += size
        self._wakeable = None

    def on_watermark(self, watermark_ms: int) -> list[LookupRequest]:
        """Advance the watermark, and release the lookups of earlier event times."""
        if watermark_ms <= self._watermark_ms:
            return []
        self._watermark_ms = watermark_ms
        reached = [each for each in self._waiting() if each.event_time_ms < watermark_ms]
        return [self._release(held) for held in reached]

    def on_changes(self, changes: Iterable[Change]) -> list[LookupRequest]:
        """Release the keys of these changes that had no cached row."""
        released = []
        for change in changes:
            if len(self.deadlines) and isinstance(change, RowChanges):
                hashes = self._resolver.canonical(change.keys).hashes
                known, lookups = self._wakeable_keys()
                woken = np.unique(lookups[np.isin(known, hashes)]).tolist()
                released += [self._wake(self._lookups[LookupId(each)], hashes) for each in woken]
        return released

    def expire(self, now: float) -> list[LookupRequest]:
        """Release the lookups that have waited for the longest allowed time."""
        released = []
        while (lookup_id := self.deadlines.pop_due(now)) is not None:
            released.append(self._release(self._lookups[lookup_id]))
        return released

    def refuse_all(self, code: ErrorCode) -> list[Delivery]:
        """End all keys that wait with this error."""
        deliveries = []
        for held in self._waiting():
            part = self._release(held)
            every = np.arange(part.keys.size, dtype=np.int32)
            answer = rowless_answer(every, Outcome.ERROR, error=code)
            deliveries.append(self.whole(Delivery(part.id, answer)))
        return deliveries

    def whole(self, delivery: Delivery) -> Delivery:
        """A delivery to a part as one to its lookup; others as they are."""
        part = self._parts.get(delivery.lookup_id)
        if part is None:
            return delivery
        held, answer = part.held, delivery.answer.placed(part.positions)
        held.unanswered -= answer.size
        if not held.unanswered:
            self._forget(held)
        return Delivery(held.request.id, answer, is_last=not held.unanswered)

    def whole_id(self, lookup_id: LookupId) -> LookupId:
        """The lookup of a part; other ids as they are."""
        part = self._parts.get(lookup_id)
        return lookup_id if part is None else part.held.request.id

    def leave(self, lookup_id: LookupId) -> list[LookupId]:
        """Remove a lookup whose caller has left; returns its parts.

        A lookup that never waited here is its only part.
        """
        held = self._lookups.get(lookup_id)
        if held is None:
            return [lookup_id]
        self._forget(held)
        return held.parts

    def check_invariants(self) -> None:
        """For tests: each lookup that waits has keys and a deadline."""
        self.deadlines.check_invariants()
        assert len(self.deadlines) == len(self._waiting())
        assert self.keys == sum(len(held.positions) for held in self._lookups.values())
        for lookup_id, held in self._lookups.items():
            assert len(held.positions) == len(held.key_hashes) == len(held.may_wake)
            is_due = self.deadlines.get(lookup_id) is not None
            assert is_due == bool(len(held.positions))
            assert held.unanswered >= len(held.positions)
            assert all(self._parts[part_id].held is held for part_id in held.parts)
        assert len(self._parts) == sum(len(held.parts) for held in self._lookups.values())

    def _waiting(self) -> list[_Held]:
        return [held for held in self._lookups.values() if held.positions.size]

    def _release(self, held: _Held) -> LookupRequest:
        return self._part(held, np.ones(len(held.positions), np.bool_))

    def _wake(self, held: _Held, hashes: Hashes) -> LookupRequest:
        return self._part(held, held.may_wake & np.isin(held.key_hashes, hashes))

    def _part(self, held: _Held, is_released: Mask) -> LookupRequest:
        positions, is_left = held.positions[is_released], ~is_released
        held.positions, held.key_hashes = held.positions[is_left], held.key_hashes[is_left]
        held.may_wake = held.may_wake[is_left]
        self.keys -= len(positions)
        if not held.positions.size:
            self.deadlines.discard(held.request.id)
        self._wakeable = None
        part_id = next(self._part_ids)
        held.parts.append(part_id)
        self._parts[part_id] = _Part(held, positions)
        keys = held.request.keys.taken(positions)
        return replace(held.request, id=part_id, keys=keys, event_time_ms=None)

    def _forget(self, held: _Held) -> None:
        del self._lookups[held.request.id]
        self.deadlines.discard(held.request.id)
        self.keys -= len(held.positions)
        self._wakeable = None
        for part_id in held.parts:
            del self._parts[part_id]

    def _wakeable_keys(self) -> tuple[Hashes, npt.NDArray[np.int64]]:
        if self._wakeable is None:
            waiting = self._waiting()
            known = [held.key_hashes[held.may_wake] for held in waiting]
            lookups = np.array([held.request.id for held in waiting], np.int64)
            counts = [len(each) for each in known]
            self._wakeable = np.concatenate(known), np.repeat(lookups, counts)
        return self._wakeable
