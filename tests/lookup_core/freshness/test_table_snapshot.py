"""What a read of PostgreSQL saw, by the low 32 bits of transactions."""

import numpy as np
import pytest

from lookup_core.freshness.table_snapshot import TableSnapshot

WRAPPED = 2**33  # a multiple of 32 bits' range: ids begin again here


def seen(snapshot: TableSnapshot, *ids: int) -> list[bool]:
    """Which of these the read saw; ids in 64 bits."""
    return snapshot.sees(np.array([each % 2**32 for each in ids], np.uint32)).tolist()


def test_read_sees_what_has_ended() -> None:
    """All below the oldest in progress, of the others those that are not listed."""
    snapshot = TableSnapshot.parse("100:105:100,103")

    assert seen(snapshot, 99, 100, 101, 103, 104, 105) == [True, False, True, False, True, False]


def test_snapshot_without_others_is_read() -> None:
    """Where nothing is in progress the list is empty."""
    snapshot = TableSnapshot.parse("100:100:")

    assert (snapshot.xmin, snapshot.xmax, snapshot.in_progress.tolist()) == (100, 100, [])
    assert seen(snapshot, 99, 100) == [True, False]


def test_standby_proves_the_oldest_only() -> None:
    """A standby lists nobody: from the oldest on, all may still be in progress."""
    snapshot = TableSnapshot.parse("100:105:", is_of_standby=True)

    assert seen(snapshot, 99, 100, 104) == [True, False, False]


def test_ids_are_compared_across_the_wrap() -> None:
    """Ids of 32 bits that began again are later than those just before it."""
    snapshot = TableSnapshot.parse(f"{WRAPPED - 2}:{WRAPPED + 3}:{WRAPPED - 2},{WRAPPED + 1}")

    ids = (WRAPPED - 3, WRAPPED - 2, WRAPPED - 1, WRAPPED, WRAPPED + 1, WRAPPED + 2, WRAPPED + 3)
    assert seen(snapshot, *ids) == [True, False, True, True, False, True, False]


@pytest.mark.parametrize(
    ("transaction_id", "is_beyond"),
    [(99, True), (100, False), (104, False), (2**32 - 5, True)],
)
def test_beyond_means_all_have_ended(transaction_id: int, *, is_beyond: bool) -> None:
    """Of a transaction and all before it, the oldest that is in progress decides."""
    assert TableSnapshot.parse("100:105:100").is_beyond(transaction_id) is is_beyond
