"""Audit of a dimension's cache: compares rows with reads of the same keys, by the fence's rules.

Finds what a feed does not report and what its events show wrongly. The shell sends the reads.
"""

from dataclasses import replace
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.compatibility import concat_batches
from lookup_core.dimension.dimension_events import NO_ROW, Read
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.dimension.row_copies import KnownRows, RowCopies
from lookup_core.dimension_schema import version_columns
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.event_values import EventValues
from lookup_core.freshness.feed_trust import FeedTrust, Suspects
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes, is_among
from lookup_core.settings import AuditSettings, DimensionSettings
from lookup_core.statistics import AuditResult, DistrustStatistics
from lookup_core.table.reload import last_of_each

Draws = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.integer]

_MAX_COPIES = 200  # rows that queries read while the feed is distrusted
_EVENT_ROWS = 64  # until they are compared
_MAX_COMPARED_KEYS = 200  # in one query
_SOON_S = 1.0  # until rows of events are read, after they may be a proof


class Verdict(Enum):
    """What an audit has found."""

    INCOMPLETE = "a change of a row was not reported"
    VALUES = "rows of events differ from the table"
    UNUSED_VALUES = "rows of events, which were not used yet, differ from the table"
    RESTORED = "samples agree again"

    @property
    def empties_cache(self) -> bool:
        """Whether all rows must go."""
        return self in {Verdict.INCOMPLETE, Verdict.VALUES}


