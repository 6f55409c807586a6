"""When keys leave for the backend, how many at a time, and in whose turn."""

from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension.batcher import QUERY_BYTES, Batcher, ChannelId
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.settings import BatchSettings
from tests.lookup_core.dimension.key_runs import joined_run, keys_of, run_of

A, B, C = ChannelId(1), ChannelId(2), ChannelId(3)


class Queue(Batcher):
    """One with flights of its own."""

    def __init__(self, *, max_keys: int = 100, linger_s: float = 0.0) -> None:
        self.table = FlightTable()
        super().__init__(BatchSettings(max_keys=max_keys, linger_s=linger_s), self.table)

    def put(self, channel: ChannelId, *keys: int, now: float = 0.0) -> None:
        """Queue new keys."""
        self.add(channel, run_of(self.table, *keys), now)


def next_keys(queue: Queue, now: float = 0.0) -> list[int] | None:
    """The keys of the next batch."""
    batch = queue.next_batch(now)
    queue.check_invariants()
    return keys_of(queue.table, batch)


def test_nothing_queued_is_no_batch() -> None:
    """Without keys there is no batch, and nothing to wait for."""
    queue = Queue()

    assert next_keys(queue) is None
    assert queue.next_deadline() is None


def test_keys_leave_at_once() -> None:
    """Without a linger whatever is queued leaves now, together."""
    queue = Queue()
    queue.put(A, 1, 2, now=3.0)
    queue.put(B, 3, now=4.0)

    assert queue.next_deadline() == 3.0
    assert next_keys(queue, now=4.0) == [1, 2, 3]
    assert len(queue) == 0


def test_large_rows_make_small_batches() -> None:
    """Once rows are known as large, fewer keys leave together; the others follow at once."""
    queue = Queue(linger_s=1.0)
    queue.put(A, 1, 2, 3)
    queue.on_rows(
        1, QUERY_BYTES // 4, absent=0
    )  # for the next ones three times as much is reckoned with

    assert [next_keys(queue), next_keys(queue), next_keys(queue)] == [[1], [2], [3]]


def test_linger_counts_from_the_oldest_key() -> None:
    """A batch leaves when its first key has waited for the linger, not before."""
    queue = Queue(linger_s=1.0)
    queue.put(A, 1)
    queue.put(A, 2, now=0.5)

    assert queue.next_deadline() == 1.0
    assert next_keys(queue, now=0.999) is None
    assert next_keys(queue, now=1.0) == [1, 2]


def test_full_batch_does_not_linger() -> None:
    """When there are keys for a whole query, waiting brings nothing."""
    queue = Queue(max_keys=2, linger_s=1.0)
    queue.put(A, 1)
    assert next_keys(queue, now=0.0) is None
    queue.put(A, 2, 3, now=0.25)

    assert queue.next_deadline() == 0.0
    assert next_keys(queue, now=0.25) == [1, 2]


def test_left_over_keys_do_not_wait_anew() -> None:
    """A key that a full batch left behind has lingered already, while no slot was free."""
    queue = Queue(max_keys=2, linger_s=1.0)
    queue.put(A, 1, 2, 3)

    assert next_keys(queue, now=5.0) == [1, 2]
    assert next_keys(queue, now=5.0) == [3]


def test_linger_begins_anew_after_a_pause() -> None:
    """When the queue was empty in between, the next key lingers for its whole time."""
    queue = Queue(linger_s=1.0)
    queue.put(A, 1)
    next_keys(queue, now=1.0)
    queue.put(A, 2, now=7.0)

    assert queue.next_deadline() == 8.0


def test_batch_is_bounded() -> None:
    """A batch has at most `max_keys` keys; a run is cut, and its rest comes next."""
    queue = Queue(max_keys=3)
    queue.put(A, 1, 2, 3, 4, 5)

    assert next_keys(queue) == [1, 2, 3]
    assert len(queue) == 2
    assert next_keys(queue) == [4, 5]


