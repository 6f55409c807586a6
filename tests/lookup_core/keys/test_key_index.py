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


def test_removed_slots_are_reused(index: KeyIndex) -> None:
    """Added and removed keys do not grow the index."""
    before = index.bytes

    for number in range(0, 8_000, 400):
        index.remove(index.insert(hashes_of(*range(number, number + 400))))
        index.check_invariants()

    assert (len(index), index.bytes) == (0, before)


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


def test_single_key_is_found_as_in_batch(index: KeyIndex) -> None:
    """A key alone has the slot that it has in a batch, behind removed keys of one long chain."""
    hashes = hashes_of(*(PLACES * number - 1 for number in range(1, 40)))
    index.remove(index.insert(hashes)[::3])
    wanted = np.concatenate((hashes, hashes_of(PLACES * 40 - 1, 500, 2**64 - 1)))

    alone = [index.table.find(wanted[at : at + 1]).item() for at in range(len(wanted))]

    assert alone == index.table.find(wanted).tolist()
    assert alone.count(ABSENT) == 13 + 3


def test_chains_wrap_around_the_end(index: KeyIndex) -> None:
    """Keys beyond the table's end are found at its beginning, also in a larger table."""
    last = [2**20 * number - 1 for number in range(1, 50)]
    first = [2**20 * number for number in range(50)]
    slots = index.insert(hashes_of(*last, *first))

    index.insert(hashes_of(*range(5_000, 7_000)))

    assert index.table.find(hashes_of(*last, *first)).tolist() == slots.tolist()


def test_slots_grow_by_a_quarter(index: KeyIndex) -> None:
    """An index has at most a quarter more slots than keys, in multiples of eight."""
    for count in range(1, 50):
        index.insert(hashes_of(*range(count * 200, count * 200 + 200)))
        assert index.slot_count <= max(512, len(index) * 1.25 + 8)
        assert index.slot_count % 8 == 0


@pytest.mark.parametrize("count", [411, 412, 413, 512, 513, 514, 614, 615, 5_000])
@pytest.mark.parametrize("kept", [0, 100])
def test_growth_is_known_before(index: KeyIndex, count: int, kept: int) -> None:
    """Growth by an insertion is known before it, also after removals."""
    slots = index.insert(hashes_of(*range(100)))
    expected = (
        index.bytes + index.more_bytes(count, kept=kept),
        index.slot_count + index.more_slots(count, kept=kept),
    )

    index.remove(slots[kept:])
    index.insert(hashes_of(*range(100, 100 + count)))

    assert (index.bytes, index.slot_count) == expected


def test_shrunk_index_is_as_if_new(index: KeyIndex) -> None:
    """A shrunk index has the size of a new one, finds its keys, and accepts others."""
    slots = index.insert(hashes_of(*range(10_000)))
    index.remove(slots[:9_400])

    former = index.shrink()

    assert index.bytes == index.least_bytes(600)
    assert index.slot_count == index.least_slots(600) == 608
    found = index.table.find(hashes_of(*range(10_000)))
    assert found[:9_400].tolist() == [ABSENT] * 9_400
    assert former[found[9_400:]].tolist() == slots[9_400:].tolist()
    more = index.insert(hashes_of(*range(10_000, 12_000)))
    assert len({*more.tolist(), *found[9_400:].tolist()}) == 2_600


def test_table_without_empty_places_is_searched_once() -> None:
    """A search ends also where another process has left no empty place."""
    table = KeyTable(np.full(4, -2, np.int32), hashes_of(*range(8)))

    assert table.find_one(1) == ABSENT
    assert table.find(hashes_of(1, 2)).tolist() == [ABSENT, ABSENT]
