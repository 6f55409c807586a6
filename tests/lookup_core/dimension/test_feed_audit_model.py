"""No false alarm, and a bound for what a feed omits: audits against a table with transactions.

Seeded schedules of commits, of replay on a standby, of reports within the feed's claim, and of
reads, evictions and audits. Single rules have scenarios in `test_feed_audit`.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, RowChanges
from lookup_core.dimension.cache_audit import CacheAudit, Read, Verdict
from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.flight_table import BatchId
from lookup_core.freshness.table_snapshot import IdRelation, TableSnapshot
from lookup_core.settings import (
    AuditSettings,
    CacheMode,
    CacheSettings,
    DimensionSettings,
    FeedSettings,
)
from lookup_core.statistics import InvalidationOrigin
from tests.lookup_core.dimension.scenario import SCHEMA, columns_of, request

GRACE_S, LAG_S, AUDIT_KEYS = 2.0, 4.0, 8
FIRST_ID = 2**33 - 4  # the low 32 bits wrap soon
CACHE_BYTES = {CacheMode.PARTIAL: 40_000, CacheMode.FULL: 2**28}  # of partial: some are evicted


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction that changed one key; without name its row is deleted."""

    id: int
    key: int
    name: str | None
    at: float
    is_new: bool  # the key had no row


Reported = Callable[[Commit, random.Random], Commit | None]


def everything(commit: Commit, _: random.Random) -> Commit | None:
    """A complete feed."""
    return commit


def no_deletes(commit: Commit, _: random.Random) -> Commit | None:
    """`skipped.operations=d`."""
    return None if commit.name is None else commit


def no_inserts(commit: Commit, _: random.Random) -> Commit | None:
    """`skipped.operations=c`."""
    return None if commit.is_new else commit


def half(commit: Commit, chance: random.Random) -> Commit | None:
    """Another half of the changes at each run."""
    return commit if chance.random() < 0.5 else None


def masked(commit: Commit, _: random.Random) -> Commit | None:
    """`column.mask.with.5.chars`."""
    return commit if commit.name is None else replace(commit, name="*****")


