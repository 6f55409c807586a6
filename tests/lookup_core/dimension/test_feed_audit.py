"""Audits: reads against cached rows, what is a contradiction, and what follows from it."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension.cache_audit import CacheAudit, Verdict
from lookup_core.dimension.dimension_events import FetchedRows, Read
from lookup_core.freshness.feed_trust import LEAST_AGREED, PROBATION_S
from lookup_core.freshness.table_snapshot import IdRelation, TableSnapshot
from lookup_core.settings import (
    AuditSettings,
    CacheMode,
    CacheSettings,
    DimensionSettings,
    FeedSettings,
    Match,
)
from lookup_core.statistics import AuditResult, DistrustStatistics, InvalidationOrigin
from lookup_core.table.full_table import FullTable
from tests.lookup_core.dimension.scenario import (
    SCHEMA,
    Names,
    Scenario,
    as_list,
    columns_of,
    max_age,
    row_changes,
)

GRACE_S = 30.0
AFTER = TableSnapshot.parse("900:900:")
BEFORE_700 = TableSnapshot.parse("600:700:")
AUDITED = DimensionSettings(
    "customers",
    cache=CacheSettings(ttl_s=1e6, negative_ttl_s=1e6),
    feed=FeedSettings(audit=AuditSettings(grace_s=GRACE_S)),
    timeout_s=2.0,
)


class AuditScenario(Scenario):
    """A dimension with a feed, at 100 s; reads see all transactions, if not said otherwise."""

    def __init__(self, chosen: DimensionSettings = AUDITED) -> None:
        super().__init__(chosen)
        self.now = 100.0
        self._lookups = count(10)

    @property
    def audit(self) -> CacheAudit:
        """Its audit."""
        assert self.state.audit is not None
        return self.state.audit

    def read(self, names: Names, *keys: int, snapshot: TableSnapshot | None = AFTER) -> None:
        """An audit reads keys, of which some have these names."""
        found = [(at, name) for at, key in enumerate(keys) for name in as_list(names.get(key, []))]
        fetched = FetchedRows(
            np.array([at for at, _ in found], np.int32),
            pa.record_batch([pa.array([name for _, name in found], pa.utf8())], SCHEMA.columns),
            snapshot=snapshot,
        )
        read = Read.of_audit(columns_of(*keys), fetched, sent_at=self.now)
        self.state.on_read(read, self.now)

    def judge(self, after_s: float = GRACE_S) -> Verdict | None:
        """The feed claims to have reported everything until now; this much later."""
        self.now += after_s
        verdict = self.audit.judge(reported_until=self.now, now=self.now)
        if verdict is not None and verdict.empties_cache:
            self.state.invalidate(None, InvalidationOrigin.AUDIT)
        return verdict

    def report(self, names: Mapping[int, str | None], *, by: int = 700) -> None:
        """Events with the rows of these keys."""
        self.apply(row_changes(names, by=by))

    def load(self, names: Mapping[int, str | None]) -> None:
        """Load the whole table."""
        assert isinstance(self.state.local.cache, FullTable)
        load = self.state.begin_load(self.state.local.cache, self.now)
        load.add_changes([row_changes(names)], TableSnapshot.parse("650:650:"), now=self.now)
        assert load.finish(self.now)
        self.state.end_load(load)

    def answer(self, key: int) -> str | None:
        """What the cache says of a key; None for nothing."""
        return self.look_up(next(self._lookups), key, deadline=1e9).get(0)


@pytest.fixture
def audited() -> AuditScenario:
    """Keys 7 and 8 are cached as Ada and Bert, 9 as missing."""
    scenario = AuditScenario()
    scenario.land(scenario.query(1, 7, 8, 9), {7: "Ada", 8: "Bert"}, snapshot=AFTER)
    return scenario


@pytest.mark.parametrize(
    "rows", [{7: "new", 8: "Bert"}, {8: "Bert"}, {7: "Ada", 8: "Bert", 9: "x"}]
)
def test_unreported_change_empties_the_cache(audited: AuditScenario, rows: Names) -> None:
    """If no event explains another row, a lost or a new one within the grace, all rows go."""
    audited.read(rows, 7, 8, 9)
    assert audited.judge(GRACE_S - 1) is None

    assert audited.judge(1) is Verdict.INCOMPLETE
    assert audited.audit.is_distrusted
    assert [audited.answer(key) for key in (7, 8, 9)] == [None] * 3
    assert audited.audit.counts == {
        AuditResult.AGREED: 2,
        AuditResult.SUSPECT: 1,
        AuditResult.CONTRADICTED: 1,
        AuditResult.FAILED: 0,
    }


def test_reported_change_explains_a_difference(audited: AuditScenario) -> None:
    """A row that differs because its event is on its way is no contradiction."""
    audited.read({7: "new", 8: "Bert"}, 7, 8, 9)
    audited.change(7, by=700)

    assert audited.judge() is None
    assert audited.answer(8) == "hit Bert"


@pytest.mark.parametrize(
    ("relation", "wait_s"), [(IdRelation.COMPARABLE, 0.0), (IdRelation.FOREIGN, 59.0)]
)
def test_older_read_is_no_witness(
    audited: AuditScenario, relation: IdRelation, wait_s: float
) -> None:
    """A read that may not have seen a reported change says nothing of its key."""
    audited.state.fence.relate(relation)
    audited.change(7, by=700)
    audited.now += 6.0  # beyond the hold-off
    audited.land(audited.query(2, 7), {7: "new"}, snapshot=AFTER)
    audited.now += wait_s - 6.0 if wait_s else 0.0
    audited.read({7: "Ada", 8: "Bert"}, 7, 8, snapshot=BEFORE_700)

    assert audited.judge() is None
    assert audited.answer(7) == "hit new"


@pytest.mark.parametrize(
    ("relation", "by"), [(IdRelation.COMPARABLE, 0), (IdRelation.FOREIGN, 700)]
)
def test_change_of_any_row_precedes_proofs(
    audited: AuditScenario, relation: IdRelation, by: int
) -> None:
    """For a minute after a change of any row, a standby proves nothing without comparable ids."""
    of_standby = TableSnapshot.parse("600:700:", is_of_standby=True)
    audited.state.fence.relate(relation)
    audited.now += 2.0
    audited.change(by=by)
    audited.now += 6.0  # beyond the hold-off
    audited.land(audited.query(2, 7), {7: "new"}, snapshot=AFTER)
    audited.now += 53.0
    audited.read({7: "Ada"}, 7, snapshot=of_standby)

    assert audited.judge() is None
    audited.read({7: "Ada"}, 7, snapshot=AFTER)  # of the primary
    assert audited.judge() is Verdict.INCOMPLETE


@pytest.mark.parametrize("is_first", [True, False])
def test_late_standby_is_no_witness(audited: AuditScenario, *, is_first: bool) -> None:
    """A standby that lags by more than changes are kept proves nothing, nor does its first read."""
    audited.state.fence.relate(IdRelation.COMPARABLE)
    audited.change(7, by=700)
    audited.change(8, by=650)  # of another partition of the feed
    audited.now += 2.0
    audited.land(audited.query(2, 7, 8), {7: "new", 8: "Bert"}, snapshot=AFTER)
    audited.now += 62.0
    if not is_first:
        audited.read({}, 9)  # the changes are dropped
    audited.read({7: "Ada"}, 7, snapshot=BEFORE_700)

    assert audited.judge() is None


def test_large_rows_end_the_probation(audited: AuditScenario) -> None:
    """A row that is larger than the memory for copies is compared, too."""
    large = "x" * 2**21
    audited.read({}, 7)
    audited.judge()
    audited.trust(is_trusted=False)
    for _ in range(LEAST_AGREED + 1):
        audited.read({8: large, 9: "Carl"}, 8, 9)

    assert audited.judge(PROBATION_S) is Verdict.RESTORED


def test_query_of_a_lookup_is_an_audit(audited: AuditScenario) -> None:
    """A lookup that reads a cached key again is compared like an audit."""
    audited.now += 1.0
    again = audited.query(2, 7, options=max_age(0.5))
    audited.land(again, {7: "new"}, snapshot=AFTER)

    assert audited.judge() is Verdict.INCOMPLETE


def test_trust_returns_when_samples_agree(audited: AuditScenario) -> None:
    """After the probation, and enough copies that agree with later reads, the feed is trusted."""
    audited.read({}, 7)
    audited.judge()
    audited.trust(is_trusted=False)
    assert audited.audit.distrust(audited.now) == DistrustStatistics(
        found_ago_s=0.0, least_s=PROBATION_S, agreed=0, needed=LEAST_AGREED
    )
    assert audited.audit.sample(np.full(3, 0.5)).num_rows == 0
    for _ in range(LEAST_AGREED):
        audited.read({8: "Bert"}, 8)
        assert audited.audit.sample(np.full(3, 0.5))["id"].to_pylist() == [8]
        assert audited.judge(1) is None
    assert audited.judge(PROBATION_S - LEAST_AGREED - 1) is None  # one comparison is missing
    assert audited.audit.distrust(audited.now + 60.0) == DistrustStatistics(
        found_ago_s=PROBATION_S + 59.0, least_s=0.0, agreed=LEAST_AGREED - 1, needed=LEAST_AGREED
    )
    audited.read({8: "Bert"}, 8)

    assert audited.judge(1) is Verdict.RESTORED
    assert not audited.audit.is_distrusted
    assert audited.audit.distrust(audited.now) is None


def test_relapse_doubles_the_probation(audited: AuditScenario) -> None:
    """A copy that changes without event begins the probation again, for twice as long."""
    audited.read({}, 7)
    audited.judge()
    audited.trust(is_trusted=False)
    audited.read({8: "Bert"}, 8)
    audited.read({8: "new"}, 8)
    assert audited.judge() is Verdict.INCOMPLETE
    for _ in range(LEAST_AGREED + 1):
        audited.read({8: "new"}, 8)

    assert audited.judge(2 * PROBATION_S - 1) is None
    assert audited.judge(1) is Verdict.RESTORED


def test_interrupted_feed_explains_differences(audited: AuditScenario) -> None:
    """Differences from before a flush are forgotten with it."""
    audited.read({}, 7)
    audited.invalidate()

    assert audited.judge() is None


@pytest.mark.parametrize(
    ("rows", "verdict"), [({7: "Bert"}, None), ({}, Verdict.INCOMPLETE)], ids=["other", "lost"]
)
def test_rows_without_order_may_differ(rows: Names, verdict: Verdict | None) -> None:
    """If rows of a key have no order, another first row is none; the loss of all rows is found."""
    audited = AuditScenario(replace(AUDITED, match=Match.FIRST))
    audited.land(audited.query(1, 7), {7: "Ada"}, snapshot=AFTER)
    audited.read(rows, 7)

    assert audited.judge() is verdict


# Rows of events

FULL = replace(AUDITED, cache=CacheSettings(mode=CacheMode.FULL))
NAMES = {key: f"name {key:02}" for key in range(40)}


@pytest.fixture
def full() -> AuditScenario:
    """A whole table is loaded."""
    scenario = AuditScenario(FULL)
    scenario.load(dict.fromkeys(NAMES, "old"))
    return scenario


def prove(full: AuditScenario) -> None:
    """Events of many rows, which agree with a read."""
    full.report(NAMES)
    full.read(NAMES, *NAMES)


def test_absent_keys_of_lookups_are_sampled(full: AuditScenario) -> None:
    """A key that a whole table lacks is read again once it was looked up: it may have a row."""
    assert full.answer(90) == "missing"
    keys = full.audit.sample(np.linspace(0, 0.999, 8))["id"].to_pylist()
    assert 90 in keys
    full.read({90: "new"}, 90)

    assert full.judge() is Verdict.INCOMPLETE


def test_rows_of_events_need_proof(full: AuditScenario) -> None:
    """Rows of events are used after enough of them agree with reads; until then they are read."""
    full.report(NAMES)
    assert full.answer(1) is None
    keys = full.audit.sample(np.linspace(0, 0.999, 100))["id"].to_pylist()
    assert set(keys) == set(NAMES)
    full.read(NAMES, *keys)
    full.report({1: "name 41"}, by=701)

    assert full.answer(1) == "hit name 41"


def test_events_without_rows_keep_places(full: AuditScenario) -> None:
    """Rows are used and remembered by their keys, next to changes that bring no row."""
    prove(full)
    full.report({1: None, 2: "name 41", 3: None, 4: "a longer name"}, by=701)
    full.read({2: "name 41", 4: "a longer name"}, 2, 4)

    assert [full.answer(key) for key in (1, 2, 3, 4)] == [None, "hit name 41", None, None]
    assert full.judge() is None


@pytest.mark.parametrize("name", ["a longer name", "name 400"])
def test_longer_texts_need_proof(full: AuditScenario, name: str) -> None:
    """A text that is longer than all that agreed may be truncated."""
    prove(full)
    full.report({1: name}, by=701)

    assert full.answer(1) is None


def test_null_proves_no_column(full: AuditScenario) -> None:
    """NULL agrees under any mask, so it proves nothing."""
    nulls = RowChanges(
        columns_of(*NAMES),
        has_row=np.ones(len(NAMES), np.bool_),
        is_gone=np.zeros(len(NAMES), np.bool_),
        rows=pa.record_batch([pa.nulls(len(NAMES), pa.utf8())], SCHEMA.columns),
        transaction_ids=np.full(len(NAMES), 700, np.uint32),
    )
    full.apply(nulls)
    full.read({key: [None] for key in NAMES}, *NAMES)
    full.report({1: "name 41"}, by=701)

    assert full.answer(1) is None
    assert full.answer(2) == "hit"


@pytest.mark.parametrize("is_proved", [True, False])
def test_masked_rows_are_refused(full: AuditScenario, *, is_proved: bool) -> None:
    """If only the row of an event differs from its read, no value is used any more."""
    mask = "*" * 20  # longer than the texts that agreed
    full.load(NAMES)
    if is_proved:
        prove(full)
        full.report({5: "name 55"}, by=701)
    full.report({1: mask, 2: mask}, by=701)
    full.read(NAMES, 1, 2)

    assert full.judge() is (Verdict.VALUES if is_proved else Verdict.UNUSED_VALUES)
    assert not full.audit.is_distrusted
    assert full.answer(3) == (None if is_proved else "hit name 03")
    full.load(NAMES)
    full.report(dict.fromkeys(NAMES, "*"), by=702)
    assert [full.answer(key) for key in NAMES] == [None] * len(NAMES)


def test_used_rows_of_events_are_audited(full: AuditScenario) -> None:
    """A used row that was altered looks like a lost change: the cache goes, and all is proved."""
    full.load(NAMES)
    prove(full)
    full.report({1: "*****"}, by=701)
    full.read(NAMES, 1)

    assert full.judge() is Verdict.INCOMPLETE
    full.load(NAMES)
    full.report({1: "*****"}, by=702)
    assert full.answer(1) is None


@pytest.mark.parametrize("is_proved", [True, False])
def test_lost_update_is_no_masked_value(full: AuditScenario, *, is_proved: bool) -> None:
    """If an update is lost, its row differs from an entry, or from a proved row of an event."""
    full.state.fence.relate(IdRelation.FOREIGN)
    full.report(NAMES)
    full.now += 6.0
    if not is_proved:
        full.land(full.query(2, 1), {1: "name 01"}, snapshot=None)  # cached, and no proof
    full.now += 61.0
    others = list(NAMES)[2:] if is_proved else []
    full.read(NAMES, *others)
    full.read({1: "name 43"}, 1)

    assert full.judge() is Verdict.INCOMPLETE


def test_keys_with_several_rows_free_places(full: AuditScenario) -> None:
    """A row of an event whose key has several rows is never compared: it makes room."""
    full.report({100 + key: "name 01" for key in range(64)})
    keys = full.audit.sample(np.linspace(0, 0.999, 200))["id"].to_pylist()
    full.read({key: ["name 01", "name 02"] for key in keys}, *keys)
    prove(full)
    full.report({1: "name 41"}, by=701)

    assert full.answer(1) == "hit name 41"


def test_single_keys_are_of_each_kind(full: AuditScenario) -> None:
    """An audit of one key reads a row of an event, an absent key, or a cached row, by chance."""
    full.answer(90)
    full.report({100: "name 41"})
    draws = [[0.9, 0.5], [0.1, 0.5], [0.4, 0.0]]
    samples = [full.audit.sample(np.array(each))["id"].to_pylist() for each in draws]

    assert samples[:2] == [[100], [90]]
    assert samples[2][0] in NAMES


def test_refusal_of_values_ends(full: AuditScenario) -> None:
    """A day after a disagreement rows of events may be proved again."""
    full.report({1: "*****"})
    full.read(NAMES, 1)
    assert full.judge() is Verdict.UNUSED_VALUES
    full.judge(86_400.0)
    prove(full)
    full.report({1: "name 41"}, by=701)

    assert full.answer(1) == "hit name 41"


def test_later_event_explains_event_rows(full: AuditScenario) -> None:
    """A read that saw a later change of the key refutes no event."""
    full.report({1: "name 41"})
    full.read({1: "name 42"}, 1)
    full.report({1: "name 42"}, by=701)

    assert full.judge() is None
