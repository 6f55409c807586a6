"""What is known of entries by slot: their time, whether they are absences, their visits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.cache.entry_states import MOST_VISITS, EntryStates
from lookup_core.keys.key_index import ABSENT, Slots

LIFE_S = 600.0
TICK_S = 2**-17  # of such a life
TOLD_S = 2**29 * TICK_S  # how much time can be told apart


def slots_of(*values: int) -> Slots:
    """Slots as the states take them."""
    return np.array(values, np.int32)


def new_states(slots: int = 16, life_s: float = LIFE_S) -> EntryStates:
    """States of so many slots."""
    states = EntryStates(life_s)
    states.resize(slots)
    return states


def ages_s(states: EntryStates, *slots: int, now: float) -> list[float]:
    """How old the entries in these slots are."""
    return states.ages_s(states.of(slots_of(*slots)), now).tolist()


def visits(states: EntryStates, *slots: int) -> list[int]:
    """How often the entries in these slots were asked for."""
    return states.visits(states.of(slots_of(*slots))).tolist()


def test_entries_have_their_own_state() -> None:
    """Each slot tells its age and whether it is an absence; nobody has visited it yet."""
    states = new_states()

    states.begin(slots_of(3, 1), read_at=10.0, is_absence=False)
    states.begin(slots_of(2), read_at=11.5, is_absence=True)

    assert ages_s(states, 1, 2, 3, now=12.0) == [2.0, 0.5, 2.0]
    assert states.is_absence(states.of(slots_of(1, 2, 3))).tolist() == [False, True, False]
    assert visits(states, 1, 2, 3) == [0, 0, 0]


def test_state_takes_four_bytes_a_slot() -> None:
    """What is held grows with the slots; what was known of them stays."""
    states = new_states(slots=16)
    states.begin(slots_of(15), read_at=1.0, is_absence=True)

    states.resize(24)

    assert states.bytes == 24 * 4
    assert ages_s(states, 15, now=2.0) == [1.0]


def test_unknown_slot_can_be_asked() -> None:
    """Of ABSENT any slot's state is told, so that whole batches are asked at once."""
    assert len(new_states().of(slots_of(ABSENT, 0, ABSENT))) == 3


def test_visits_are_counted_to_a_bound() -> None:
    """Each batch is a visit however often it names a slot; more than three tell nothing more."""
    states, slots = new_states(), slots_of(4, 4, 5)
    states.begin(slots_of(4, 5), read_at=1.0, is_absence=False)
    counts = []

    for _ in range(5):
        states.visit(slots, states.of(slots))
        counts.append(visits(states, 4, 5))

    assert counts == [[1, 1], [2, 2], [MOST_VISITS] * 2, [MOST_VISITS] * 2, [MOST_VISITS] * 2]
    assert ages_s(states, 4, now=2.0) == [1.0]


def test_visits_can_be_set() -> None:
    """Visits are given slot by slot, or to all the same; nothing else changes."""
    states, slots = new_states(), slots_of(4, 5)
    states.begin(slots, read_at=1.0, is_absence=True)

    states.set_visits(slots, np.array([3, 1], np.uint32))
    states.set_visits(slots_of(6), 2)

    assert visits(states, 4, 5, 6) == [3, 1, 2]
    assert states.is_absence(states.of(slots)).tolist() == [True, True]
    assert ages_s(states, 4, 5, now=3.0) == [2.0, 2.0]


def test_renumbered_states_are_the_same() -> None:
    """Slots get other numbers, in as much room as was said."""
    states = new_states()
    for slot in range(3):
        states.begin(slots_of(slot), read_at=float(slot), is_absence=False)

    states.renumber(slots_of(2, 0), 8)

    assert ages_s(states, 0, 1, now=5.0) == [3.0, 5.0]
    assert states.bytes == 8 * 4


