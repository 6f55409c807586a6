"""Who waits for which key, and which flights newcomers may join."""

from collections.abc import Sequence

import numpy as np
import pytest

from lookup_core.dimension.flight_table import BatchId, Flight, FlightTable, Joined, LookupId
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.keys.canonical_keys import keys_of_ids

ADA, BERT, CORA = LookupId(1), LookupId(2), LookupId(-3)
QUERY = BatchId(1)


class Table(FlightTable):
    """One that is asked in plain values."""

    def begin(
        self,
        lookup: LookupId,
        keys: Sequence[int],
        positions: Sequence[int],
        *,
        deadline_s: float = 9.0,
    ) -> Joined:
        """A lookup waits for keys at these positions."""
        places = np.array(positions, np.int32)
        return self.join(lookup, keys_of_ids(keys), positions=places, deadline_s=deadline_s)

    def started(self, *keys: int) -> Numbers:
        """New flights that Ada waits for."""
        return self.begin(ADA, keys, range(len(keys))).started

    def sent(self, *keys: int) -> Numbers:
        """The same, at the backend."""
        flights = self.started(*keys)
        self.send(flights, QUERY)
        return flights

    def who_waits(self, flights: Numbers) -> dict[LookupId, list[tuple[int, int]]]:
        """The waiters of flights: by lookup the position, and which of the flights."""
        return {
            lookup: sorted(zip(positions.tolist(), ordinals.tolist(), strict=True))
            for lookup, (positions, ordinals) in self.waiters(flights).items()
        }


@pytest.fixture
def table() -> Table:
    """No flight yet."""
    return Table()


def test_first_comer_starts_a_flight(table: Table) -> None:
    """New keys get new flights; the positions say where their answers belong."""
    joined = table.begin(ADA, [7, 8], [3, 5])

    assert joined.indices.tolist() == [0, 1]
    assert table.key_ids(joined.started) == [7, 8]
    assert table.who_waits(joined.started) == {ADA: [(3, 0), (5, 1)]}
    assert table.get(7) == Flight(None, 1, 0.0)
    table.check_invariants(joined.started)


def test_others_join_a_flight(table: Table) -> None:
    """A key on its way is waited for, at every position where it stands."""
    first = table.sent(7)

    joined = table.begin(BERT, [7, 8, 7], [0, 1, 2])

    assert (joined.indices.tolist(), table.key_ids(joined.started)) == ([1], [8])
    assert table.who_waits(first) == {ADA: [(0, 0)], BERT: [(0, 0), (2, 0)]}
    assert table.get(7) == Flight(QUERY, 3, 0.0)
    assert (len(table), table.may_join([7, 9, 8]).tolist()) == (2, [True, False, True])
    table.check_invariants(np.concatenate((first, joined.started)))


def test_same_key_twice_is_one_flight(table: Table) -> None:
    """Of a new key that stands there several times, the first place starts the flight."""
    joined = table.begin(ADA, [8, 7, 7, 8, 7], range(5))

    assert joined.indices.tolist() == [0, 1]
    assert table.who_waits(joined.started) == {ADA: [(0, 0), (1, 1), (2, 1), (3, 0), (4, 1)]}
    table.check_invariants(joined.started)


def test_keys_of_bytes_are_as_good(table: Table) -> None:
    """A key is what its bytes are, to the last of them."""
    places = np.arange(3, dtype=np.int32)

    keys = keys_of_ids([b"a", b"a\0", b""])
    joined = table.join(ADA, keys, positions=places, deadline_s=9.0)

    assert table.key_ids(joined.started) == [b"a", b"a\0", b""]
    assert table.may_join([b"a\0", b"\0"]).tolist() == [True, False]


def test_ended_flight_takes_no_newcomer(table: Table) -> None:
    """Once its key is answered a flight is out of the table, and nobody waits for it."""
    flights = table.sent(7)

    table.end(flights)

    assert (table.get(7), len(table)) == (None, 0)
    assert table.begin(BERT, [7], [0]).indices.tolist() == [0]


def test_detached_flight_takes_no_newcomer(table: Table) -> None:
    """A read that an invalidation overtook is neither joined nor kept."""
    overtaken = table.sent(7)

    table.detach(table.with_hashes(np.array([7, 99, 7], np.uint64)))
    fresh = table.begin(BERT, [7], [0])

    assert fresh.indices.tolist() == [0]
    assert table.may_keep(np.concatenate((overtaken, fresh.started))).tolist() == [False, True]
    assert table.who_waits(overtaken) == {ADA: [(0, 0)]}


def test_queued_flight_is_not_detached(table: Table) -> None:
    """What has read nothing yet can not be out of date."""
    queued = table.started(7)

    table.detach(queued)

    assert table.get(7) == Flight(None, 1, 0.0)
    assert table.may_keep(queued).all()


def test_all_are_detached_together(table: Table) -> None:
    """A flush overtakes every read."""
    flights = table.sent(7, 8)

    table.detach(table.with_hashes(None))

    assert (len(table), table.may_keep(flights).tolist()) == (0, [False, False])


