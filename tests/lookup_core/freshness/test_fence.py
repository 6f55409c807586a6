"""The fence: a read is cached only if it saw all changes that were reported before its end."""

from collections.abc import Sequence

import numpy as np
import pytest

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.table_snapshot import IdRelation, TableSnapshot

WRAP = 2**32  # transaction ids have 32 bits, and start again


class Fence(RecentChanges):
    """A fence in plain values: changes are remembered for 60 s, and hold off reads for 5 s.

    Its ids may be compared.
    """

    def __init__(self, *, capacity: int = 2**18) -> None:
        super().__init__(capacity=capacity)
        self.relate(IdRelation.COMPARABLE)

    def report(self, *keys: int, by: int | Sequence[int], at: float = 0.0) -> None:
        """Keys were changed by one transaction, or by one each."""
        ids = np.full(len(keys), by, np.uint32) if isinstance(by, int) else np.array(by, np.uint32)
        self.note(np.array(keys, np.uint64), ids, at)
        self.check_invariants()

    def lets_in(
        self,
        *keys: int,
        snapshot: TableSnapshot | str | None,
        sent_at: float = 1.0,
        now: float | None = None,
    ) -> list[bool]:
        """A read of keys (by default of key 9) lands, at once unless `now` is given."""
        saw = TableSnapshot.parse(snapshot) if isinstance(snapshot, str) else snapshot
        hashes = np.array(keys or [9], np.uint64)
        landed_at = sent_at if now is None else now
        admitted = self.admits(hashes, saw, sent_at=sent_at, now=landed_at)
        self.check_invariants()
        return admitted.tolist()


@pytest.fixture
def fence() -> Fence:
    """No change is reported yet."""
    return Fence()


@pytest.mark.parametrize(
    ("keys", "by", "snapshot", "admitted"),
    [
        ([], [], "100:100:", [True, True]),
        ([], [], None, [True, True]),
        ([1], [103], "103:105:103", [False, True]),
        ([1], [103], "104:105:", [True, True]),
        ([1, 1], [101, 103], "101:105:101", [False, True]),
        ([1, 1], [101, 103], "102:105:103", [False, True]),
        ([1, 1], [101, 103], "104:105:", [True, True]),
        ([1, 2], [50, 103], "50:105:50", [False, True]),
        ([1, 2], [WRAP - 1, 3], f"{WRAP}:{WRAP + 2}:", [True, False]),
    ],
    ids=[
        *("no change", "no change, no snapshot", "invisible", "visible", "older is invisible"),
        *("newer is invisible", "both visible", "long transaction", "wrapped"),
    ],
)
def test_read_must_see_its_changes(
    fence: Fence, keys: list[int], by: list[int], snapshot: str | None, admitted: list[bool]
) -> None:
    """A read of a key is let in if its snapshot shows each reported change of that key."""
    fence.report(*keys, by=by)

    assert fence.lets_in(1, 2, snapshot=snapshot) == admitted


@pytest.mark.parametrize("lasts_s", [0.0, 20.0, 30.0])
@pytest.mark.parametrize("relation", [IdRelation.FOREIGN, IdRelation.UNKNOWN])
def test_slow_read_is_no_proof(fence: Fence, relation: IdRelation, lasts_s: float) -> None:
    """Without comparable ids, a read sent within a minute of a change proves nothing of its key."""
    fence.relate(relation)
    fence.report(1, by=UNKNOWN_TRANSACTION)
    fence.lets_in(snapshot="104:105:", sent_at=5.0)

    for sent_at, is_proof in ((59.9, False), (60.0, True)):
        hashes, now = np.array([1, 2], np.uint64), sent_at + lasts_s
        found = fence.proves(hashes, None, sent_at=sent_at, now=now)
        assert found.tolist() == [is_proof, True]


@pytest.mark.parametrize(("sent_at", "is_let_in"), [(4.9, False), (5.0, True)])
def test_unproved_changes_hold_off(fence: Fence, sent_at: float, *, is_let_in: bool) -> None:
    """Without an id, or without a snapshot, a read is let in if it is sent 5 s after the change."""
    fence.report(1, 2, by=[UNKNOWN_TRANSACTION, 103])

    assert fence.lets_in(1, 2, snapshot="200:200:", sent_at=sent_at) == [is_let_in, True]
    assert fence.lets_in(1, 2, snapshot=None, sent_at=sent_at) == [is_let_in, is_let_in]
    assert fence.lets_in(1, snapshot="200:200:", sent_at=4.9, now=9.0) == [False]


