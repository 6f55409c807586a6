"""Batches of a quick input, joined."""

import pyarrow as pa
import pytest

from lookup_core.operator.batch_intake import QUICK_S, BatchPool


def batch(*numbers: int) -> pa.RecordBatch:
    """A batch of eight bytes a row."""
    return pa.record_batch([pa.array(numbers, pa.int64())], ["n"])


@pytest.fixture
def pool() -> BatchPool:
    """Room for four rows, or a hundred bytes."""
    return BatchPool(most_rows=4, most_bytes=100)


def taken(pool: BatchPool) -> list[int] | None:
    """The numbers that come out, None without a batch."""
    found = pool.take()
    return None if found is None else found.column("n").to_pylist()


def test_quick_batches_are_joined(pool: BatchPool) -> None:
    """What comes quickly comes out as one batch in its order, as soon as there are enough rows."""
    pool.add(batch(1, 2), waited_s=0.0)
    wanted = [pool.wants_more]
    pool.add(batch(3), waited_s=QUICK_S / 2)  # not yet too long
    pool.add(batch(4, 5), waited_s=0.0)

    assert [*wanted, pool.wants_more] == [True, False]
    assert taken(pool) == [1, 2, 3, 4, 5]


def test_batch_after_pause_goes_on_at_once(pool: BatchPool) -> None:
    """After a slow batch no other is waited for, whatever came before it."""
    pool.add(batch(1), waited_s=0.0)
    pool.add(batch(2), waited_s=QUICK_S)

    assert not pool.wants_more
    assert taken(pool) == [1, 2]


def test_trickle_is_not_waited_for_long() -> None:
    """Batches that come one by one are waited for together no longer than one of them would be."""
    pool = BatchPool(most_rows=1000, most_bytes=10_000)
    taken_in = 0

    while pool.wants_more:
        pool.add(batch(1), waited_s=QUICK_S * 0.3)
        taken_in += 1

    assert taken_in == 4


def test_batches_without_rows_are_enough_some_time() -> None:
    """However quickly empty batches come, the pool does not swallow them for ever."""
    pool = BatchPool(most_rows=3, most_bytes=100)
    taken_in = 0

    while pool.wants_more:
        pool.add(batch(), waited_s=0.0)
        taken_in += 1

    assert (taken_in, taken(pool)) == (3, [])


def test_bytes_bound_the_pool() -> None:
    """Large rows are joined a few at a time only."""
    pool = BatchPool(most_rows=1000, most_bytes=20)
    pool.add(batch(1, 2), waited_s=0.0)
    wanted = [pool.wants_more]
    pool.add(batch(3), waited_s=0.0)

    assert [*wanted, pool.wants_more] == [True, False]


def test_taken_pool_begins_anew(pool: BatchPool) -> None:
    """An empty pool gives nothing and wants the next batch, however long that takes."""
    pool.add(batch(1, 2, 3, 4), waited_s=QUICK_S)
    assert taken(pool) == [1, 2, 3, 4]

    assert not pool
    assert pool.wants_more
    assert taken(pool) is None


def test_lone_batch_is_not_copied(pool: BatchPool) -> None:
    """A batch that stays alone comes out as it went in."""
    alone = batch(1)
    pool.add(alone, waited_s=0.0)

    assert pool.take() is alone
