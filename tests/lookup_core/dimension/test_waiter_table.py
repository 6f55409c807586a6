"""Who waits, where and for what."""

import numpy as np

from lookup_core.dimension.flight_table import WaiterTable

ADA, BERT = 1, -2


def test_waiters_know_their_places() -> None:
    """Each has its lookup, its position there, and its flight."""
    table = WaiterTable()

    ada = table.add(ADA, np.array([7, 8]), np.array([3, 5], np.int32))
    bert = table.add(BERT, np.array([8]), np.array([0], np.int32))

    assert table.lookup_ids(ada).tolist() == [ADA, ADA]
    assert table.lookup_ids(bert).tolist() == [BERT]
    assert (table.positions(ada).tolist(), table.flights(ada).tolist()) == ([3, 5], [7, 8])


def test_closed_waiter_keeps_its_number() -> None:
    """Who waits no longer is nobody, but no other takes the number before it is freed."""
    table = WaiterTable()
    waiters = table.add(ADA, np.array([7, 8]), np.array([3, 5], np.int32))

    table.close(waiters[:1])

    assert table.is_open(waiters).tolist() == [False, True]
    assert table.flights(waiters).tolist() == [7, 8]
    assert len(table) == 2


def test_freed_waiter_is_nobody() -> None:
    """Who held on to the number finds that it is not theirs."""
    table = WaiterTable()
    waiters = table.add(ADA, np.array([7]), np.array([3], np.int32))

    table.free(waiters)

    assert (len(table), table.is_open(waiters).tolist()) == (0, [False])