@pytest.mark.parametrize(
    ("ids", "snapshot", "is_let_in"),
    [
        ([103], "103:105:103", False),
        ([103], "104:105:104", True),
        ([100, 103], "90:110:90", True),
        ([100, 103], "90:110:100", False),
        ([100, 103], "90:102:90", False),
        (range(100, 164), "90:200:90", True),
        (range(100, 170), "90:200:90", True),
        *[(range(100, 170), f"{each}:200:{each}", False) for each in (100, 103, 105, 106)],
        (range(100, 170), "90:103:90", False),
    ],
)
def test_read_must_see_table_changes(
    fence: Fence, ids: Sequence[int], snapshot: str, *, is_let_in: bool
) -> None:
    """Each of the last 64 transactions must be visible; between older ones, all must have ended."""
    for transaction_id in ids:
        fence.note_table(transaction_id, 0.0)

    assert fence.lets_in(snapshot=snapshot) == [is_let_in]


@pytest.mark.parametrize(
    ("ids", "snapshot", "is_let_in"),
    [
        ([], "7:9:7", True),
        ([100, 103, 101, 102], "103:110:103", False),
        ([100, 103, 101, 102], "104:110:104", True),
        ([UNKNOWN_TRANSACTION, 103, 101], "103:110:103", False),
        ([100, 103, 101, 102], "90:110:90,104", True),
        ([WRAP - 1, 3, WRAP - 2], f"{WRAP + 3}:{WRAP + 9}:{WRAP + 3}", False),
        ([WRAP - 1, 3, WRAP - 2], f"{WRAP + 4}:{WRAP + 9}:", True),
    ],
)
@pytest.mark.parametrize("piece", [1, 9], ids=["one by one", "together"])
def test_overflow_counts_for_the_table(
    ids: list[int], snapshot: str, piece: int, *, is_let_in: bool
) -> None:
    """Of changes that are not remembered the first, the latest, and all between must have ended."""
    fence = Fence(capacity=0)
    for start in range(0, len(ids), piece):
        part = ids[start : start + piece]
        fence.report(*part, by=part)

    assert len(fence) == 0
    assert fence.lets_in(snapshot=snapshot, sent_at=5.0) == [is_let_in]


@pytest.mark.parametrize(("sent_at", "is_let_in"), [(7.9, False), (8.0, True)])
@pytest.mark.parametrize("is_overflow", [True, False])
def test_unproved_table_changes_hold_off(
    sent_at: float, *, is_overflow: bool, is_let_in: bool
) -> None:
    """Without an id, or without a snapshot, reads hold off for 5 s after the latest change."""
    unknown, known = Fence(capacity=0), Fence(capacity=0)
    for at in (3.0, 1.0):
        for fence, by in ((unknown, UNKNOWN_TRANSACTION), (known, 7)):
            fence.report(1, by=by, at=at) if is_overflow else fence.note_table(by, at)

    assert unknown.lets_in(snapshot="100:100:", sent_at=sent_at) == [is_let_in]
    assert known.lets_in(snapshot=None, sent_at=sent_at) == [is_let_in]
    assert [unknown.table.settled_from(now) for now in (2.0, 9.0)] == [8.0, 9.0]
    assert known.table.settled_from(2.0) == 2.0


@pytest.mark.parametrize("is_overflow", [True, False])
def test_table_change_is_forgotten(*, is_overflow: bool) -> None:
    """It is dropped half a day after reads saw it, before its id wraps around."""
    fence = Fence(capacity=0)
    fence.report(1, by=100) if is_overflow else fence.note_table(100, 0.0)
    later = f"{100 - 2**31 + 1 + WRAP}:{2 * WRAP}:"

    assert fence.lets_in(snapshot="101:101:", now=10.0) == [True]
    assert fence.lets_in(snapshot="100:101:100", now=69.0) == [False]
    assert fence.lets_in(snapshot="101:101:", now=70.0) == [True]
    assert fence.lets_in(snapshot="100:101:100", now=43_269.0) == [False]
    assert fence.lets_in(snapshot=later, now=43_269.9) == [False]
    assert fence.lets_in(snapshot=later, now=43_270.0) == [True]


@pytest.mark.parametrize("is_of_table", [True, False])
@pytest.mark.parametrize(("end", "is_let_in"), [(100, False), (102, False), (103, True)])
def test_long_transactions_make_no_standby_late(
    fence: Fence, end: int, *, is_let_in: bool, is_of_table: bool
) -> None:
    """While an older one runs, a standby has later changes if a later transaction ended there."""
    fence.note_table(100, 0.0) if is_of_table else fence.report(1, by=100)
    for at in (0.5, 91.0):
        snapshot = f"{90 + WRAP}:{102 + WRAP}:{90 + WRAP},{101 + WRAP}"
        assert fence.lets_in(2, snapshot=snapshot, sent_at=at) == [True]
    of_standby = TableSnapshot(90 + WRAP, end + WRAP, np.zeros(0, np.uint32), is_of_standby=True)

    assert fence.lets_in(1, 2, snapshot=of_standby, sent_at=93.0) == [is_let_in] * 2