@pytest.mark.parametrize("started_at", [0.0, 5.0, 1e6, 1e9])
def test_ages_are_right_however_long_ago_it_began(started_at: float) -> None:
    """The clock may have run for long before, and goes on; whoever lives is told its age."""
    states, read_at = new_states(), started_at

    for _ in range(40):
        states.begin(slots_of(1), read_at=read_at, is_absence=False)
        states.begin(slots_of(2), read_at=read_at + LIFE_S / 2, is_absence=True)
        assert ages_s(states, 1, 2, now=read_at + LIFE_S) == [LIFE_S, LIFE_S / 2]
        read_at += LIFE_S


def test_outlived_entries_stay_outlived() -> None:
    """What is older than can be told is told as older than the longest life, for ever."""
    states = new_states()
    states.begin(slots_of(1), read_at=0.0, is_absence=False)

    for turn in range(1, 5):
        now = turn * TOLD_S
        states.begin(slots_of(2), read_at=now, is_absence=False)
        old, new = ages_s(states, 1, 2, now=now)
        assert (old > LIFE_S, new) == (True, 0.0)


def test_entry_may_come_with_an_older_time() -> None:
    """A time before all others is told, or as older than the longest life."""
    states = new_states()
    states.begin(slots_of(1), read_at=1e6, is_absence=False)

    states.begin(slots_of(2), read_at=1e6 - LIFE_S, is_absence=False)
    states.begin(slots_of(3), read_at=0.0, is_absence=False)

    assert ages_s(states, 2, now=1e6) == [LIFE_S]
    assert ages_s(states, 3, now=1e6)[0] > LIFE_S


@given(
    life_s=st.floats(1e-3, 1e9),
    start_s=st.floats(0, 1e8),
    steps_s=st.lists(st.floats(0, 3), min_size=1, max_size=10),
)
def test_no_entry_is_told_younger(life_s: float, start_s: float, steps_s: list[float]) -> None:
    """An age is told right but for a millionth of a life or of a second, and never as less."""
    states, now, read = new_states(life_s=life_s), start_s, list[float]()
    for slot, step_s in enumerate(steps_s):
        now += step_s * life_s
        states.begin(slots_of(slot), read_at=now, is_absence=False)
        read.append(now)

    told = np.array(ages_s(states, *range(len(read)), now=now))

    true, rounding_s = now - np.array(read), (now + 4 * max(life_s, 128)) * 1e-15
    error_s = told - true
    lives = true <= life_s
    assert (error_s[lives] <= max(life_s, 1.0) * 1e-6 + rounding_s).all()
    assert (error_s[lives] >= -rounding_s).all()
    assert (told[~lives] >= life_s - rounding_s).all()


def test_one_entry_is_told_the_same() -> None:
    """What is known of a slot alone is what is known of it among others."""
    states, slots = new_states(), slots_of(4, 5)
    states.begin(slots_of(4), read_at=1.0, is_absence=False)
    states.begin(slots_of(5), read_at=2.5, is_absence=True)

    states.visit_one(4, states.of_one(4))

    words = [states.of_one(slot) for slot in slots.tolist()]
    assert words == states.of(slots).tolist()
    assert [states.age_s(word, 3.0) for word in words] == ages_s(states, 4, 5, now=3.0)
    assert [states.is_row(word) for word in words] == [True, False]
    assert visits(states, 4, 5) == [1, 0]


def test_oldest_of_used_slots_is_told() -> None:
    """Neither visits nor being an absence make an entry older; one that has gone does not count."""
    states = EntryStates(LIFE_S)
    states.resize(4)
    states.begin(slots_of(0, 1), read_at=2.5, is_absence=True)
    states.begin(slots_of(2), read_at=1.0, is_absence=False)
    states.begin(slots_of(3), read_at=0.5, is_absence=False)

    states.visit(slots_of(2), states.of(slots_of(2)))

    assert states.oldest_age_s(slots_of(3), 3.0) == 2.0
    assert states.oldest_age_s(slots_of(2, 3), 3.0) == 0.5
