"""Key index: slots of keys, with equal hashes, chains, removed places and growth."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from lookup_core.keys.canonical_keys import Hashes
from lookup_core.keys.key_index import ABSENT, KeyIndex, KeyTable, Slots

PLACES = 1024  # of a new index


def hashes_of(*values: int) -> Hashes:
    """Hashes as the index takes them."""
    return np.array(values, np.uint64)


@pytest.fixture
def index() -> Iterator[KeyIndex]:
    """An index without keys."""
    index = KeyIndex()
    yield index
    index.check_invariants()


def is_never_called(slots: Slots, positions: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Compares keys of other hashes."""
    raise AssertionError((slots, positions))


def test_equal_hashes_compare_the_keys(index: KeyIndex) -> None:
    """Only keys with one hash are compared, in a batch and alone."""
    slots = index.insert(hashes_of(5, 5, 5))
    wanted = np.array([slots[2], slots[0], ABSENT])  # the third key, the first, an unknown one

    found = index.table.find(hashes_of(5, 5, 5), lambda at, which: at == wanted[which])
    alone = [index.table.find_one(5, own.__eq__) for own in wanted.tolist()]

    assert found.tolist() == alone == wanted.tolist()
    assert index.table.find(hashes_of(6, 5 + PLACES), is_never_called).tolist() == [ABSENT, ABSENT]


def test_chains_wrap_around_the_end(index: KeyIndex) -> None:
    """Keys beyond the table's end are found at its beginning, also in a larger table."""
    last = [2**20 * number - 1 for number in range(1, 50)]
    first = [2**20 * number for number in range(50)]
    slots = index.insert(hashes_of(*last, *first))

    index.insert(hashes_of(*range(5_000, 7_000)))

    assert index.table.find(hashes_of(*last, *first)).tolist() == slots.tolist()


def test_shrinking_keeps_chains_whole(index: KeyIndex) -> None:
    """All keys of a chain are found in the table of least size, too."""
    chained = [2**20 * number + PLACES - 1 for number in range(50)]
    hashes = hashes_of(*chained, *range(3_000, 3_600))
    index.insert(hashes)

    kept = index.shrink()

    assert index.table.find(hashes[kept]).tolist() == list(range(650))


def test_slots_grow_by_a_quarter(index: KeyIndex) -> None:
    """An index has at most a quarter more slots than keys, in multiples of eight."""
    for count in range(1, 50):
        index.insert(hashes_of(*range(count * 200, count * 200 + 200)))
        assert index.slot_count <= max(512, len(index) * 1.25 + 8)
        assert index.slot_count % 8 == 0


def test_table_without_empty_places_is_searched_once() -> None:
    """A search ends also where another process has left no empty place."""
    table = KeyTable(np.full(4, -2, np.int32), hashes_of(*range(8)))

    assert table.find_one(1) == ABSENT
    assert table.find(hashes_of(1, 2)).tolist() == [ABSENT, ABSENT]
