"""Simulation of a followed table: a primary, a standby, a feed, and a sidecar that audits it.

All keys of a step are handled at once, so that a key's random history costs some microseconds.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.changelog.change_decoder import (
    UNKNOWN_TRANSACTION,
    Change,
    RowChanges,
    TableChange,
)
from lookup_core.dimension.cache_audit import CacheAudit, Verdict
from lookup_core.dimension.dimension_events import FetchedRows, QueryOrder, Read
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.freshness.feed_trust import FeedTrust
from lookup_core.freshness.table_snapshot import IdRelation, TableSnapshot
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import (
    AuditSettings,
    CacheMode,
    CacheSettings,
    DimensionSettings,
    FeedSettings,
)
from lookup_core.statistics import InvalidationOrigin
from lookup_core.table.full_table import FullTable
from tests.lookup_core.dimension.scenario import SCHEMA, request

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

GRACE_S = 2.0
TIMEOUT_S = 20.0
FIRST_ID = 2**33 - 40  # the low 32 bits wrap soon
_RESERVED_IDS = 3  # the least ones of 32 bits, as in PostgreSQL
NO_ROW = -1  # instead of a version
ROW_NAMES = pa.array([f"name {version}" for version in range(20_000)])
_MASKED = len(ROW_NAMES) - 1
_PROMPT_S, _LATE_S, _LONG_S = 4.0, 59.0, 200.0  # lags of standbys; changes are kept for 60 s
_LOOKBACK_S = 60.0  # of a feed that starts
_WAITS_S = (0.1, 0.5, 4.0, 10.0)  # at most; some worlds are slower
_PARTITIONS = 2  # of the feed; a key has one
_CACHE_BYTES = {CacheMode.PARTIAL: 40_000, CacheMode.FULL: 2**28}  # of partial: some are evicted


@dataclass(frozen=True, slots=True)
class Commits:
    """Transactions that changed one key each, in the order of the log."""

    ids: Numbers
    keys: Numbers
    versions: Numbers  # of the new rows; NO_ROW: a deletion
    is_new: Mask  # the key had no row
    at: npt.NDArray[np.float64]

    def take(self, places: Numbers | Mask) -> "Commits":
        """Those at these places."""
        return Commits(
            self.ids[places],
            self.keys[places],
            self.versions[places],
            self.is_new[places],
            self.at[places],
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __add__(self, others: "Commits") -> "Commits":
        return Commits(
            np.append(self.ids, others.ids),
            np.append(self.keys, others.keys),
            np.append(self.versions, others.versions),
            np.append(self.is_new, others.is_new),
            np.append(self.at, others.at),
        )


_NONE = np.zeros(0, np.int64)
_NO_COMMITS = Commits(_NONE, _NONE, _NONE, np.zeros(0, np.bool_), np.zeros(0))

Reported = Callable[[Commits, np.random.Generator], Commits]


def everything(commits: Commits, _: np.random.Generator) -> Commits:
    """A complete feed."""
    return commits


def no_deletes(commits: Commits, _: np.random.Generator) -> Commits:
    """`skipped.operations=d`."""
    return commits.take(commits.versions != NO_ROW)


def no_inserts(commits: Commits, _: np.random.Generator) -> Commits:
    """`skipped.operations=c`."""
    return commits.take(~commits.is_new)


def half(commits: Commits, chance: np.random.Generator) -> Commits:
    """A random half of the changes."""
    return commits.take(chance.random(len(commits)) < 0.5)


def masked(commits: Commits, _: np.random.Generator) -> Commits:
    """`column.mask.with.…`."""
    versions = np.where(commits.versions == NO_ROW, NO_ROW, _MASKED)
    return replace(commits, versions=versions)


@dataclass(slots=True)
class _Server:
    """The rows of a server, by key."""

    versions: Numbers

    def apply(self, commits: Commits) -> None:
        for key, version in zip(commits.keys, commits.versions, strict=True):
            self.versions[key] = version


@dataclass(slots=True)
class _Reading:
    """A read under way; it may have its snapshot already."""

    end: Callable[[FetchedRows], object]
    keys: Numbers
    sent_at: float
    longest_lag_s: float
    is_audit: bool
    fetched: FetchedRows | None = None


class World:
    """Random steps of all parts, from a seed."""

    def __init__(
        self,
        seed: int,
        mode: CacheMode,
        relation: IdRelation,
        *,
        reports: Reported = everything,
        keys: int = 12,
        claims_too_much_s: float = 0.0,
    ) -> None:
        """`claims_too_much_s` is beyond the grace: a complete feed claims within it."""
        self.seed, self.chance = seed, np.random.default_rng(seed)
        self.mode, self.relation, self.reports = mode, relation, reports
        self.now = 100.0
        self._longest_skew_s = GRACE_S * 0.99 + claims_too_much_s
        self.is_claim_false = False  # at the last judgement, by more than the grace
        self._has_ids = relation is not IdRelation.FOREIGN and seed % 4 != 0
        self._lags_long = relation is IdRelation.COMPARABLE and self._has_ids and seed % 4 == 1
        self._pace = self.chance.choice((1.0, 8.0))
        self._replay_share = 0.05 if self._lags_long else self.chance.choice((0.1, 0.5))
        first = np.arange(keys)
        self.primary, self.standby = _Server(first.copy()), _Server(first.copy())
        self.log, self.replayed = _NO_COMMITS, 0
        self._open = _NO_COMMITS  # transactions that have changed their row
        self._hidden = _NO_COMMITS  # in the log, and not visible on the primary
        self._pending = np.zeros(0, np.int64)  # places in the log that the feed will report
        self._next_id, self._next_version = FIRST_ID, keys
        self._readings: list[_Reading] = []
        self._lookups = 0
        self._is_live, self._caught_up_at = True, 0  # live once so much of the log is reported
        self._trust = FeedTrust()
        self.state = self._new_state()
        if mode is CacheMode.FULL:
            self._load()
        self._steps = (
            *(self._begin, self._commit, self._commit, self._show, self._replay, self._replay),
            *(self._deliver, self._deliver, self._wait, self._wait, self._wait, self._execute),
            *(self._look_up, self._look_up, self._look_up, self._audit, self._audit, self._audit),
            *(
                self._land,
                self._land,
                self._land,
                self._land,
                self._evict,
                self._resume,
                self._disturb,
            ),
        )
        self._look_up_these(first)
        self._land()

    @property
    def auditor(self) -> CacheAudit:
        """The audit."""
        assert self.state.audit is not None
        return self.state.audit

    def run(self, steps: int) -> Iterator[Verdict]:
        """Take random steps, then wait for all reports; yields what audits find."""
        chosen = self.chance.integers(len(self._steps), size=steps).tolist()
        for step in (*(self._steps[each] for each in chosen), self._settle):
            step()
            verdict = self._judge()
            if verdict is not None:
                yield verdict

    def _new_state(self) -> DimensionState:
        cache = CacheSettings(
            mode=self.mode, max_bytes=_CACHE_BYTES[self.mode], ttl_s=1e9, negative_ttl_s=1e9
        )
        keys = len(self.primary.versions)
        audit = AuditSettings(keys=max(2 * keys // 3, 1), grace_s=GRACE_S)
        settings = DimensionSettings(
            "customers",
            cache=cache,
            feed=FeedSettings(audit=audit),
            timeout_s=TIMEOUT_S,
            max_waiting_keys=2**20,
        )
        state = DimensionState(settings, SCHEMA, feed_trust=self._trust)
        state.fence.relate(self.relation)
        return state

    def _some(self, count: int, share: float | None = None) -> Numbers:
        """Random places below `count`, in ascending order."""
        share = self.chance.choice((0.05, 0.2, 0.7)) if share is None else share
        return np.flatnonzero(self.chance.random(count) < share)

    # The database

    def _begin(self) -> None:
        """Transactions change rows, which they lock."""
        free = np.ones(len(self.primary.versions), np.bool_)
        free[self._open.keys] = free[self._hidden.keys] = False
        keys = np.flatnonzero(free)
        keys = self.chance.permutation(keys[self._some(len(keys), 0.1)])
        count = len(keys)
        versions = self._next_version + np.arange(count)
        self._next_version += count
        is_new = self.primary.versions[keys] == NO_ROW
        versions[~is_new & (self.chance.random(count) < 0.3)] = NO_ROW
        ids = self._next_id + np.arange(count + _RESERVED_IDS)
        ids = ids[ids % 2**32 >= _RESERVED_IDS][:count]
        self._next_id = int(ids.max(initial=self._next_id - 1)) + 1
        self._open += Commits(ids, keys, versions, is_new, np.zeros(count))

    def _commit(self) -> None:
        """Open transactions are committed in a random order; they are not visible yet."""
        chosen = self.chance.permutation(self._some(len(self._open)))
        ended = replace(self._open.take(chosen), at=np.full(len(chosen), self.now))
        self._open = self._open.take(np.delete(np.arange(len(self._open)), chosen))
        self._pending = np.append(self._pending, len(self.log) + np.arange(len(ended)))
        self.log += ended
        self._hidden += ended

    def _show(self) -> None:
        """Committed transactions become visible on the primary."""
        self._show_these(self._some(len(self._hidden)))

    def _show_these(self, chosen: Numbers) -> None:
        self.primary.apply(self._hidden.take(chosen))
        self._hidden = self._hidden.take(np.delete(np.arange(len(self._hidden)), chosen))

    def _replay(self) -> None:
        """The standby replays a part of the log, maybe before the primary shows it."""
        if self.chance.random() < self._replay_share:
            end = self.chance.integers(self.replayed, len(self.log), endpoint=True)
            self._replay_until(int(end))

    def _replay_until(self, end: int) -> None:
        if end > self.replayed:
            self.standby.apply(self.log.take(np.arange(self.replayed, end)))
            self.replayed = end

    def _wait(self) -> None:
        """Time passes; what has a bound ends before it."""
        later = self.now + self.chance.choice(_WAITS_S) * self.chance.random() * self._pace
        for reading in [each for each in self._readings if each.sent_at + TIMEOUT_S < later]:
            self._readings.remove(reading)
            self._end(reading)
        self.now = later
        self._show_these(np.flatnonzero(self._hidden.at < self.now - _PROMPT_S))
        longest_s = _LONG_S if self._lags_long else _LATE_S
        self._replay_until(int((self.log.at < self.now - longest_s).sum()))

    # The feed

    def _deliver(self) -> None:
        """A partition of the feed reports its next changes, or omits them."""
        self._report(
            int(self.chance.integers(_PARTITIONS)), self.chance.choice((0.1, 0.5, 1.0, 1.0))
        )

    def _report(self, partition: int, share: float) -> None:
        waiting = np.flatnonzero(self.log.keys[self._pending] % _PARTITIONS == partition)
        reported = waiting[: math.ceil(len(waiting) * share)]
        commits = self.reports(self.log.take(self._pending[reported]), self.chance)
        self._pending = np.delete(self._pending, reported)
        if len(commits):
            ids = self._reported_ids(commits)
            changes: list[Change] = [_changes(commits.keys, commits.versions, ids)]
            if self.chance.random() < 0.03:
                changes = [TableChange("undecodable", each) for each in ids.tolist()]
            self.state.on_changes(changes, InvalidationOrigin.CHANGELOG, self.now)

    def _settle(self) -> None:
        """The feed reports all, and time passes."""
        for partition in range(_PARTITIONS):
            self._report(partition, 1.0)
        self._resume()
        self.now += 2 * GRACE_S

    def _reported_ids(self, commits: Commits) -> Numbers:
        if self._has_ids:
            return commits.ids % 2**32
        if self.relation is IdRelation.FOREIGN:  # of another system, or none
            return self.chance.integers(0, 2, len(commits)) * 2**31
        return np.full(len(commits), UNKNOWN_TRANSACTION)

    def _resume(self) -> None:
        """The feed is live again once it has caught up."""
        if not self._is_live and (self._pending >= self._caught_up_at).all():
            if self.mode is CacheMode.FULL and not self.state.local.cache.is_whole:
                self._load()
            self._is_live = True
            self.state.local.trust(until=np.inf)

    def _disturb(self) -> None:
        """Rarely: the feed stalls, or starts again."""
        if self.chance.random() < 0.8:
            return
        self._is_live = False
        self.state.local.trust(until=-np.inf)
        self.auditor.forget(None)
        if self.chance.random() < 0.5 and not self._lags_long:
            self._restart()

    def _restart(self) -> None:
        """The feed starts again, with the changes of the last minute; maybe of another runner."""
        if self.chance.random() < 0.2:
            self._readings.clear()
            self.state = self._new_state()
            self.state.local.trust(until=-np.inf)
        self.state.on_changes([TableChange("restart")], InvalidationOrigin.CHANGELOG, self.now)
        self._pending = np.flatnonzero(self.log.at >= self.now - _LOOKBACK_S)
        self._caught_up_at = len(self.log)

    # The sidecar

    def _load(self) -> None:
        """Load the whole table from the primary."""
        assert isinstance(self.state.local.cache, FullTable)
        load = self.state.begin_load(self.state.local.cache, self.now)
        keys = np.flatnonzero(self.primary.versions != NO_ROW)
        change = _changes(keys, self.primary.versions[keys], np.zeros(len(keys), np.int64))
        load.add_changes([change], self._snapshot(is_of_standby=False), now=self.now)
        load.finish(self.now)
        self.state.end_load(load)

    def _look_up(self) -> None:
        """Some keys are looked up; their query is under way."""
        self._look_up_these(self._some(len(self.primary.versions)))

    def _look_up_these(self, keys: Numbers) -> None:
        self._lookups += 1
        self.state.expire(self.now)
        columns = _columns(keys)
        lookup = replace(
            request(self._lookups, deadline=self.now + 1e3), keys=TypedKeys(columns, _PLACES, {})
        )
        self.state.submit(lookup, self.now)
        while (order := self.state.next_order(self.now)) is not None:
            self._readings.append(self._query(order))

    def _query(self, order: QueryOrder) -> _Reading:
        state = self.state

        def end(fetched: FetchedRows) -> None:
            state.on_rows(order.id, fetched, now=self.now)

        longest_lag_s = _LATE_S if self._has_ids else _PROMPT_S
        keys = order.keys.column(0).to_numpy()
        return _Reading(end, keys, self.now, longest_lag_s, is_audit=False)

    def _audit(self) -> None:
        """An audit's read is under way."""
        columns = self.auditor.sample(self.chance.random(self.auditor.draw_count))
        state, sent_at = self.state, self.now

        def end(fetched: FetchedRows) -> None:
            state.on_read(Read.of_audit(columns, fetched, sent_at=sent_at), self.now)

        if columns.num_rows:
            keys = columns.column(0).to_numpy()
            self._readings.append(_Reading(end, keys, sent_at, _LONG_S, is_audit=True))

    def _execute(self) -> None:
        """Some reads see their snapshots, on either server."""
        for place in self._some(len(self._readings)).tolist():
            reading = self._readings[place]
            reading.fetched = reading.fetched or self._fetched(reading)

    def _land(self) -> None:
        """A read ends."""
        if self._readings:
            self._end(self._readings.pop(self.chance.integers(len(self._readings))))

    def _end(self, reading: _Reading) -> None:
        reading.end(reading.fetched or self._fetched(reading))

    def _evict(self) -> None:
        """Memory is short for a moment."""
        if self.mode is CacheMode.PARTIAL and self.chance.random() < 0.1:
            self.state.limit_cache(0.3)
            self.state.limit_cache(1.0)

    def _fetched(self, reading: _Reading) -> FetchedRows:
        """What a read sees now; an audit may get only a part."""
        unreplayed = self.log.at[self.replayed :]
        lag_s = self.now - unreplayed[0] if len(unreplayed) else 0.0
        is_of_standby = lag_s <= reading.longest_lag_s and self.chance.random() < 0.5
        server = self.standby if is_of_standby else self.primary
        versions = server.versions[reading.keys]
        deferred = np.zeros(0, np.int32)
        if reading.is_audit and self.chance.random() < 0.2:
            deferred = self._some(len(versions)).astype(np.int32)
            versions[deferred] = NO_ROW
        found = np.flatnonzero(versions != NO_ROW)
        return FetchedRows(
            found.astype(np.int32),
            _rows(versions[found]),
            snapshot=self._snapshot(is_of_standby=is_of_standby),
            deferred=deferred,
        )

    def _snapshot(self, *, is_of_standby: bool) -> TableSnapshot | None:
        """The snapshot of a read on a server, now."""
        if self.relation is IdRelation.FOREIGN and self.chance.random() < 0.5:
            return None
        if is_of_standby:
            unseen = np.append(self._open.ids, self.log.ids[self.replayed :])
            end = int(self.log.ids[: self.replayed].max(initial=FIRST_ID - 1)) + 1
            start = int(unseen.min(initial=end))
            return TableSnapshot(start, end, np.zeros(0, np.uint32), is_of_standby=True)
        running = np.append(self._open.ids, self._hidden.ids)
        ended = np.setdiff1d(self.log.ids, self._hidden.ids)
        end = int(ended.max(initial=FIRST_ID - 1)) + 1
        listed = (running[running < end] % 2**32).astype(np.uint32)
        return TableSnapshot(int(running.min(initial=end)), end, listed)

    def _judge(self) -> Verdict | None:
        """What the feed's claim proves: it is true for a complete feed, but for the grace."""
        if not self._is_live:
            self.auditor.forget(None)
            return None
        skew_s = self.chance.random() * self._longest_skew_s
        until = float(self.log.at[self._pending].min(initial=np.inf)) + skew_s
        self.is_claim_false = until < np.inf and skew_s >= GRACE_S
        verdict = self.auditor.judge(reported_until=min(until, self.now), now=self.now)
        if verdict is not None and verdict.empties_cache:
            self.state.invalidate(None, InvalidationOrigin.AUDIT)
            self.state.local.trust(until=-np.inf if self.auditor.is_distrusted else np.inf)
            if self.mode is CacheMode.FULL:
                self._load()
        return verdict


_PLACES = np.zeros(0, np.int32)


def _columns(keys: Numbers) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64())], SCHEMA.key)


def _rows(versions: Numbers) -> pa.RecordBatch:
    places = pa.array(versions, pa.int64(), mask=versions == NO_ROW)
    return pa.record_batch([ROW_NAMES.take(places)], SCHEMA.columns)


def _changes(keys: Numbers, versions: Numbers, ids: Numbers) -> RowChanges:
    return RowChanges(
        _columns(keys),
        has_row=versions != NO_ROW,
        is_gone=versions == NO_ROW,
        rows=_rows(versions),
        transaction_ids=ids.astype(np.uint32),
    )
