"""Which reads are kept after a change was told: those that saw it."""

from collections.abc import Sequence

import numpy as np
import pytest

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.table_snapshot import TableSnapshot


class Changes(RecentChanges):
    """One that is asked in plain values: age 60 s, hold-off 5 s."""

    def told(self, *keys: int, by: int | Sequence[int], at: float = 0.0) -> None:
        """Keys were changed by a transaction, or by one each."""
        ids = np.full(len(keys), by, np.uint32) if isinstance(by, int) else np.array(by, np.uint32)
        self.note(np.array(keys, np.uint64), ids, at)
        self.check_invariants()

    def lets_in(
        self, *keys: int, snapshot: str | None, sent_at: float = 1.0, now: float | None = None
    ) -> list[bool]:
        """A read lands, at once unless it says when."""
        saw = None if snapshot is None else TableSnapshot.parse(snapshot)
        landed_at = sent_at if now is None else now
        hashes = np.array(keys, np.uint64)
        admitted = self.admits(hashes, saw, sent_at=sent_at, now=landed_at)
        self.check_invariants()
        return admitted.tolist()


@pytest.fixture
def changes() -> Changes:
    """Nothing has changed yet."""
    return Changes()


def test_nothing_changed_lets_all_in(changes: Changes) -> None:
    """Without changes every read is kept, also of a store that cannot tell what it saw."""
    assert changes.lets_in(1, 2, snapshot="100:100:") == [True, True]
    assert changes.lets_in(1, 2, snapshot=None) == [True, True]


def test_early_event_keeps_the_old_row_out(changes: Changes) -> None:
    """Told before it is visible, a change fends reads off until one has seen it; others go in."""
    changes.told(1, by=103)

    assert changes.lets_in(1, 2, snapshot="103:105:103") == [False, True]
    assert changes.lets_in(1, 2, snapshot="104:105:") == [True, True]


def test_older_transaction_may_commit_later(changes: Changes) -> None:
    """Of two changes of a key the one with the smaller id may be the one that is not seen yet."""
    changes.told(1, 1, by=[101, 103])

    assert changes.lets_in(1, snapshot="101:105:101") == [False]
    assert changes.lets_in(1, snapshot="102:105:103") == [False]
    assert changes.lets_in(1, snapshot="104:105:") == [True]


def test_long_transaction_holds_back_its_own_keys(changes: Changes) -> None:
    """One that runs for hours does not keep the changes of others from being seen."""
    changes.told(1, 2, by=[50, 103])

    assert changes.lets_in(1, 2, snapshot="50:105:50") == [False, True]


def test_late_reply_is_refused_after_a_newer_one(changes: Changes) -> None:
    """That one read saw a change proves nothing of another, which began before it."""
    changes.told(1, by=103)
    assert changes.lets_in(1, snapshot="104:105:", sent_at=2.0) == [True]

    assert changes.lets_in(1, snapshot="103:105:103", sent_at=1.0, now=61.9) == [False]


def test_change_is_forgotten_after_it_was_seen(changes: Changes) -> None:
    """Once seen it stays for the age, in which all older reads land; unseen it stays for ever."""
    changes.told(1, 2, by=[103, 109])
    changes.lets_in(snapshot="104:109:", now=10.0)
    changes.lets_in(snapshot="104:109:", now=69.9)
    assert len(changes) == 2

    changes.lets_in(snapshot="104:109:", now=71.0)

    assert len(changes) == 1
    assert changes.lets_in(2, snapshot="104:109:", sent_at=1e6) == [False]


def test_ids_wrap_around(changes: Changes) -> None:
    """Changes of both sides of the wrap are told apart from what the read saw."""
    changes.told(1, 2, by=[2**32 - 1, 3])

    assert changes.lets_in(1, 2, snapshot=f"{2**32}:{2**32 + 2}:") == [True, False]


@pytest.mark.parametrize(("sent_at", "is_let_in"), [(4.9, False), (5.0, True)])
def test_unproved_changes_hold_off(changes: Changes, sent_at: float, *, is_let_in: bool) -> None:
    """Without an id, or without a snapshot, a read counts that was sent 5 s after the change."""
    changes.told(1, 2, by=[UNKNOWN_TRANSACTION, 103])

    assert changes.lets_in(1, 2, snapshot="200:200:", sent_at=sent_at) == [is_let_in, True]
    assert changes.lets_in(1, 2, snapshot=None, sent_at=sent_at) == [is_let_in, is_let_in]


def test_held_off_read_may_land_late(changes: Changes) -> None:
    """What counts is when a read was sent: one that was on its way all the time is refused."""
    changes.told(1, by=UNKNOWN_TRANSACTION)

    assert changes.lets_in(1, snapshot="200:200:", sent_at=1.0, now=9.0) == [False]


def test_change_of_anything_fends_off_all(changes: Changes) -> None:
    """A truncated table, say: a read must be beyond that transaction, whatever its keys."""
    changes.note_table(103, 0.0)

    assert changes.lets_in(1, 2, snapshot="103:105:103") == [False, False]
    assert changes.lets_in(1, 2, snapshot="104:105:104") == [True, True]


def test_late_standby_is_fended_off_by_an_id(changes: Changes) -> None:
    """Long after a loss a standby may not show what was lost; time alone would let it in."""
    lagging = TableSnapshot(800, 800, np.zeros(0, np.uint32), is_of_standby=True)
    unnamed, key = Changes(), np.array([1], np.uint64)

    unnamed.note_table(UNKNOWN_TRANSACTION, 0.0)
    changes.note_table(900, 0.0)

    assert unnamed.admits(key, lagging, sent_at=6.0, now=6.0).tolist() == [True]
    assert changes.admits(key, lagging, sent_at=6.0, now=6.0).tolist() == [False]


def test_overflow_counts_for_the_whole_table() -> None:
    """The oldest of too many changes are not forgotten: reads must be beyond them."""
    changes = Changes(capacity=4)
    changes.told(1, 2, by=[101, 102], at=1.0)
    changes.told(3, 4, 5, by=[103, 104, 105], at=2.0)

    assert len(changes) == 4
    assert changes.lets_in(9, snapshot="101:109:101", sent_at=3.0) == [False]
    assert changes.lets_in(9, 2, snapshot="102:109:102", sent_at=3.0) == [True, False]


def test_more_than_there_is_room_for_counts_too() -> None:
    """Of more changes at once than may be remembered, the first count for the whole table."""
    changes = Changes(capacity=2)
    changes.told(1, 2, 3, by=[101, 102, 103])

    assert len(changes) == 2
    assert changes.lets_in(9, snapshot="101:109:101") == [False]
    assert changes.lets_in(9, 1, 2, snapshot="102:109:102") == [True, True, False]


def test_memory_grows_to_its_bound() -> None:
    """A burst of changes takes what it needs, up to the capacity, and no more."""
    changes = Changes(capacity=5000)
    few = changes.bytes
    changes.told(*range(1500), by=101)
    changes.told(*range(9000), by=101)

    assert (len(changes), changes.bytes) == (5000, few * 5000 // 1024)


def test_unseen_keys_are_told(changes: Changes) -> None:
    """A picture of the whole table is right but for these keys; or not at all."""
    changes.told(1, 2, by=[101, 103])
    picture = TableSnapshot.parse("103:105:103")

    unseen = changes.unseen(picture, sent_at=1.0, now=2.0)
    changes.note_table(106, 1.0)

    assert unseen is not None
    assert unseen.tolist() == [2]
    assert changes.unseen(picture, sent_at=1.0, now=2.0) is None
    assert changes.settled_from(3.0) == 3.0
