"""Which lookups wait, for how many keys, and until when."""

import pytest

from lookup_core.dimension.flight_table import Flight, LookupId
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups


@pytest.fixture
def waiting() -> WaitingLookups:
    """Nobody."""
    return WaitingLookups()


def add(
    waiting: WaitingLookups, lookup: int, *positions: int, deadline_s: float = 9.0
) -> WaitingLookup:
    """A lookup that waits for keys at these positions."""
    lookup_id = LookupId(lookup)
    flights = {position: Flight(position, [(lookup_id, position)]) for position in positions}
    entry = WaitingLookup(lookup_id, ("name",), deadline_s, flights)
    waiting.add(entry)
    waiting.check_invariants()
    return entry


def test_keys_of_all_are_counted(waiting: WaitingLookups) -> None:
    """Every key that waits counts, over all lookups."""
    first = add(waiting, 1, 0, 1)
    add(waiting, 2, 5)

    assert (len(waiting), waiting.keys) == (2, 3)
    assert waiting.get(LookupId(1)) is first


def test_last_answer_ends_the_wait(waiting: WaitingLookups) -> None:
    """A lookup waits until its last key is answered."""
    entry = add(waiting, 1, 4, 6)

    assert not waiting.answer(LookupId(1), [4])
    assert (waiting.keys, list(entry.flights)) == (1, [6])
    waiting.check_invariants()
    assert waiting.answer(LookupId(1), [6])
    assert (len(waiting), waiting.keys, waiting.next_deadline()) == (0, 0, None)


def test_who_leaves_is_gone(waiting: WaitingLookups) -> None:
    """A lookup can be taken out once."""
    entry = add(waiting, 1, 0, 1)

    assert waiting.remove(LookupId(1)) is entry
    assert waiting.remove(LookupId(1)) is None
    assert (len(waiting), waiting.keys) == (0, 0)


def test_earliest_deadline_is_next(waiting: WaitingLookups) -> None:
    """The next deadline is that of a lookup that still waits."""
    add(waiting, 1, 0, deadline_s=5.0)
    add(waiting, 2, 0, deadline_s=3.0)

    assert waiting.next_deadline() == 3.0
    waiting.remove(LookupId(2))
    assert waiting.next_deadline() == 5.0


def test_time_runs_out_in_order(waiting: WaitingLookups) -> None:
    """From its deadline on a lookup is over; the earliest comes first."""
    late = add(waiting, 1, 0, deadline_s=5.0)
    early = add(waiting, 2, 0, deadline_s=3.0)
    add(waiting, 3, 0, deadline_s=5.001)

    assert waiting.pop_expired(2.999) == []
    assert waiting.pop_expired(5.0) == [early, late]
    assert (waiting.pop_expired(5.0), waiting.keys) == ([], 1)


def test_flight_is_waited_for_until_the_last(waiting: WaitingLookups) -> None:
    """A flight is worth its while as long as anybody waits for it."""
    first = add(waiting, 1, 0, deadline_s=5.0)
    second = add(waiting, 2, 0, deadline_s=8.0)
    add(waiting, 3, 0, deadline_s=9.0)

    assert waiting.latest_deadline([*first.flights.values(), *second.flights.values()]) == 8.0


def test_patience_lasts_beyond_a_time(waiting: WaitingLookups) -> None:
    """Who has time left after a moment is still there then; whose time ends with it is not."""
    for lookup, deadline_s in ((1, 4.999), (2, 5.0), (3, 5.001), (4, 9.0)):
        add(waiting, lookup, 0, deadline_s=deadline_s)

    asked = [LookupId(lookup) for lookup in (1, 2, 3)]

    assert waiting.lasting_beyond(5.0, asked) == {LookupId(3)}
