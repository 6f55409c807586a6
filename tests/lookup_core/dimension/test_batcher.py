"""When keys leave for the backend, how many at a time, and in whose turn."""

from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension.batcher import Batcher, ChannelId
from lookup_core.settings import BatchSettings
from tests.lookup_core.dimension.key_runs import keys_of, run_of

A, B, C = ChannelId(1), ChannelId(2), ChannelId(3)


def batcher(*, max_keys: int = 100, linger_s: float = 0.0) -> Batcher:
    """A batcher without keys."""
    return Batcher(BatchSettings(max_keys=max_keys, linger_s=linger_s))


def next_keys(queue: Batcher, now: float = 0.0) -> list[int] | None:
    """The keys of the next batch."""
    batch = queue.next_batch(now)
    queue.check_invariants()
    return keys_of(batch)


def test_nothing_queued_is_no_batch() -> None:
    """Without keys there is no batch, and nothing to wait for."""
    queue = batcher()

    assert next_keys(queue) is None
    assert queue.next_deadline() is None


def test_keys_leave_at_once() -> None:
    """Without a linger whatever is queued leaves now, together."""
    queue = batcher()
    queue.add(A, run_of(1, 2), now=3.0)
    queue.add(B, run_of(3), now=4.0)

    assert queue.next_deadline() == 3.0
    assert next_keys(queue, now=4.0) == [1, 2, 3]
    assert len(queue) == 0


def test_linger_counts_from_the_oldest_key() -> None:
    """A batch leaves when its first key has waited for the linger, not before."""
    queue = batcher(linger_s=1.0)
    queue.add(A, run_of(1), now=0.0)
    queue.add(A, run_of(2), now=0.5)

    assert queue.next_deadline() == 1.0
    assert next_keys(queue, now=0.999) is None
    assert next_keys(queue, now=1.0) == [1, 2]


def test_full_batch_does_not_linger() -> None:
    """When there are keys for a whole query, waiting brings nothing."""
    queue = batcher(max_keys=2, linger_s=1.0)
    queue.add(A, run_of(1), now=0.0)
    assert next_keys(queue, now=0.0) is None
    queue.add(A, run_of(2, 3), now=0.25)

    assert queue.next_deadline() == 0.0
    assert next_keys(queue, now=0.25) == [1, 2]


def test_left_over_keys_do_not_wait_anew() -> None:
    """A key that a full batch left behind has lingered already, while no slot was free."""
    queue = batcher(max_keys=2, linger_s=1.0)
    queue.add(A, run_of(1, 2, 3), now=0.0)

    assert next_keys(queue, now=5.0) == [1, 2]
    assert next_keys(queue, now=5.0) == [3]


def test_linger_begins_anew_after_a_pause() -> None:
    """When the queue was empty in between, the next key lingers for its whole time."""
    queue = batcher(linger_s=1.0)
    queue.add(A, run_of(1), now=0.0)
    next_keys(queue, now=1.0)
    queue.add(A, run_of(2), now=7.0)

    assert queue.next_deadline() == 8.0


def test_batch_is_bounded() -> None:
    """A batch has at most `max_keys` keys; a run is cut, and its rest comes next."""
    queue = batcher(max_keys=3)
    queue.add(A, run_of(1, 2, 3, 4, 5), now=0.0)

    assert next_keys(queue) == [1, 2, 3]
    assert len(queue) == 2
    assert next_keys(queue) == [4, 5]


def test_channels_share_a_batch() -> None:
    """A channel with few keys is served beside one with many that came before it."""
    queue = batcher(max_keys=6)
    queue.add(A, run_of(*range(100, 200)), now=0.0)
    queue.add(B, run_of(1, 2), now=0.0)

    assert next_keys(queue) == [100, 101, 102, 1, 2, 103]


def test_turn_goes_on_in_the_next_batch() -> None:
    """A turn that a full batch cut short is finished first, so that all get the same."""
    queue = batcher(max_keys=5)
    for channel, start in ((A, 10), (B, 20)):
        queue.add(channel, run_of(*range(start, start + 5)), now=0.0)

    assert next_keys(queue) == [10, 11, 20, 21, 12]  # two each, and half a turn
    assert next_keys(queue) == [13, 22, 23, 14, 24]  # the other half first


def test_more_channels_than_places() -> None:
    """When a batch has fewer places than there are channels, each gets one in its turn."""
    queue = batcher(max_keys=2)
    for channel, start in ((A, 10), (B, 20), (C, 30)):
        queue.add(channel, run_of(start, start + 1), now=0.0)

    assert [next_keys(queue), next_keys(queue), next_keys(queue)] == [[10, 20], [30, 11], [21, 31]]


def test_deserted_keys_take_no_place() -> None:
    """A key that nobody waits for is dropped, and the batch is as full as it can be."""
    queue = batcher(max_keys=2)
    run = run_of(1, 2, 3, 4)
    run.flights[0].waiters.clear()
    run.flights[2].waiters.clear()
    queue.add(A, run, now=0.0)

    assert next_keys(queue) == [2, 4]
    assert len(queue) == 0


def test_deserted_queue_is_no_batch() -> None:
    """When nobody waits for anything there is no query."""
    queue = batcher()
    run = run_of(1, 2)
    for flight in run.flights:
        flight.waiters.clear()
    queue.add(A, run, now=0.0)

    assert next_keys(queue) is None
    assert queue.next_deadline() is None


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=12),
    max_keys=st.integers(1, 10),
)
def test_every_key_leaves_once_in_order(sizes: list[tuple[int, int]], max_keys: int) -> None:
    """Whatever comes, each key is in one batch, in its channel's order; only the last has room."""
    queue = batcher(max_keys=max_keys)
    queued: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for number, (channel, size) in enumerate(sizes):
        keys = [channel * 10_000 + number * 100 + at for at in range(size)]
        queued[channel] += keys
        queue.add(ChannelId(channel), run_of(*keys), now=0.0)

    batches = []
    while (batch := next_keys(queue)) is not None:
        batches.append(batch)

    left = [key for batch in batches for key in batch]
    assert {c: [key for key in left if key // 10_000 == c] for c in queued} == queued
    assert all(len(batch) == max_keys for batch in batches[:-1])


@given(sizes=st.lists(st.integers(1, 60), min_size=2, max_size=5), max_keys=st.integers(1, 20))
def test_no_channel_gets_far_ahead(sizes: list[int], max_keys: int) -> None:
    """While all have keys waiting, nobody is served more than one turn more than another."""
    queue = batcher(max_keys=max_keys)
    for channel, size in enumerate(sizes):
        queue.add(ChannelId(channel), run_of(*([channel] * size)), now=0.0)
    served = [0] * len(sizes)
    turn = max(1, max_keys // len(sizes))

    while (batch := next_keys(queue)) is not None:
        for channel in batch:
            served[channel] += 1
        if all(count < size for count, size in zip(served, sizes, strict=True)):
            assert max(served) - min(served) <= turn
