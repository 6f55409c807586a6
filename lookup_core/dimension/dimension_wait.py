"""Which lookups wait for changes up to the time of their records, and which of their keys may wake.

Knows keys and what is kept of them, unlike `held_lookups`; asks nothing.
"""

from collections.abc import Iterable

import numpy as np

from lookup_core.changelog.change import Change, RowChanges
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.held_lookups import HeldLookups, Released
from lookup_core.dimension.known_answers import KnownAnswers
from lookup_core.watermark_valve import NO_WATERMARK_MS

_SHARE_OF_LOOKUP = 0.25  # of a lookup's time, which is not waited away


class DimensionWait:
    """The lookups of one dimension that are ahead of it; `now` is monotonic seconds."""

    def __init__(self, known: KnownAnswers, wait_s: float) -> None:
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
