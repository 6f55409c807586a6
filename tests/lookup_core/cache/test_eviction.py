"""Who goes when room is wanted, told on the entries themselves."""

import numpy as np
import pytest

from lookup_core.cache.cached_entries import CachedEntries, Newcomers
from lookup_core.cache.entry_states import Lifetimes
from lookup_core.cache.eviction import Eviction, segment_bytes
from lookup_core.cache.segments import RowQueue
from lookup_core.keys.key_index import ABSENT
from lookup_core.settings import CacheSettings
from lookup_core.statistics import EvictionReason
from tests.lookup_core.cache.naive_eviction import NaiveEviction
from tests.lookup_core.cache.row_caches import KINDS, OVERHEAD_BYTES

KIND = KINDS["number"]
MAX_BYTES = OVERHEAD_BYTES + 10_600  # four hundred rows
HOT = range(200)


class Scanned:
    """Entries of which some are hot, before a scan of keys that are asked for once."""

    def __init__(self, eviction_type: type[Eviction]) -> None:
        lifetimes = Lifetimes(CacheSettings(ttl_s=8.0))
        self.entries = CachedEntries(
            KIND.schema, segment_bytes(MAX_BYTES), life_s=lifetimes.longest_s
        )
        self.eviction = eviction_type(self.entries, lifetimes, MAX_BYTES)
        self.put(range(400))
        self.entries.states.set_visits(self.slots(HOT), 1)

    def put(self, numbers: range) -> None:
        """Let rows in, twenty at a time."""
        for first in range(numbers.start, numbers.stop, 20):
            few = self.newcomers(range(first, first + 20))
            assert self.eviction.make_room([few], 0.0)
            self.entries.add([few], read_at=0.0)

    def newcomers(self, numbers: range) -> Newcomers:
        """Rows that are to come into the small queue."""
        which, rows = np.ones(len(numbers), np.bool_), KIND.rows(numbers)
        return self.entries.newcomers(KIND.keys(numbers), which, queue=RowQueue.SMALL, rows=rows)

    def slots(self, numbers: range) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Where these are."""
        return self.entries.find(KIND.keys(numbers))

    def hot_left(self) -> int:
        """How many of the hot are left."""
        return int((self.slots(HOT) != ABSENT).sum())


@pytest.mark.parametrize(("eviction_type", "left"), [(Eviction, len(HOT)), (NaiveEviction, 0)])
def test_only_naive_eviction_yields_to_scans(eviction_type: type[Eviction], left: int) -> None:
    """A scan leaves the hot rows alone; plain FIFO, the broken twin, loses them all."""
    scanned = Scanned(eviction_type)

    scanned.put(range(1_000, 5_000))

    assert scanned.hot_left() == left


def test_small_queue_is_a_tenth() -> None:
    """Once rows have proved themselves, new ones have about a tenth of the bytes."""
    scanned = Scanned(Eviction)
    scanned.entries.states.set_visits(scanned.slots(range(400)), 1)

    scanned.put(range(1_000, 1_400))

    small, main = (
        scanned.entries.rows.queue_bytes(queue) for queue in (RowQueue.SMALL, RowQueue.MAIN)
    )
    assert 0.02 < small / (small + main) < 0.2


def test_main_rows_lose_a_visit_a_round() -> None:
    """A visited row of the main queue stays, and has to be asked for again."""
    scanned = Scanned(Eviction)
    scanned.entries.rows.move(scanned.slots(range(400)), RowQueue.MAIN)
    scanned.entries.states.set_visits(scanned.slots(range(400)), 0)
    scanned.entries.states.set_visits(scanned.slots(range(5)), 2)

    scanned.put(range(1_000, 1_020))

    states = scanned.entries.states
    assert states.visits(states.of(scanned.slots(range(5)))).tolist() == [1] * 5


def test_large_batch_leaves_ghosts() -> None:
    """Of a batch larger than the small queue the last rows come in, the others are noted."""
    scanned = Scanned(Eviction)
    batch = scanned.newcomers(range(1_000, 2_000))

    kept = scanned.eviction.passing(batch)

    assert 0 < len(kept.hashes) < 100
    assert kept.hashes.tolist() == batch.hashes[-len(kept.hashes) :].tolist()
    assert scanned.entries.ghosts.is_in(batch.hashes[-len(kept.hashes) - 50 :])[:50].all()


def test_batch_with_room_comes_in_whole() -> None:
    """While there is room, nothing is left out."""
    scanned = Scanned(Eviction)
    scanned.eviction.set_max_bytes(2**20)
    batch = scanned.newcomers(range(1_000, 2_000))

    assert scanned.eviction.passing(batch) is batch


def test_absent_slots_are_not_forgotten() -> None:
    """What was not found is no entry that could go."""
    eviction = Scanned(Eviction).eviction

    assert eviction.forget(np.array([ABSENT, ABSENT], np.int32), EvictionReason.REPLACED) == 0
    assert set(eviction.counts.values()) == {0}
