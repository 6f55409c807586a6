"""Batches: which keys share a query, when it is sent, and how channels take turns."""

import weakref

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from lookup_core.dimension.dimension_events import (
    MAX_QUERY_ROWS_BYTES,
    ChannelId,
    LookupId,
    LookupRequest,
)
from lookup_core.errors import ErrorCode
from lookup_core.keys.typed_keys import TypedKeys
from tests.lookup_core.dimension.scenario import (
    RETRY_S,
    SCHEMA,
    Order,
    Result,
    Scenario,
    ended,
    settings,
)


def waiting_keys(max_keys: int, *keys_of: range) -> Scenario:
    """One slot; each channel has keys that wait, in the order of the channels."""
    scenario = Scenario(settings(max_keys=max_keys, max_in_flight=1))
    for channel, keys in enumerate(keys_of):
        scenario.look_up(channel + 1, *keys, channel=channel)
    return scenario


def drain(scenario: Scenario) -> list[list[int]]:
    """The keys of each query, sent one after the other; none has rows."""
    batches = []
    while (order := scenario.send()) is not None:
        batches.append(order.keys)
        scenario.land(order.batch)
    return batches


def test_keys_gather_while_slots_are_busy() -> None:
    """With a free slot a query is sent at once; keys that come later share the next ones."""
    scenario = Scenario(settings(max_keys=2, max_in_flight=2))
    scenario.look_up(1, *range(5))
    assert scenario.send_all() == [[0, 1], [2, 3]]
    scenario.look_up(2, 5)

    assert (scenario.statistics.queries_in_flight, scenario.statistics.queued_keys) == (2, 2)
    scenario.land(1)
    assert scenario.send_all() == [[4, 5]]


def test_keys_gather_while_the_rate_is_used_up() -> None:
    """Keys beyond the rate wait for the next query, which all of them share."""
    scenario = Scenario(settings(max_queries_per_s=4))
    scenario.query(1, 1)
    scenario.look_up(2, 2)
    scenario.look_up(3, 3)

    due_at = scenario.state.next_query_at()
    sent = scenario.send_all()
    assert due_at == pytest.approx(scenario.now + 0.25, abs=1e-5)
    assert due_at is not None
    assert sent == []
    scenario.now = due_at
    assert scenario.send_all() == [[2, 3]]


def test_retries_count_for_the_rate() -> None:
    """The retry of a failed query waits for its turn, too."""
    scenario = Scenario(settings(retries=1, max_queries_per_s=1))
    scenario.fail(scenario.query(1, 1))
    scenario.look_up(2, 2)
    sent = []
    for _ in range(3):
        scenario.now += RETRY_S + 1e-5  # a second
        sent.append(scenario.send_all())

    assert sorted(sent) == [[], [[1]], [[2]]]


def test_rate_postpones_no_retry_beyond_a_deadline() -> None:
    """If the rate allows no retry in their time, lookups end with the error at once."""
    scenario = Scenario(settings(max_queries_per_s=1))
    query = scenario.query(1, 1, deadline=0.5)

    assert scenario.fail(query, ErrorCode.CONNECTION_LOST) == ended(1, "error connection_lost")


def test_retries_and_new_keys_alternate() -> None:
    """New keys and due retries take turns, and neither waits for all of the other."""
    scenario = Scenario(settings(max_keys=4, max_in_flight=1))
    first = scenario.query(1, 1, 2, 3, 4)
    scenario.look_up(2, 5, 6, 7, 8, 9, 10)
    scenario.fail(first, ErrorCode.KEY_REJECTED)

    assert drain(scenario) == [[1, 2], [5, 6, 7, 8], [3, 4], [9, 10]]


def test_linger_counts_from_the_oldest_key() -> None:
    """A batch is sent when its first key has waited for the linger, not before."""
    scenario = Scenario(settings(linger_s=0.5))
    scenario.now = 1.0
    scenario.look_up(1, 7)
    scenario.now = 1.25
    scenario.look_up(2, 8)

    assert (scenario.send(), scenario.next_deadline) == (None, 1.5)
    scenario.now = 1.499
    assert scenario.send() is None
    scenario.now = 1.5
    assert scenario.send() == Order(1, [7, 8])
    scenario.now = 7.0
    scenario.look_up(3, 9)
    assert scenario.next_deadline == 7.5  # the queue was empty: the linger starts again


