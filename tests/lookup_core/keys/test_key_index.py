"""The index from keys to slots: against a dict, with collisions, chains, tombstones and growth."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lookup_core.keys.canonical_keys import Hashes
from lookup_core.keys.key_index import ABSENT, KeyIndex, Slots

PLACES = 1024  # of a new index
# Equal ones, ones that start in the same place, and ones whose chain goes round the table's end.
CROWDED = [0, PLACES, 2 * PLACES, 1, PLACES - 1, 2 * PLACES - 1, 2**64 - 1]
crowds = st.lists(st.sampled_from(CROWDED), max_size=12)


def hashes_of(*values: int) -> Hashes:
    """Hashes as the index takes them."""
    return np.array(values, np.uint64)


@pytest.fixture
def index() -> KeyIndex:
    """An index without keys."""
    return KeyIndex()


def test_new_index_knows_no_key(index: KeyIndex) -> None:
    """Nothing is found in an empty index, and no keys ask for nothing."""
    assert index.find(hashes_of(0, 5)).tolist() == [ABSENT, ABSENT]
    assert index.find(hashes_of()).tolist() == []
    assert (len(index), index.used_slots().tolist()) == (0, [])


def test_inserted_keys_are_found(index: KeyIndex) -> None:
    """Each key has a slot of its own; asked twice, it is found twice; others are absent."""
    first, second = index.insert(hashes_of(7, 2**64 - 1)).tolist()

    assert first != second
    assert index.find(hashes_of(2**64 - 1, 8, 7, 7)).tolist() == [second, ABSENT, first, first]
    assert index.hashes_of(np.array([second, first])).tolist() == [2**64 - 1, 7]


def test_removed_keys_are_absent(index: KeyIndex) -> None:
    """A removed key is absent; keys whose chain led over its place are still found."""
    slots = index.insert(hashes_of(0, PLACES, 2 * PLACES))

    index.remove(slots[:2])

    assert index.find(hashes_of(0, PLACES, 2 * PLACES)).tolist() == [ABSENT, ABSENT, slots[2]]


def test_removed_slots_are_used_again(index: KeyIndex) -> None:
    """Keys that come and go do not make the index grow."""
    before = index.bytes

    for number in range(40):
        index.remove(index.insert(hashes_of(*range(number * 400, number * 400 + 400))))
        index.check_invariants()

    assert (len(index), index.bytes) == (0, before)


def test_equal_hashes_need_the_keys(index: KeyIndex) -> None:
    """Keys with the same hash are told apart by whoever knows the keys."""
    slots = index.insert(hashes_of(5, 5, 5))
    asked = np.array([slots[2], slots[0], ABSENT])  # the third key, the first, and a stranger

    found = index.find(hashes_of(5, 5, 5), lambda at, which: at == asked[which])

    assert found.tolist() == asked.tolist()


def test_index_that_is_sure_asks_nobody(index: KeyIndex) -> None:
    """Without an equal hash nobody is asked whether the keys are the same."""
    index.insert(hashes_of(5))

    def is_same_key(at: Slots, which: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        raise AssertionError((at, which))

    assert index.find(hashes_of(6, 5 + PLACES), is_same_key).tolist() == [ABSENT, ABSENT]


def test_one_of_equal_hashes_is_found(index: KeyIndex) -> None:
    """A key alone is told from others with its hash, too, by whoever knows the keys."""
    slots = index.insert(hashes_of(5, 5, 5)).tolist()

    found = [index.find_one(5, lambda slot, own=own: slot == own) for own in [*slots, 99]]  # type: ignore[misc]

    assert found == [*slots, ABSENT]


def test_key_alone_is_found_the_same(index: KeyIndex) -> None:
    """Asked alone a key has the slot that it has among others, over removed ones, or none."""
    hashes = hashes_of(*(PLACES * number - 1 for number in range(1, 40)))  # one long chain
    index.remove(index.insert(hashes)[::3])
    asked = np.concatenate((hashes, hashes_of(PLACES * 40 - 1, 500, 2**64 - 1)))

    alone = [index.find(asked[at : at + 1]).item() for at in range(len(asked))]

    assert alone == index.find(asked).tolist()
    assert alone.count(ABSENT) == 13 + 3


def test_chains_go_round_the_end(index: KeyIndex) -> None:
    """Keys that stand behind the table's end are found at its beginning, also in a new table."""
    last = [2**20 * number - 1 for number in range(1, 50)]
    first = [2**20 * number for number in range(50)]
    slots = index.insert(hashes_of(*last, *first))

    index.insert(hashes_of(*range(5_000, 7_000)))

    assert index.find(hashes_of(*last, *first)).tolist() == slots.tolist()
    index.check_invariants()


def test_slots_grow_by_a_quarter(index: KeyIndex) -> None:
    """However many keys there are, a quarter more slots are held at most."""
    for count in range(1, 50):
        index.insert(hashes_of(*range(count * 200, count * 200 + 200)))
        assert index.slot_count <= max(512, len(index) * 1.25 + 8)
        assert index.slot_count % 8 == 0