@dataclass
class World:
    """A primary, a standby that lags at most LAG_S, a feed, and a sidecar."""

    seed: int
    mode: CacheMode
    relation: IdRelation
    reports: Reported = everything
    keys: int = 12
    now: float = 100.0
    commits: list[Commit] = field(default_factory=list)
    replayed: int = 0  # commits on the standby
    delivered: int = 0  # commits that the feed has reported, or omitted
    lookups: int = 1
    under_way: list[tuple[Callable[[FetchedRows], None], pa.RecordBatch, FetchedRows | None]] = (
        field(default_factory=list)
    )

    def __post_init__(self) -> None:
        """Every key has a row."""
        self.chance = random.Random(self.seed)  # noqa: S311 -- a schedule, no secret
        cache = CacheSettings(
            mode=self.mode, max_bytes=CACHE_BYTES[self.mode], ttl_s=1e9, negative_ttl_s=1e9
        )
        audit = AuditSettings(keys=AUDIT_KEYS, grace_s=GRACE_S)
        feed = FeedSettings(audit=audit)
        self.state = DimensionState(
            DimensionSettings("customers", cache=cache, feed=feed, timeout_s=2.0), SCHEMA
        )
        self.state.fence.relate(self.relation)
        self.steps = (
            *(self.commit, self.replay, self.deliver, self.deliver, self.wait, self.look_up),
            *(self.look_up, self.execute, self.land, self.land, self.audit, self.evict),
        )
        if self.mode is CacheMode.FULL:
            self.load()

    @property
    def auditor(self) -> CacheAudit:
        """The audit."""
        assert self.state.audit is not None
        return self.state.audit

    def name_of(self, key: int, seen: int) -> str | None:
        """The name of a key's row after this many commits."""
        for commit in reversed(self.commits[:seen]):
            if commit.key == key:
                return commit.name
        return f"first {key:02}"

    def load(self) -> None:
        """Load the whole table from the primary, unless it is loaded."""
        load = self.state.begin_load(self.now)
        names = [self.name_of(key, len(self.commits)) for key in range(self.keys)]
        there = [(key, name) for key, name in enumerate(names) if name is not None]
        change = _changes([(key, name, 0) for key, name in there])
        load.take([change], self.snapshot(len(self.commits), is_of_standby=False), now=self.now)
        load.finish(self.now)
        self.state.end_load()

    def commit(self) -> None:
        """A transaction changes a key, or deletes its row."""
        key, number = self.chance.randrange(self.keys), len(self.commits)
        name = None if self.chance.random() < 0.3 else f"name {number:06}"
        is_new = self.name_of(key, number) is None
        self.commits.append(Commit(FIRST_ID + number, key, name, self.now, is_new=is_new))

    def replay(self) -> None:
        """The standby replays some commits."""
        most = min(self.replayed + 2, len(self.commits))
        self.replayed = self.chance.randint(self.replayed, most)

    def deliver(self) -> None:
        """The feed reports the next commit, or omits it."""
        if self.delivered == len(self.commits):
            return
        commit = self.reports(self.commits[self.delivered], self.chance)
        self.delivered += 1
        if commit is not None:
            is_known = self.relation is IdRelation.COMPARABLE
            id_ = commit.id % 2**32 if is_known else UNKNOWN_TRANSACTION
            change = _changes([(commit.key, commit.name, id_)])
            self.state.on_changes([change], InvalidationOrigin.CHANGELOG, self.now)

    def wait(self) -> None:
        """Time passes; the standby lags no longer than LAG_S, which is below the hold-off."""
        self.now += self.chance.expovariate(2.0)
        overdue = sum(commit.at < self.now - LAG_S for commit in self.commits)
        self.replayed = max(self.replayed, overdue)

    def look_up(self) -> None:
        """Some keys are looked up; their query is under way."""
        self.lookups += 1
        keys = self.chance.sample(range(self.keys), self.chance.randint(1, 4))
        self.state.expire(self.now)
        self.state.submit(request(self.lookups, *keys, deadline=self.now + 1e3), self.now)
        while (order := self.state.next_order(self.now)) is not None:
            id_ = order.id

            def end(fetched: FetchedRows, id_: BatchId = id_) -> None:
                self.state.on_rows(id_, fetched, now=self.now)

            self.under_way.append((end, order.keys, None))

    def audit(self) -> None:
        """An audit's read is under way."""
        draws = np.array([self.chance.random() for _ in range(AUDIT_KEYS)])
        keys, sent_at = self.auditor.sample(draws), self.now
        if not keys.num_rows:
            return

        def end(fetched: FetchedRows) -> None:
            self.state.on_read(Read.of_audit(keys, fetched, sent_at=sent_at), self.now)

        self.under_way.append((end, keys, None))

    def execute(self) -> None:
        """Some reads see their snapshots, on either server."""
        self.under_way = [
            (end, keys, fetched or self.fetched(keys))
            if self.chance.random() < 0.5
            else (end, keys, fetched)
            for end, keys, fetched in self.under_way
        ]

    def land(self) -> None:
        """A read ends; one whose time is over would have failed."""
        if self.under_way:
            at = self.chance.randrange(len(self.under_way))
            end, keys, fetched = self.under_way.pop(at)
            end(fetched or self.fetched(keys))

    def evict(self) -> None:
        """Memory is short for a moment."""
        if self.chance.random() < 0.1 and self.mode is CacheMode.PARTIAL:
            self.state.limit_cache(0.3)
            self.state.limit_cache(1.0)

    def fetched(self, keys: pa.RecordBatch) -> FetchedRows:
        """What a read of these keys sees now."""
        is_of_standby = self.chance.random() < 0.5
        seen = self.replayed if is_of_standby else len(self.commits)
        names = [self.name_of(key, seen) for key in keys.column(0).to_pylist()]
        found = [at for at, name in enumerate(names) if name is not None]
        return FetchedRows(
            np.array(found, np.int32),
            pa.record_batch([pa.array([names[at] for at in found], pa.utf8())], SCHEMA.columns),
            snapshot=self.snapshot(seen, is_of_standby=is_of_standby),
        )

    def snapshot(self, seen: int, *, is_of_standby: bool) -> TableSnapshot | None:
        """The snapshot of a read that sees this many commits."""
        if self.relation is IdRelation.FOREIGN:
            return None
        end = FIRST_ID + seen
        return TableSnapshot(end, end, np.zeros(0, np.uint32), is_of_standby)

    def judge(self) -> Verdict | None:
        """What the feed's claim proves: it is true for a complete feed."""
        until = self.now
        if self.delivered < len(self.commits):
            until = self.commits[self.delivered].at
        verdict = self.auditor.judge(reported_until=until, now=self.now)
        if verdict is not None and verdict.empties_cache:
            self.state.invalidate(None, InvalidationOrigin.AUDIT)
            if self.mode is CacheMode.FULL:
                self.load()
        return verdict

    def run(self, steps: int) -> Iterator[Verdict]:
        """Take random steps; yields what audits find."""
        for _ in range(steps):
            self.chance.choice(self.steps)()
            verdict = self.judge()
            if verdict is not None:
                yield verdict


