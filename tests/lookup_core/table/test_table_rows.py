"""Rows and holes by key, and the marks of those that stay."""

import numpy as np
import pytest

from lookup_core.keys.key_index import ABSENT
from lookup_core.table.table_rows import TableRows
from tests.lookup_core.cache.row_caches import KINDS, CacheKind

MAX_BYTES = 2**20


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension."""
    return KINDS[request.param]


def filled(kind: CacheKind, numbers: range, holes: range = range(0)) -> TableRows:
    """Rows of these numbers, and holes."""
    table = TableRows(kind.schema, MAX_BYTES)
    table.add(table.arrivals(kind.keys(numbers), kind.rows(numbers)), read_at=1.0)
    table.add(table.holes(kind.keys(holes)), read_at=1.0)
    table.check_invariants()
    return table


def is_there(kind: CacheKind, table: TableRows, numbers: range) -> list[bool]:
    """Which of the numbers are in the table."""
    return (table.find(kind.keys(numbers)) != ABSENT).tolist()


def test_rows_and_holes_are_told_apart(kind: CacheKind) -> None:
    """Both are found; only one kind is a hole."""
    table = filled(kind, range(3), range(3, 5))
    slots = table.find(kind.keys(range(6)))

    assert (slots == ABSENT).tolist() == [False] * 5 + [True]
    assert table.is_hole(slots[:5]).tolist() == [False] * 3 + [True] * 2
    assert (len(table), table.hole_count) == (5, 2)


def test_only_marked_ones_stay(kind: CacheKind) -> None:
    """Whatever has no mark goes; a mark can be taken back."""
    table = filled(kind, range(4), range(4, 8))
    table.mark(table.find(kind.keys(range(2, 6))))
    table.unmark(table.find(kind.keys([5])))

    assert table.is_marked(table.find(kind.keys(range(8)))).tolist() == [
        *(False, False, True, True, True, False, False, False)
    ]
    assert table.forget_unmarked() == 5
    assert is_there(kind, table, range(8)) == [False] * 2 + [True] * 3 + [False] * 3
    table.unmark_all()
    assert table.forget_unmarked() == 3


def test_all_keys_of_a_hash_go(kind: CacheKind) -> None:
    """Forgetting hashes lets every key go that has one of them."""
    table = filled(kind, range(100))
    hashes = kind.keys([3, 5, 500_000]).hashes

    table.forget_hashes(hashes)

    kept = ~np.isin(kind.keys(range(100)).hashes, hashes)
    assert is_there(kind, table, range(100)) == kept.tolist()
    table.check_invariants()


def test_others_are_taken_in_whole(kind: CacheKind) -> None:
    """Rows and holes of another table are here afterwards, and nothing that went from it."""
    table, others = filled(kind, range(10)), filled(kind, range(10, 30), range(30, 40))
    others.forget(others.find(kind.keys([12])))

    table.absorb(others, read_at=2.0)

    expected = [number != 12 for number in range(40)]
    assert is_there(kind, table, range(40)) == expected
    assert table.hole_count == 10
    table.check_invariants()


def test_room_is_made_by_compacting() -> None:
    """What rows that went still hold counts only as long as nothing else needs the room."""
    kind = KINDS["text"]
    table = filled(kind, range(2_000))
    table.forget(table.find(kind.keys(range(600))))
    held_bytes = table.bytes

    newcomers = table.arrivals(kind.keys(range(5_000, 5_300)), kind.rows(range(300)))

    assert not table.has_room(newcomers, held_bytes // 2)
    assert table.has_room(newcomers, held_bytes)
    table.add(newcomers, read_at=2.0)
    assert table.bytes <= held_bytes


def test_much_too_many_slots_are_given_back() -> None:
    """Few keys of what was large take little; some more than are used are kept."""
    kind = KINDS["number"]
    table = filled(kind, range(20_000))
    held_bytes = table.bytes
    table.forget(table.find(kind.keys(range(10_000))))
    table.shrink()
    assert table.entries.slot_count >= 20_000

    table.forget(table.find(kind.keys(range(10_000, 19_900))))
    table.shrink()

    assert table.bytes < held_bytes // 10
    assert is_there(kind, table, range(19_898, 19_902)) == [False, False, True, True]