def test_flights_are_found_by_hash(table: Table) -> None:
    """Whoever waits for a changed key is found, in a detached flight, too; who left is not."""
    overtaken = table.sent(7)
    table.detach(overtaken)
    ended = table.sent(8)
    table.end(ended)
    fresh = table.begin(BERT, [7, 9], [0, 1]).started

    found = table.with_hashes(np.array([7, 8], np.uint64))

    assert set(found.tolist()) == {int(overtaken[0]), int(fresh[0])}
    assert table.hashes(found).tolist() == [7, 7]


def test_flights_tell_their_queries(table: Table) -> None:
    """Each query is told once; what is in none is told as such."""
    flights = np.concatenate((table.sent(7, 8), table.started(9)))

    assert table.batch_ids(flights) == [BatchId(0), QUERY]


def test_postponed_flight_keeps_the_patient(table: Table) -> None:
    """Those who wait for another try stay with the flight, and with time newcomers join it."""
    flights = table.sent(7)
    table.begin(BERT, [7], [0])

    table.postpone(flights, {BERT}, until=5.0)
    joined = table.begin(CORA, [7], [3], deadline_s=5.001)

    assert joined.started.size == 0
    assert table.who_waits(flights) == {BERT: [(0, 0)], CORA: [(3, 0)]}
    assert table.get(7) == Flight(QUERY, 2, 5.0)
    table.check_invariants(flights)


def test_restarted_flight_takes_the_hurried(table: Table) -> None:
    """Once a key is asked again, it takes newcomers however short their time is."""
    flights = table.sent(7)
    table.postpone(flights, {ADA}, until=5.0)

    table.restart(flights)

    assert table.begin(BERT, [7], [0], deadline_s=0.1).started.size == 0


def test_hurried_newcomer_starts_afresh(table: Table) -> None:
    """Whose time is over when a key is asked again gets a flight that is asked now."""
    postponed = table.sent(7)
    table.postpone(postponed, {ADA}, until=5.0)

    fresh = table.begin(BERT, [7, 7], [0, 1], deadline_s=5.0)

    assert fresh.indices.tolist() == [0]
    assert table.get(7) == Flight(None, 2, 0.0)
    assert not table.may_keep(postponed).any()
    assert table.who_waits(postponed) == {ADA: [(0, 0)]}
    table.check_invariants(np.concatenate((postponed, fresh.started)))


def test_leaver_takes_nobody_along(table: Table) -> None:
    """Who leaves is gone from all positions; the flight stays for the others."""
    flights = table.sent(7)
    bert = table.begin(BERT, [7, 7], [0, 1])

    assert table.leave({BERT: bert.waiters}) == set()
    assert table.who_waits(flights) == {ADA: [(0, 0)]}
    assert table.get(7) == Flight(QUERY, 1, 0.0)


def test_deserted_flight_is_out_at_once(table: Table) -> None:
    """A flight without waiters takes no newcomer, what it brings is not kept; its query is told."""
    ada, bert = table.begin(ADA, [7, 8], [0, 1]), table.begin(BERT, [8, 9], [0, 1])
    table.send(ada.started, QUERY)

    assert table.leave({ADA: ada.waiters, BERT: bert.waiters[1:]}) == {QUERY}
    assert table.may_join([7, 8, 9]).tolist() == [False, True, False]
    assert table.may_keep(ada.started).tolist() == [False, True]
    table.check_invariants(np.concatenate((ada.started, bert.started)))


def test_answered_waiter_leaves_only_once(table: Table) -> None:
    """Numbers of waiters that are others' by now mean nothing to those who had them."""
    ada = table.begin(ADA, [7, 8], [0, 1])
    table.end(ada.started[:1])
    bert = table.begin(BERT, [9], [0])

    assert set(bert.waiters.tolist()) <= set(ada.waiters.tolist())
    positions, keys = table.left_open(ADA, ada.waiters)
    assert (positions.tolist(), keys) == ([1], [8])
    table.leave({ADA: ada.waiters})
    assert table.who_waits(bert.started) == {BERT: [(0, 0)]}


def test_newer_flight_outlives_the_detached_one(table: Table) -> None:
    """The end of an overtaken read does not end the fresh one of the same key."""
    ada = table.begin(ADA, [7, 8], [0, 1])
    table.send(ada.started, QUERY)
    table.detach(ada.started)
    fresh = table.begin(BERT, [7, 8], [0, 1])

    table.leave({ADA: ada.waiters})
    table.end(ada.started)

    assert table.may_join([7, 8]).tolist() == [True, True]
    table.check_invariants(fresh.started)


def test_leavers_do_not_add_up(table: Table) -> None:
    """Where somebody always waits, who came and left is forgotten all the same."""
    flights = table.sent(7)

    for lookup in range(10, 200):
        passing = table.begin(LookupId(lookup), [7], [0])
        table.leave({LookupId(lookup): passing.waiters})

    assert table.who_waits(flights) == {ADA: [(0, 0)]}
    assert len(table._waiters) < 20
    table.check_invariants(flights)
