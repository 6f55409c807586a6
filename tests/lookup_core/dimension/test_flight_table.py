"""Who waits for which key, and which flights newcomers may join."""

from lookup_core.dimension.flight_table import BatchId, Flight, FlightTable, LookupId

ADA, BERT, CORA = LookupId(1), LookupId(2), LookupId(3)


def join(
    table: FlightTable,
    lookup: LookupId,
    keys: list[int],
    positions: list[int],
    *,
    deadline_s: float = 9.0,
) -> tuple[list[Flight], list[int]]:
    """A lookup that waits for keys."""
    return table.join(lookup, keys, positions=positions, deadline_s=deadline_s)


def sent(*flights: Flight) -> None:
    """The keys are at the backend."""
    for flight in flights:
        flight.batch_id = BatchId(1)


def test_first_comer_starts_a_flight() -> None:
    """New keys get new flights; the positions say where their answers belong."""
    table = FlightTable()

    flights, new = join(table, ADA, [7, 8], [3, 5])

    assert new == [0, 1]
    assert [(flight.key_id, flight.waiters) for flight in flights] == [
        (7, [(ADA, 3)]),
        (8, [(ADA, 5)]),
    ]
    table.check_invariants()


def test_others_join_a_flight() -> None:
    """A key on its way is waited for, at every position where it stands."""
    table = FlightTable()
    (first,), _ = join(table, ADA, [7], [0])

    flights, new = join(table, BERT, [7, 8, 7], [0, 1, 2])

    assert new == [1]
    assert flights[0] is flights[2] is first
    assert first.waiters == [(ADA, 0), (BERT, 0), (BERT, 2)]
    assert len(table) == 2


def test_landed_flight_takes_no_newcomer() -> None:
    """Once its key is answered a flight is out of the table."""
    table = FlightTable()
    flights, _ = join(table, ADA, [7], [0])

    table.land(flights)

    assert table.get(7) is None
    assert join(table, BERT, [7], [0])[1] == [0]


def test_detached_flight_takes_no_newcomer() -> None:
    """A read that an invalidation overtook is neither joined nor kept."""
    table = FlightTable()
    (overtaken,), _ = join(table, ADA, [7], [0])
    sent(overtaken)

    table.detach([7, 99])
    (fresh,), new = join(table, BERT, [7], [0])

    assert new == [0]
    assert (overtaken.may_keep, fresh.may_keep) == (False, True)
    assert overtaken.waiters == [(ADA, 0)]


def test_queued_flight_is_not_detached() -> None:
    """What has read nothing yet can not be out of date."""
    table = FlightTable()
    (queued,), _ = join(table, ADA, [7], [0])

    table.detach([7])

    assert table.get(7) is queued
    assert queued.may_keep


def test_all_are_detached_together() -> None:
    """A flush overtakes every read."""
    table = FlightTable()
    flights, _ = join(table, ADA, [7, 8], [0, 1])
    sent(*flights)

    table.detach_all()

    assert (len(table), [flight.may_keep for flight in flights]) == (0, [False, False])


def test_postponed_flight_keeps_the_patient() -> None:
    """Those who wait for another try stay with the flight, and with time newcomers join it."""
    table = FlightTable()
    (flight,), _ = join(table, ADA, [7], [0])
    join(table, BERT, [7], [0])

    table.postpone([flight], {BERT}, until=5.0)
    joined, new = join(table, CORA, [7], [3], deadline_s=5.001)

    assert (joined, new) == ([flight], [])
    assert flight.waiters == [(BERT, 0), (CORA, 3)]


def test_hurried_newcomer_starts_afresh() -> None:
    """Whose time is over when a key is asked again gets a flight that is asked now."""
    table = FlightTable()
    (postponed,), _ = join(table, ADA, [7], [0])
    table.postpone([postponed], {ADA}, until=5.0)

    (fresh,), new = join(table, BERT, [7], [0], deadline_s=5.0)

    assert (new, table.get(7)) == ([0], fresh)
    assert (postponed.may_keep, postponed.waiters) == (False, [(ADA, 0)])
    table.check_invariants()


def test_leaver_takes_nobody_along() -> None:
    """Who leaves is gone from all positions; the flight stays for the others."""
    table = FlightTable()
    join(table, BERT, [7], [0])
    flights, _ = join(table, ADA, [7, 7], [0, 1])

    assert table.leave({ADA}, flights) == []
    assert flights[0].waiters == [(BERT, 0)]
    assert table.get(7) is flights[0]


def test_deserted_flight_is_out_at_once() -> None:
    """A flight without waiters takes no newcomer, and what it brings is not kept."""
    table = FlightTable()
    flights, _ = join(table, ADA, [7], [0])

    assert table.leave({ADA}, flights) == flights
    assert (table.get(7), flights[0].may_keep) == (None, False)


def test_newer_flight_outlives_the_detached_one() -> None:
    """The end of an overtaken read does not end the fresh one of the same key."""
    table = FlightTable()
    (overtaken,), _ = join(table, ADA, [7], [0])
    (lonely,), _ = join(table, ADA, [8], [1])
    sent(overtaken, lonely)
    table.detach_all()
    (fresh, other), _ = join(table, BERT, [7, 8], [0, 1])

    table.land([overtaken])
    table.leave({ADA}, [lonely])

    assert (table.get(7), table.get(8)) == (fresh, other)
    table.check_invariants()