@pytest.mark.parametrize("count", [512, 513, 614, 615, 5_000])
def test_growth_is_known_before(index: KeyIndex, count: int) -> None:
    """How much an insertion takes is told before it is made, exactly."""
    index.insert(hashes_of(*range(100)))
    bytes_then = index.bytes + index.more_bytes(count, kept=100)
    slots_then = index.slot_count + index.more_slots(count, kept=100)

    index.insert(hashes_of(*range(100, 100 + count)))

    assert (index.bytes, index.slot_count) == (bytes_then, slots_then)


def test_growth_counts_what_is_left(index: KeyIndex) -> None:
    """Told that keys go before the insertion, it counts with their slots, not their places."""
    slots = index.insert(hashes_of(*range(500)))
    bytes_then = index.bytes + index.more_bytes(500, kept=0)

    index.remove(slots)
    index.insert(hashes_of(*range(500, 1_000)))

    assert index.slot_count == 512
    assert index.bytes == bytes_then
    index.check_invariants()


def test_shrunk_index_is_as_if_new(index: KeyIndex) -> None:
    """What few keys are left take what they would in an index made for them."""
    slots = index.insert(hashes_of(*range(10_000)))
    index.remove(slots[:9_400])

    was = index.shrink()

    assert index.bytes == index.least_bytes(600)
    assert index.slot_count == index.least_slots(600) == 600
    found = index.find(hashes_of(*range(10_000)))
    assert found[:9_400].tolist() == [ABSENT] * 9_400
    assert was[found[9_400:]].tolist() == slots[9_400:].tolist()
    index.check_invariants()


def test_shrunk_index_grows_again(index: KeyIndex) -> None:
    """Keys that come later find free slots, and are told from those that stayed."""
    index.remove(index.insert(hashes_of(*range(2_000)))[1:])
    index.shrink()

    slots = index.insert(hashes_of(*range(5_000, 7_000)))

    assert len(set(slots.tolist()) | set(index.find(hashes_of(0)).tolist())) == 2_001
    index.check_invariants()


class KeyIndexMachine(RuleBasedStateMachine):
    """An index against {slot: (hash, key)}; keys are numbered, their hashes crowd."""

    def __init__(self) -> None:
        super().__init__()
        self.index = KeyIndex()
        self.held: dict[int, tuple[int, int]] = {}  # {slot: (hash, key)}
        self.keys = 0

    @rule(hashes=crowds)
    def insert(self, hashes: list[int]) -> None:
        """Insert keys that are new."""
        self._insert(hashes)

    @rule(count=st.sampled_from([300, 700]))
    def insert_many(self, count: int) -> None:
        """Insert so many that the index grows."""
        self._insert([(self.keys + more) * 977 for more in range(count)])

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Remove some keys."""
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.held)))) if self.held else set()
        self._remove(chosen)

    @rule(nth=st.integers(1, 4))
    def remove_many(self, nth: int) -> None:
        """Remove every nth key."""
        self._remove(set(sorted(self.held)[::nth]))

    @rule()
    def shrink(self) -> None:
        """Give back what is not used."""
        was = self.index.shrink().tolist()
        assert sorted(was) == sorted(self.held)
        self.held = {new: self.held[old] for new, old in enumerate(was)}
        assert self.index.bytes == self.index.least_bytes(len(self.held))

    @rule(strangers=crowds)
    def find(self, strangers: list[int]) -> None:
        """Find every key, some twice, and no stranger."""
        asked = [*self.held.values(), *((hash_, -1) for hash_ in strangers)] * 2
        is_same = self._is_same([key for _, key in asked])

        found = self.index.find(hashes_of(*(hash_ for hash_, _ in asked)), is_same)

        assert found.tolist() == [*self.held, *(ABSENT for _ in strangers)] * 2

    @invariant()
    def holds_the_same(self) -> None:
        """The index holds the model's slots, and nothing else."""
        self.index.check_invariants()
        assert len(self.index) == len(self.held)
        assert set(self.index.used_slots().tolist()) == set(self.held)
        free = self.index.free_slots().tolist()
        assert sorted([*free, *self.held]) == list(range(self.index.slot_count))

    def _insert(self, hashes: list[int]) -> None:
        bytes_then = self.index.bytes + self.index.more_bytes(len(hashes), kept=len(self.held))
        slots = self.index.insert(hashes_of(*hashes)).tolist()
        assert self.index.bytes == bytes_then
        assert len(set(slots) - set(self.held)) == len(hashes)
        for slot, hash_ in zip(slots, hashes, strict=True):
            self.held[slot] = (hash_, self.keys)
            self.keys += 1

    def _remove(self, slots: set[int]) -> None:
        self.index.remove(np.array(sorted(slots), np.int32))
        for slot in slots:
            del self.held[slot]

    def _is_same(
        self, asked: list[int]
    ) -> Callable[[Slots, npt.NDArray[np.intp]], npt.NDArray[np.bool_]]:
        def is_same(slots: Slots, positions: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
            pairs = zip(slots.tolist(), positions.tolist(), strict=True)
            return np.array([self.held[slot][1] == asked[position] for slot, position in pairs])

        return is_same


TestKeyIndexMachine = KeyIndexMachine.TestCase
TestKeyIndexMachine.settings = settings(max_examples=40, stateful_step_count=20)