def test_channels_share_a_batch() -> None:
    """A channel with few keys is served beside one with many that came before it."""
    queue = Queue(max_keys=6)
    queue.put(A, *range(100, 200))
    queue.put(B, 1, 2)

    assert next_keys(queue) == [100, 101, 102, 1, 2, 103]


def test_turn_goes_on_in_the_next_batch() -> None:
    """A turn that a full batch cut short is finished first, so that all get the same."""
    queue = Queue(max_keys=5)
    for channel, start in ((A, 10), (B, 20)):
        queue.put(channel, *range(start, start + 5))

    assert next_keys(queue) == [10, 11, 20, 21, 12]  # two each, and half a turn
    assert next_keys(queue) == [13, 22, 23, 14, 24]  # the other half first


def test_more_channels_than_places() -> None:
    """When a batch has fewer places than there are channels, each gets one in its turn."""
    queue = Queue(max_keys=2)
    for channel, start in ((A, 10), (B, 20), (C, 30)):
        queue.put(channel, start, start + 1)

    assert [next_keys(queue), next_keys(queue), next_keys(queue)] == [[10, 20], [30, 11], [21, 31]]


def test_deserted_keys_take_no_place() -> None:
    """A key that nobody waits for is dropped, and the batch is as full as it can be."""
    queue = Queue(max_keys=2)
    run, waiters = joined_run(queue.table, 1, 2, 3, 4)
    queue.add(A, run, now=0.0)
    queue.table.leave({LookupId(1): waiters[[0, 2]]})

    assert next_keys(queue) == [2, 4]
    assert len(queue) == 0
    queue.table.check_invariants(run.flights[[1, 3]])


def test_deserted_keys_are_dropped_before_their_turn() -> None:
    """Channels with keys that somebody waits for keep those, and their turns."""
    queue = Queue()
    for channel, lookup in ((A, 1), (B, 2)):
        run, waiters = joined_run(queue.table, lookup * 10, lookup * 10 + 1, lookup=lookup)
        queue.add(channel, run, now=0.0)
        queue.table.leave({LookupId(lookup): waiters[:lookup]})

    queue.drop_deserted()

    assert (len(queue), next_keys(queue)) == (1, [11])


def test_deserted_queue_is_no_batch() -> None:
    """When nobody waits for anything there is no query."""
    queue = Queue()
    run, waiters = joined_run(queue.table, 1, 2)
    queue.add(A, run, now=0.0)
    queue.table.leave({LookupId(1): waiters})

    assert next_keys(queue) is None
    assert queue.next_deadline() is None


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=12),
    max_keys=st.integers(1, 10),
)
def test_every_key_leaves_once_in_order(sizes: list[tuple[int, int]], max_keys: int) -> None:
    """Whatever comes, each key is in one batch, in its channel's order; only the last has room."""
    queue = Queue(max_keys=max_keys)
    queued: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for number, (channel, size) in enumerate(sizes):
        keys = [channel * 10_000 + number * 100 + at for at in range(size)]
        queued[channel] += keys
        queue.put(ChannelId(channel), *keys)

    batches = []
    while (batch := next_keys(queue)) is not None:
        batches.append(batch)

    left = [key for batch in batches for key in batch]
    assert {c: [key for key in left if key // 10_000 == c] for c in queued} == queued
    assert all(len(batch) == max_keys for batch in batches[:-1])


@given(sizes=st.lists(st.integers(1, 60), min_size=2, max_size=5), max_keys=st.integers(1, 20))
def test_no_channel_gets_far_ahead(sizes: list[int], max_keys: int) -> None:
    """While all have keys waiting, nobody is served more than one turn more than another."""
    queue = Queue(max_keys=max_keys)
    for channel, size in enumerate(sizes):
        queue.put(ChannelId(channel), *range(channel * 100, channel * 100 + size))
    served = [0] * len(sizes)
    turn = max(1, max_keys // len(sizes))

    while (batch := next_keys(queue)) is not None:
        for key in batch:
            served[key // 100] += 1
        if all(count < size for count, size in zip(served, sizes, strict=True)):
            assert max(served) - min(served) <= turn