class CacheAudit:
    """The audit of one dimension with a feed; `now` is monotonic seconds.

    An entry is a witness of the feed until an event of its key, or a flush. Its key is suspect if a
    read differs that saw all reported changes, and the feed is incomplete if no event follows.
    """

    def __init__(
        self,
        settings: AuditSettings,
        resolver: LocalResolver,
        fence: RecentChanges,
        *,
        trust: FeedTrust,
        compares_rows: bool,
    ) -> None:
        """Without `compares_rows`, only that a key has rows: their order may change."""
        self._settings = settings
        self._compares_rows = compares_rows
        self._resolver = resolver
        self._fence = fence
        self._suspects = Suspects(settings.grace_s)
        self._suspect_values = Suspects(settings.grace_s)
        self._trust = trust
        self.values = EventValues(resolver.schema.columns, trust.refusal)
        self._has_used_values = False
        self._copies = RowCopies(resolver.schema, _MAX_COPIES)  # while the feed is distrusted
        self._events = RowCopies(resolver.schema, _EVENT_ROWS)  # in full mode
        self._due_at = self._values_due_at = np.inf
        self.counts = dict.fromkeys(AuditResult, 0)

    @classmethod
    def of(
        cls,
        settings: DimensionSettings,
        resolver: LocalResolver,
        fence: RecentChanges,
        *,
        trust: FeedTrust | None,
    ) -> "CacheAudit | None":
        """The audit of a dimension's feed; None without feed, or if it is off.

        Without `trust`, nothing is known of the feed.
        """
        audit, schema = settings.feed.audit, resolver.schema
        if audit is None:
            return None
        is_single = settings.match is None and version_columns(schema.columns) is None
        has_order = schema.origin is not None and schema.origin.has_row_order
        compares_rows = is_single or has_order
        return cls(audit, resolver, fence, trust=trust or FeedTrust(), compares_rows=compares_rows)

    @property
    def is_distrusted(self) -> bool:
        """Whether the feed is incomplete, as far as is known."""
        return self._trust.probation.is_on

    def distrust(self, now: float) -> DistrustStatistics | None:
        """The state of the probation; None while the feed is trusted."""
        return self._trust.probation.statistics(now)

    @property
    def draw_count(self) -> int:
        """The random numbers that a sample needs: one for each key, and one for the kinds."""
        return self._settings.keys + 1

    def schedule(self, now: float, jitter: float) -> None:
        """Set the next audit; `jitter` in [0, 1) makes its time random."""
        self._due_at = now + self._settings.every_s * (0.5 + jitter)

    def next_due(self) -> float:
        """When the next audit is due."""
        return float(min(self._due_at, self._values_due_at))

    def sample(self, draws: Draws) -> pa.RecordBatch:
        """Keys to read now, for random numbers in [0, 1); at most one less, maybe none."""
        self._values_due_at = np.inf
        chance, draws = float(draws[0]), draws[1:]
        resolver = self._resolver
        # The parts of small samples are rounded by chance: each kind has its turn.
        events = self._events.columns.slice(0, int(len(draws) / 2 + chance))
        absent = resolver.columns_of(resolver.absent).slice(0, int(len(draws) / 4 + 1 - chance))
        batches = [events, absent]
        if self.is_distrusted:
            chosen = np.unique((draws * len(self._copies)).astype(np.intp))[: len(self._copies)]
            batches.append(self._copies.columns.take(pa.array(chosen)))
        else:
            batches.append(resolver.columns_of(resolver.cache.entries.sample(draws)))
        columns = concat_batches(batches)
        distinct = last_of_each(resolver.canonical(columns))
        return columns.take(pa.array(distinct[: len(draws)]))

    def on_read(self, read: Read, now: float) -> None:
        """Compare a read with entries, copies and rows of events."""
        if read.fetched.read_at is not None:  # the cache itself, or older than its query
            return
        keys = self._resolver.canonical(read.columns.slice(0, _MAX_COMPARED_KEYS))
        self._events.forget(keys.hashes[read.result.row_of[: keys.size] < NO_ROW])  # never one row
        at = self._comparable(keys, read, now)
        if not at.size:
            return
        snapshot, sent_at = read.fetched.snapshot, read.sent_at
        at = at[self._fence.proves(keys.hashes[at], snapshot, sent_at=sent_at, now=now)]
        self._compare(keys.take(at), read.take(at), now)

    def on_failure(self, keys: int) -> None:
        """Count the keys of a read that failed."""
        self.counts[AuditResult.FAILED] += keys

    def on_changes(self, keys: CanonicalKeys, change: RowChanges, now: float) -> RowChanges:
        """An event of these keys: explains their differences; returns it with proved rows only."""
        self.forget(keys.hashes)
        if not self._resolver.cache.takes_changed_rows or not change.has_row.any():
            return change
        if not self.values.refusal.is_on and len(self._events) < _EVENT_ROWS:
            self._remember(keys, change, now)
        has_row = change.has_row & self.values.usable(change.rows)
        self._has_used_values |= bool(has_row.any())
        return replace(change, has_row=has_row)

    def forget(self, hashes: Hashes | None) -> None:
        """Keys, or all for None, were changed or removed: reads may differ from now on."""
        for part in (self._suspects, self._suspect_values):
            part.clear(hashes)
        for copies in (self._copies, self._events):
            copies.forget(hashes)

    def judge(self, *, reported_until: float, now: float) -> Verdict | None:
        """What follows from the claim of a live feed; the caller carries it out at once."""
        self.values.expire(now)
        altered = self._suspect_values.take_contradictions(reported_until)
        changed = self._suspects.take_contradictions(reported_until)
        self.counts[AuditResult.CONTRADICTED] += altered + changed
        if altered:
            self._trust.refusal.begin(now)
        if changed:
            self._trust.probation.begin(now)
            self.values.reset()
            self._has_used_values = False  # all rows go
            return Verdict.INCOMPLETE
        if altered:
            return Verdict.VALUES if self._has_used_values else Verdict.UNUSED_VALUES
        return Verdict.RESTORED if self._trust.probation.end_if_over(now) else None

    def _comparable(self, keys: CanonicalKeys, read: Read, now: float) -> npt.NDArray[np.int32]:
        """The first keys whose row, or its absence, was read and is known; usually none."""
        is_comparable = read.result.row_of[: keys.size] >= NO_ROW
        if not self.is_distrusted:
            probe = self._resolver.cache.peek(keys, now)
            is_event = is_among(keys.hashes, self._events.hashes)
            is_comparable &= probe.is_row | probe.is_missing | is_event
        return np.flatnonzero(is_comparable).astype(np.int32)

    def _compare(self, keys: CanonicalKeys, read: Read, now: float) -> None:
        if self.is_distrusted:
            self._compare_copies(keys, read, now)
        elif self._resolver.is_trusted(now):
            self._compare_entries(keys, read, now)
        self._compare_events(keys, read, now)

    def _compare_events(self, keys: CanonicalKeys, read: Read, now: float) -> None:
        """Compare rows of events; after those of the cache, which may explain a difference.

        If a row has changed without an event, its entry differs as well, or the event's row was
        usable; if it was altered, neither is so. A row that is gone is no matter of values.
        """
        at, events = self._events.of(keys.hashes)
        if not at.size:
            return
        rows = _rows_of(read, at)
        is_wrong = events.differ(rows)
        has_changed = ~rows.has_row | self.values.usable(events.rows)
        self._suspects.add(keys.hashes[at[is_wrong & has_changed]], now)
        altered = keys.hashes[at[is_wrong]]
        self._suspect_values.add(altered[~self._suspects.are_among(altered)], now)
        self._count(is_wrong)
        agreeing = np.flatnonzero(~is_wrong & events.has_row)
        self.values.on_agreement(events.take(agreeing).rows)
        self._events.forget(keys.hashes)  # room for later ones

    def _compare_entries(self, keys: CanonicalKeys, read: Read, now: float) -> None:
        cache, names = self._resolver.cache, self._resolver.schema.columns.names
        probe = cache.peek(keys, now)
        at = np.flatnonzero(probe.is_row | probe.is_missing)
        if not at.size:
            return
        cached = KnownRows.of_cache(probe, cache.rows(probe.slots[probe.is_row], names)).take(at)
        self._suspect(keys.hashes[at], self._differ(cached, _rows_of(read, at)), now)

    def _compare_copies(self, keys: CanonicalKeys, read: Read, now: float) -> None:
        at, copies = self._copies.of(keys.hashes)
        is_wrong = self._differ(copies, _rows_of(read, at))
        self._suspect(keys.hashes[at], is_wrong, now)
        self._trust.probation.on_agreement(int((~is_wrong).sum()))
        new = np.delete(np.arange(keys.size), at)
        self._copies.add(keys.hashes[new], read.columns.take(pa.array(new)), _rows_of(read, new))

    def _differ(self, known: KnownRows, read: KnownRows) -> Mask:
        if self._compares_rows:
            return known.differ(read)
        return np.asarray(known.has_row != read.has_row)

    def _suspect(self, hashes: Hashes, is_wrong: Mask, now: float) -> None:
        self._suspects.add(hashes[is_wrong], now)
        self._count(is_wrong)

    def _remember(self, keys: CanonicalKeys, change: RowChanges, now: float) -> None:
        """Keep the last rows of events, for a comparison with reads."""
        start = max(keys.size - _EVENT_ROWS, 0)
        tail = np.arange(start, keys.size, dtype=np.int32)
        last = tail[last_of_each(keys.take(tail))]
        last = last[change.has_row[last]]
        rows = KnownRows.of_numbers(last, change.rows)
        self._events.add(keys.hashes[last], change.keys.take(pa.array(last)), rows)
        if not self.values.is_proved:
            soon = now + self._fence.proved_after_s() + _SOON_S
            self._values_due_at = min(self._values_due_at, soon)

    def _count(self, is_wrong: Mask) -> None:
        wrong = int(is_wrong.sum())
        self.counts[AuditResult.SUSPECT] += wrong
        self.counts[AuditResult.AGREED] += len(is_wrong) - wrong


def _rows_of(read: Read, places: Places) -> KnownRows:
    """The rows of the keys at these places of a read."""
    return KnownRows.of_numbers(read.result.row_of[places], read.result.rows)
