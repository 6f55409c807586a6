"""Which lookups wait, for how many keys, and until when."""

import numpy as np
import pytest

from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.keys.canonical_keys import keys_of_ids


class Waiting(WaitingLookups):
    """Lookups that wait for flights of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.flights = FlightTable()

    def begin(self, lookup: int, *positions: int, deadline_s: float = 9.0) -> WaitingLookup:
        """A lookup that waits for keys at these positions."""
        lookup_id = LookupId(lookup)
        places = np.array(positions, np.int32)
        keys = keys_of_ids(positions)
        joined = self.flights.join(lookup_id, keys, positions=places, deadline_s=9.0)
        entry = WaitingLookup(lookup_id, ("name",), deadline_s, joined.waiters)
        self.add(entry)
        self.check_invariants(self.flights)
        return entry


@pytest.fixture
def waiting() -> Waiting:
    """Nobody."""
    return Waiting()


def test_keys_of_all_are_counted(waiting: Waiting) -> None:
    """Every key that waits counts, over all lookups."""
    first = waiting.begin(1, 0, 1)
    waiting.begin(2, 5)

    assert (len(waiting), waiting.keys) == (2, 3)
    assert waiting.get(LookupId(1)) is first


def test_last_answer_ends_the_wait(waiting: Waiting) -> None:
    """A lookup waits until its last key is answered."""
    entry = waiting.begin(1, 4, 6)

    assert not waiting.answer(entry.id, 1)
    assert (waiting.keys, waiting.get(entry.id)) == (1, entry)
    assert waiting.answer(entry.id, 1)
    assert (len(waiting), waiting.keys, waiting.next_deadline()) == (0, 0, None)


def test_who_leaves_is_gone(waiting: Waiting) -> None:
    """A lookup can be taken out once."""
    entry = waiting.begin(1, 0, 1)

    assert waiting.remove(LookupId(1)) is entry
    assert waiting.remove(LookupId(1)) is None
    assert (len(waiting), waiting.keys) == (0, 0)


def test_earliest_deadline_is_next(waiting: Waiting) -> None:
    """The next deadline is that of a lookup that still waits."""
    waiting.begin(1, 0, deadline_s=5.0)
    waiting.begin(2, 0, deadline_s=3.0)

    assert waiting.next_deadline() == 3.0
    waiting.remove(LookupId(2))
    assert waiting.next_deadline() == 5.0


def test_time_runs_out_in_order(waiting: Waiting) -> None:
    """From its deadline on a lookup is over; the earliest comes first."""
    late = waiting.begin(1, 0, deadline_s=5.0)
    early = waiting.begin(2, 0, deadline_s=3.0)
    waiting.begin(3, 0, deadline_s=5.001)

    assert waiting.pop_expired(2.999) == []
    assert waiting.pop_expired(5.0) == [early, late]
    assert (waiting.pop_expired(5.0), waiting.keys) == ([], 1)


def test_latest_of_some_lookups_counts(waiting: Waiting) -> None:
    """A query is worth its while as long as anybody waits for it."""
    for lookup, deadline_s in ((1, 5.0), (2, 8.0), (3, 9.0)):
        waiting.begin(lookup, 0, deadline_s=deadline_s)

    assert waiting.latest_deadline([LookupId(1), LookupId(2)]) == 8.0


def test_patience_lasts_beyond_a_time(waiting: Waiting) -> None:
    """Who has time left after a moment is still there then; whose time ends with it is not."""
    for lookup, deadline_s in ((1, 4.999), (2, 5.0), (3, 5.001), (4, 9.0)):
        waiting.begin(lookup, 0, deadline_s=deadline_s)

    asked = [LookupId(lookup) for lookup in (1, 2, 3)]

    assert waiting.lasting_beyond(5.0, asked) == {LookupId(3)}
