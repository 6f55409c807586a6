"""What a cache holds, and what it takes."""

import numpy as np
import pytest

from lookup_core.cache.cached_entries import CachedEntries, Newcomers
from lookup_core.cache.segments import RowQueue
from lookup_core.keys.key_index import ABSENT
from tests.lookup_core.cache.row_caches import KINDS, OVERHEAD_BYTES, CacheKind

SIZES = dict.fromkeys(RowQueue, 2**20)


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension."""
    return KINDS[request.param]


def newcomers(
    entries: CachedEntries, kind: CacheKind, numbers: range, queue: RowQueue
) -> Newcomers:
    """Keys that are to come in, with rows or without."""
    is_absent = queue is RowQueue.ABSENT
    rows = kind.rows(numbers).select([]) if is_absent else kind.rows(numbers)
    which = np.ones(len(numbers), np.bool_)
    return entries.newcomers(kind.keys(numbers), which, queue=queue, rows=rows)


def filled(kind: CacheKind, count: int, queue: RowQueue = RowQueue.SMALL) -> CachedEntries:
    """Entries of the numbers from 0."""
    entries = CachedEntries(kind.schema, SIZES, life_s=8.0)
    entries.add([newcomers(entries, kind, range(count), queue)], read_at=1.0)
    entries.check_invariants()
    return entries


def test_entries_stand_in_their_queues(kind: CacheKind) -> None:
    """What comes in together is found, each in its queue, and absences are marked."""
    entries = CachedEntries(kind.schema, SIZES, life_s=8.0)
    queues = (RowQueue.SMALL, RowQueue.MAIN, RowQueue.ABSENT)
    parts = [newcomers(entries, kind, range(at, at + 2), queue) for at, queue in enumerate(queues)]
    del parts[1]

    entries.add(parts, read_at=3.0)

    slots = entries.find(kind.keys([0, 1, 2, 3, 9]))
    assert (slots == ABSENT).tolist() == [False] * 4 + [True]
    states = entries.states.of(slots[:4])
    assert entries.states.is_absence(states).tolist() == [False, False, True, True]
    assert entries.states.ages_s(states, 4.5).tolist() == [1.5] * 4
    entries.check_invariants()


def test_growth_is_foretold(kind: CacheKind) -> None:
    """How much more is held after an addition is known before."""
    entries = filled(kind, 300)
    more = newcomers(entries, kind, range(1_000, 2_000), RowQueue.MAIN)
    foretold = entries.bytes + more.bytes + entries.growth_bytes(1_000, kept=300)

    entries.add([more], read_at=2.0)

    assert entries.bytes == foretold


def test_forgotten_entries_are_not_found(kind: CacheKind) -> None:
    """What is forgotten is unknown, and the others are as they were."""
    entries = filled(kind, 3)

    entries.forget(entries.find(kind.keys([1])))

    assert (entries.find(kind.keys([0, 1, 2])) == ABSENT).tolist() == [False, True, False]
    assert len(entries) == 2


@pytest.mark.parametrize("queue", list(RowQueue))
def test_shrinking_keeps_what_is_left(queue: RowQueue) -> None:
    """What is left after shrinking is the same, in as little room as was told."""
    kind = KINDS["text"]
    entries = filled(kind, 5_000, queue)
    entries.forget(entries.find(kind.keys(range(4_900))))
    left = entries.find(kind.keys(range(4_900, 5_000)))
    entries.states.set_visits(left, 2)
    foretold = entries.least_bytes

    entries.shrink()

    slots = entries.find(kind.keys(range(4_900, 5_000)))
    assert entries.bytes == foretold < OVERHEAD_BYTES + 20_000
    states = entries.states.of(slots)
    assert (slots.max() < 512, set(entries.states.visits(states))) == (True, {2})
    assert set(entries.states.ages_s(states, 1.5)) == {0.5}
    entries.check_invariants()


def test_proven_are_main_rows_and_ghosts() -> None:
    """A key has proved itself if its row is in the main queue, or it went a short while ago."""
    kind = KINDS["number"]
    entries = filled(kind, 4)
    entries.rows.move(entries.find(kind.keys([1])), RowQueue.MAIN)
    entries.ghosts.add(kind.keys([8]).hashes)
    keys = kind.keys([0, 1, 8, 9])

    is_proven = entries.is_proven(keys, entries.find(keys))

    assert is_proven.tolist() == [False, True, True, False]


def test_first_newcomers_can_be_left_out(kind: CacheKind) -> None:
    """All but the first ones are left, with their keys and rows."""
    entries = CachedEntries(kind.schema, SIZES, life_s=8.0)
    few = newcomers(entries, kind, range(10), RowQueue.SMALL).without_first(8)

    entries.add([few], read_at=0.0)

    assert (entries.find(kind.keys([7, 8, 9])) == ABSENT).tolist() == [True, False, False]


def test_absences_store_no_columns() -> None:
    """A key that is its own hash takes only its slot when it has no row."""
    kind = KINDS["number"]
    entries = filled(kind, 100, RowQueue.ABSENT)

    assert entries.bytes == OVERHEAD_BYTES + 100 * 4
    assert entries.bytes_by_slot == OVERHEAD_BYTES / 512