def _changes(changes: list[tuple[int, str | None, int]]) -> RowChanges:
    names = [name for _, name, _ in changes]
    return RowChanges(
        columns_of(*(key for key, _, _ in changes)),
        has_row=np.array([name is not None for _, name, _ in changes], np.bool_),
        is_gone=np.array([name is None for _, name, _ in changes], np.bool_),
        rows=pa.record_batch([pa.array(names, pa.utf8())], SCHEMA.columns),
        transaction_ids=np.array([id_ for _, _, id_ in changes], np.uint32),
    )


RELATIONS = [IdRelation.COMPARABLE, IdRelation.FOREIGN]
each_mode = pytest.mark.parametrize("mode", [CacheMode.PARTIAL, CacheMode.FULL])


@each_mode
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "schedules",
    [
        2,
        pytest.param(25, marks=pytest.mark.full),
        pytest.param(250, marks=pytest.mark.nightly),
    ],
)
def test_complete_feed_raises_no_alarm(
    mode: CacheMode, relation: IdRelation, schedules: int
) -> None:
    """Whatever the order of commits, replay, reports and reads, a complete feed is trusted."""
    found = [
        verdict for seed in range(schedules) for verdict in World(seed, mode, relation).run(1_000)
    ]

    assert found == []


@each_mode
@pytest.mark.parametrize("reports", [no_deletes, no_inserts, half])
def test_incomplete_feed_is_found(mode: CacheMode, reports: Reported) -> None:
    """A feed that omits changes is found, whichever they are."""
    worlds = [World(seed, mode, IdRelation.COMPARABLE, reports) for seed in range(10)]

    assert all(Verdict.INCOMPLETE in world.run(20_000) for world in worlds)


def test_masked_values_are_found() -> None:
    """Events whose values are masked are found, before one is used."""
    worlds = [World(seed, CacheMode.FULL, IdRelation.COMPARABLE, masked) for seed in range(10)]

    assert {next(world.run(20_000)) for world in worlds} == {Verdict.UNUSED_VALUES}


@pytest.mark.parametrize(("share", "keys"), [(0.5, 8), (0.1, 50), (0.02, 50)])
def test_audits_are_enough_for_their_bound(share: float, keys: int) -> None:
    """Of a share p of wrong rows, ln(1000)/(p·n) audits of n keys miss all in one case of 1,000."""
    chance = np.random.default_rng(7)
    audits = math.ceil(math.log(1000) / (share * keys))
    world = World(7, CacheMode.PARTIAL, IdRelation.COMPARABLE, keys=500)
    names = pa.record_batch([pa.array(["old"] * 500)], SCHEMA.columns)
    world.state.submit(request(1, *range(500), deadline=1e9), world.now)
    order = world.state.next_order(world.now)
    assert order is not None
    world.state.on_rows(order.id, FetchedRows(np.arange(500, dtype=np.int32), names), now=world.now)
    wrong = set(range(int(share * 500)))

    missed = 0
    for _ in range(2_000):
        samples = (world.auditor.sample(chance.random(keys)) for _ in range(audits))
        missed += not any(wrong & set(each["id"].to_pylist()) for each in samples)

    assert missed <= 10  # 2 are expected