def test_full_batch_does_not_linger() -> None:
    """A full batch is sent at once; the keys that it leaves behind have lingered already."""
    scenario = Scenario(settings(max_keys=2, max_in_flight=1, linger_s=1.0))
    scenario.look_up(1, 1)
    assert scenario.send() is None
    scenario.now = 0.25
    scenario.look_up(2, 2, 3)

    assert scenario.next_deadline == 0.0
    first = scenario.resend()
    scenario.now = 5.0
    scenario.land(first)
    assert scenario.send() == Order(2, [3])


def test_large_rows_make_small_queries() -> None:
    """Once rows are known to be large, fewer keys share a query, and they do not linger."""
    scenario = Scenario(settings(linger_s=1.0))
    scenario.look_up(1, 1)
    scenario.now = 1.0
    batch = scenario.resend()
    scenario.look_up(2, 2, 3, 4)
    scenario.land(batch, {1: "x" * (MAX_QUERY_ROWS_BYTES // 4)})

    assert scenario.send_all() == [[2], [3], [4]]


def test_query_size_follows_its_time() -> None:
    """Each quick full query doubles the keys; one slower than an eighth of the timeout halves them.

    There are never fewer than 500 keys.
    """
    scenario = Scenario(settings(max_keys=1_500, max_in_flight=1, max_waiting_keys=5_000))
    scenario.look_up(1, *range(4_750))
    sizes = []
    for seconds in (0.25, 0.25, 0.26, 0.26, 0.26, 0.26):
        order = scenario.send()
        assert order is not None
        sizes.append(len(order.keys))
        scenario.now += seconds
        scenario.land(order.batch)

    assert sizes == [500, 1_000, 1_500, 750, 500, 500]


def test_timeouts_make_queries_small() -> None:
    """After a query that timed out, the next ones have at most 500 keys again."""
    scenario = Scenario(settings(max_keys=2_000, max_in_flight=1, max_waiting_keys=10_000))
    scenario.land(scenario.query(1, *range(500)))
    late = scenario.query(2, *range(500, 1_500))
    scenario.look_up(3, *range(2_000, 4_000))

    scenario.fail(late, ErrorCode.TIMEOUT)

    assert late == 2
    assert [len(keys) for keys in drain(scenario)][:2] == [500, 1_000]


def test_missing_rows_enlarge_queries_again() -> None:
    """One huge row does not shrink the queries for keys without rows forever."""
    scenario = Scenario(settings(max_keys=8, max_in_flight=1, max_waiting_keys=10_000))
    scenario.land(scenario.query(1, 0), {0: "x" * MAX_QUERY_ROWS_BYTES})
    scenario.look_up(2, *range(1, 400))

    sizes = [len(keys) for keys in drain(scenario)]

    assert sizes[0] == 1
    assert sizes.index(8) < 200


@pytest.mark.parametrize(
    ("max_keys", "channels", "batches"),
    [
        (6, [range(100, 109), range(1, 3)], [[100, 101, 102, 1, 2, 103], [*range(104, 109)]]),
        (5, [range(10, 15), range(20, 25)], [[10, 11, 20, 21, 12], [13, 22, 23, 14, 24]]),
        (2, [range(10, 12), range(20, 22), range(30, 32)], [[10, 20], [30, 11], [21, 31]]),
    ],
    ids=["a small channel", "a turn of two batches", "fewer places than channels"],
)
def test_channels_take_turns(
    max_keys: int, channels: list[range], batches: list[list[int]]
) -> None:
    """Each channel gets an equal share of a batch in its turn; a turn may span two batches."""
    assert drain(waiting_keys(max_keys, *channels)) == batches


def test_former_waiters_are_forgotten() -> None:
    """The waiters that came and left do not add up while one waiter stays."""
    scenario = Scenario()
    batch = scenario.query(1, 7)
    for lookup in range(10, 100):
        scenario.look_up(lookup, 7)
        scenario.leave(lookup)

    assert len(scenario.state.in_flight._flights._waiters) < 20
    assert scenario.land(batch, {7: "Ada"}) == ended(1, "fetched Ada")


def submit_numbers(scenario: Scenario, count: int) -> "weakref.ref[npt.NDArray[np.int64]]":
    """Look up the keys 0 to `count` - 1; returns a reference to the memory of their frame."""
    values = np.arange(count)
    keys = TypedKeys(pa.record_batch([pa.array(values)], SCHEMA.key), np.zeros(0, np.int32), {})
    submitted = LookupRequest(LookupId(1), ChannelId(1), keys, ("name",), 100.0)
    scenario.state.submit(submitted, scenario.now)
    return weakref.ref(values)


def test_few_queued_keys_free_their_frame() -> None:
    """A queued key does not keep the memory of a lookup whose other keys are answered."""
    scenario = Scenario(settings(max_keys=10_000, max_waiting_keys=10_000))
    scenario.look_up(9, *range(9_999))
    while order := scenario.send():
        scenario.land(order.batch, dict.fromkeys(order.keys, "x"))

    frame = submit_numbers(scenario, 10_000)

    assert frame() is None
    last = scenario.send()
    assert last is not None
    assert last.keys == [9_999]


def test_answered_keys_of_queue_free_memory() -> None:
    """A lookup that is answered query by query keeps the memory of its last keys only."""
    scenario = Scenario(settings(max_keys=9_000, max_in_flight=1, max_waiting_keys=10_000))
    frame = submit_numbers(scenario, 10_000)
    for batch, keys in enumerate((500, 1_000, 2_000, 4_000), 1):
        order = scenario.send()
        assert order is not None
        assert (order.batch, len(order.keys)) == (batch, keys)
        scenario.land(batch, dict.fromkeys(order.keys, "x"))

    waiting = scenario.state.in_flight.lookups[LookupId(1)]
    assert (frame(), len(waiting.waiters)) == (None, 2_500)
    assert scenario.send() == Order(5, [*range(7_500, 10_000)])


def test_deferred_keys_are_queried_at_once() -> None:
    """Keys that the rows of others kept out are queried next, in batches of that many keys."""
    scenario = Scenario(settings())
    batch = scenario.query(1, 1, 2, 3, 4, 5)

    first = scenario.land(batch, {1: "a", 2: "b", 3: "only a part"}, deferred=[3, 4, 5])
    scenario.look_up(2, 4)
    orders = [*iter(scenario.send, None)]

    assert first == Result({1: {0: "fetched a", 1: "fetched b"}}, ended=[])
    assert orders == [Order(2, [3, 4]), Order(3, [5])]
    assert scenario.statistics.retries == 0
    both = {1: {2: "fetched c", 3: "fetched d"}, 2: {0: "fetched d"}}
    assert scenario.land(2, {3: "c", 4: "d"}) == Result(both, ended=[2])
    assert scenario.land(3, {5: "e"}) == Result({1: {4: "fetched e"}}, ended=[1])
    assert scenario.look_up(3, 1, 3, 5) == {0: "hit a", 1: "hit c", 2: "hit e"}


@pytest.mark.parametrize(
    ("large", "queries"),
    [(range(3), 3), (range(10), 9), (range(200), 105)],
    ids=["three", "ten", "all"],
)
def test_large_rows_delay_few_queries(large: range, queries: int) -> None:
    """Keys that were deferred with a large row are queried in batches again."""
    scenario = Scenario(settings(max_in_flight=1))
    scenario.look_up(1, *range(200))
    sent = 0

    while (order := scenario.send()) is not None:
        sizes = np.cumsum([0.4 if key in large else 0.001 for key in order.keys])
        fitting = int(np.searchsorted(sizes, 1.0))
        found = dict.fromkeys(order.keys[:fitting], "x")
        scenario.land(order.batch, found, deferred=order.keys[fitting:])
        sent += 1

    assert (sent, scenario.statistics.waiting_keys) == (queries, 0)


def test_deferred_keys_without_lookups_end() -> None:
    """A deferred key that no lookup waits for any more is not queried."""
    scenario = Scenario(settings())
    scenario.look_up(1, 1)
    scenario.look_up(2, 2)
    batch = scenario.resend()
    scenario.leave(2)

    scenario.land(batch, {1: "a"}, deferred=[2])

    assert scenario.send() is None