@pytest.mark.parametrize(
    ("start", "end", "is_of_standby", "is_let_in"),
    [
        *[(90, 100, True, False), (90, 101, True, False), (90, 102, True, True)],
        *[(101, 101, True, True), (90, 101, False, True)],
    ],
)
@pytest.mark.parametrize("sent_at", [1.0, 100.0])
def test_long_transactions_hide_no_gap(
    fence: Fence, start: int, end: int, *, is_of_standby: bool, is_let_in: bool, sent_at: float
) -> None:
    """A standby is past a gap once a later transaction has ended there, whatever runs."""
    fence.note_table(WRAP - 1, 0.0, is_gap=True)
    shift = WRAP - 101
    snapshot = TableSnapshot(start + shift, end + shift, np.zeros(0, np.uint32), is_of_standby)

    assert fence.lets_in(snapshot=snapshot, sent_at=sent_at) == [is_let_in]
    unseen = fence.unseen(snapshot, sent_at=sent_at, now=sent_at)
    assert (unseen is not None) is is_let_in


@pytest.mark.parametrize("is_of_table", [True, False])
@pytest.mark.parametrize("lag_s", [1.0, 59.0, 61.0, 89.0, 91.0, 600.0, 40_000.0])
def test_no_lag_lets_former_rows_in(fence: Fence, lag_s: float, *, is_of_table: bool) -> None:
    """A standby that lags behind a change which another server showed is refused, however long."""
    lagging = TableSnapshot(100, 100, np.zeros(0, np.uint32), is_of_standby=True)
    fence.note_table(100, 0.0) if is_of_table else fence.report(1, by=100)
    assert fence.lets_in(1, snapshot="101:101:", sent_at=0.5) == [True]
    assert fence.lets_in(2, snapshot="101:101:", sent_at=0.5 + lag_s) == [True]

    assert fence.lets_in(1, snapshot=lagging, sent_at=1.5 + lag_s) == [False]
    unseen = fence.unseen(lagging, sent_at=1.5 + lag_s, now=1.5 + lag_s)
    assert unseen is None or unseen.tolist() == [1]


@pytest.mark.parametrize(
    ("capacity", "reports"), [(4, [[1, 2], [3, 4, 5]]), (2, [[1, 2, 3]])], ids=["room", "surplus"]
)
def test_oldest_changes_leave_first(capacity: int, reports: list[list[int]]) -> None:
    """Beyond the capacity, the oldest changes, also of one report, count for the whole table."""
    fence = Fence(capacity=capacity)
    for keys in reports:
        fence.report(*keys, by=[100 + key for key in keys])

    assert len(fence) == capacity
    assert fence.lets_in(snapshot="101:109:101") == [False]
    assert fence.lets_in(9, 1, 2, snapshot="102:109:102") == [True, True, False]


def test_memory_grows_to_its_bound() -> None:
    """Memory doubles up to the capacity; then an eighth of the changes is folded at once."""
    fence = Fence(capacity=5000)
    few = fence.bytes
    counts = []
    for count in (1500, 3500, 1, 9000):
        fence.report(*range(count), by=101)
        counts.append((len(fence), fence.bytes * 1024 // few))

    assert counts == [(1500, 2048), (5000, 5000), (4376, 5000), (5000, 5000)]


@pytest.mark.parametrize("is_of_table", [True, False])
@pytest.mark.parametrize(
    ("relation", "snapshot", "let_in"),
    [
        (IdRelation.COMPARABLE, "103:105:103", [False, False, False, False]),
        (IdRelation.COMPARABLE, "104:105:", [True, True, True, True]),
        (IdRelation.UNKNOWN, "103:105:103", [False, False, False, True]),
        (IdRelation.UNKNOWN, "104:105:", [False, True, True, True]),
        (IdRelation.FOREIGN, "103:105:103", [False, True, True, True]),
        (IdRelation.FOREIGN, "104:105:", [False, True, True, True]),
    ],
)
def test_only_known_ids_are_proof(
    fence: Fence,
    relation: IdRelation,
    snapshot: str,
    let_in: Sequence[bool],
    *,
    is_of_table: bool,
) -> None:
    """Ids of one system decide alone; else the hold-off does, and unknown ids for 60 s, too."""
    fence.note_table(103, 0.0) if is_of_table else fence.report(9, by=103)
    fence.relate(relation)

    admitted = [fence.lets_in(snapshot=snapshot, sent_at=at)[0] for at in (4.9, 5.0, 59.9, 60.0)]

    assert admitted == let_in


@pytest.mark.parametrize("capacity", [9, 0], ids=["keys", "table"])
def test_other_history_makes_ids_void(capacity: int) -> None:
    """After a switch of servers, former changes hold off reads for 5 s, whatever their ids."""
    fence = Fence(capacity=capacity)
    fence.report(9, by=900)
    assert fence.lets_in(snapshot="901:901:", sent_at=1.0) == [True]

    fence.forget_ids(10.0)

    admitted = [fence.lets_in(snapshot=text, sent_at=14.9)[0] for text in ("800:800:", "901:901:")]
    assert admitted == [False, False]
    assert fence.table.settled_from(10.0) == (15.0 if capacity == 0 else 10.0)
    assert fence.lets_in(snapshot="800:800:", sent_at=15.0) == [True]
