"""Records in flight: runs that enter, rows that leave, bounds in records and bytes."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome
from lookup_core.errors import ErrorCode
from lookup_core.event_time.record_watermarks import Cut
from lookup_core.operator.batch_intake import BatchIntake, BatchPool, ByteBudget
from lookup_core.operator.element_queue import ElementQueue, OrderedQueue
from lookup_core.operator.encoded_keys import encoded_keys
from lookup_core.operator.records_in_flight import (
    Failed,
    Progress,
    RecordsInFlight,
    RunRows,
    RunTimes,
)
from lookup_core.operator.run_answers import RunAnswers
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from lookup_core.protocol.sent_lookups import RunId
from tests.lookup_core.operator.operator_answers import COLUMNS, failed, hits, missing, with_rows

KEY = pa.schema({"id": pa.int64()})

NewQueue = Callable[[int], ElementQueue]


def in_flight(
    capacity: int, *, max_bytes: int = 10_000, mode: NewQueue = OrderedQueue
) -> RecordsInFlight:
    """No records yet."""
    return RecordsInFlight(mode(capacity), ByteBudget(max_bytes))


def records(*ids: int) -> pa.RecordBatch:
    """Records with a key; eight bytes each."""
    return pa.record_batch([pa.array(ids, pa.int64())], KEY)


def run_rows(part: pa.RecordBatch, *answers: RunAnswers) -> RunRows:
    """All records of a run."""
    return RunRows(part, answers, np.arange(part.num_rows))


def put(
    flight: RecordsInFlight,
    batch: pa.RecordBatch,
    intake: BatchIntake | None = None,
    *,
    deadline_s: float = 9.0,
) -> RunId:
    """Put the next run of a batch, for which there is room."""
    run = flight.next_run(intake or BatchIntake(batch.num_rows, []), row_bytes=8)
    assert run is not None
    part = batch.slice(run.rows.start, run.rows.stop - run.rows.start)
    encoded = encoded_keys(part.columns, KEY)
    answers = RunAnswers(part.num_rows, COLUMNS)
    answers.add_keys(np.arange(part.num_rows), encoded.key_of_row, len(encoded))
    hashes = part.column(0).to_numpy().astype(np.uint64)
    times = RunTimes(deadline_s)
    run_id = flight.put_run(run, run_rows(part, answers), times, key_hashes=hashes)
    flight.check_invariants()
    return run_id


def let_in(flight: RecordsInFlight, intake: BatchIntake, row_bytes: int = 8) -> int | None:
    """How many rows of a batch go in next; None while it waits for room."""
    run = flight.next_run(intake, row_bytes=row_bytes)
    return None if run is None else run.rows.stop - run.rows.start


def large(*positions: int) -> Answer:
    """A row of a thousand bytes for each of these keys."""
    names, sizes = ["x" * 996] * len(positions), pa.array([0] * len(positions), pa.int32())
    return with_rows([*positions], pa.record_batch([pa.array(names), sizes], COLUMNS))


def expired(flight: RecordsInFlight, now_s: float) -> list[Failed]:
    """The lookups that fail when the deadline passes; their other rows have NULLs as keys."""
    found = []
    for run_id in flight.expire(now_s):
        for lookup in range(len(flight.run_of(run_id).answers)):
            unsent = flight.unsent(run_id, lookup)
            if len(unsent.rows):
                assert flight.miss(unsent) == Progress()
            found.append(flight.give_up(run_id, lookup))
    flight.check_invariants()
    return [each for each in found if each is not None]


def left(flight: RecordsInFlight) -> list[list[int]]:
    """The ids of the records that leave now, in their batches."""
    leaving = [
        leave.records.column(0).take(pa.array(leave.rows)).to_pylist() for leave in flight.leaving()
    ]
    flight.check_invariants()
    return leaving


# (mode, {ids: rows before its watermarks}, answers (run, key) before each leaving, batches)
@pytest.mark.parametrize(
    ("mode", "batches", "answered", "expected"),
    [
        (
            OrderedQueue,
            {(7, 8, 7, 9): ()},
            [[(0, 1)], [(0, 0)], [(0, 2)]],
            [[], [[7, 8, 7]], [[9]]],
        ),
        (
            UnorderedQueue,
            {(7, 8, 9): (), (5,): ()},
            [[(0, 2), (0, 0), (1, 0)], [(0, 1)]],
            [[[7, 9], [5]], [[8]]],
        ),
        (
            UnorderedQueue,
            {(1, 2, 3): (1, 2, 3)},
            [[(0, 2)], [(0, 0)], [(0, 1)]],
            [[], [[1]], [[2, 3]]],
        ),
        (
            KeyOrderedQueue,
            {(1, 2): (1,), (2,): ()},
            [[(1, 0), (0, 0)], [(0, 1)]],
            [[[1]], [[2], [2]]],
        ),
    ],
    ids=["rows of a key", "one batch", "watermarks", "keys of slices"],
)
def test_answered_rows_leave_in_batches(
    mode: NewQueue,
    batches: dict[tuple[int, ...], tuple[int, ...]],
    answered: list[list[tuple[int, int]]],
    expected: list[list[list[int]]],
) -> None:
    """Answered rows of one run leave in one batch, in the order of mode and watermarks."""
    flight = in_flight(10, mode=mode)
    runs = [
        put(flight, records(*ids), BatchIntake(len(ids), [Cut(rows, rows) for rows in cuts]))
        for ids, cuts in batches.items()
    ]

    found = []
    for answers in answered:
        for run, key in answers:
            assert flight.store(runs[run], 0, missing(key)) == Progress()
        found.append(left(flight))

    assert found == expected
    assert not flight.size


def test_late_answers_change_nothing() -> None:
    """An answer to an ended run, to one that left, or to an unknown one is ignored."""
    flight = in_flight(10)
    run_id = put(flight, records(7, 8, 7))

    failures = [flight.store(run_id, 0, answer) for answer in (failed(0), failed(0), missing(1))]

    error = Failed(run_id, 0, Outcome.ERROR, 2, (ErrorCode.TYPE,))
    assert failures == [Progress((error,)), Progress(), Progress()]
    assert left(flight) == [[7, 8, 7]]
    assert flight.store(run_id, 0, missing(0)) == Progress()
    assert flight.store(RunId(99), 0, missing(0)) == Progress()
    assert left(flight) == []


def test_expired_records_are_counted_once() -> None:
    """Expired records are counted as timeouts of their run, once, and leave."""
    flight = in_flight(10)
    run_id = put(flight, records(7, 8, 8), deadline_s=5.0)
    flight.store(run_id, 0, missing(0))
    assert flight.queue.next_deadline() == 5.0

    found = [expired(flight, now_s) for now_s in (4.9, 5.0, 5.0)]

    late = Failed(run_id, 0, Outcome.TIMEOUT, 2, (ErrorCode.TIMEOUT,), has_expired=True)
    assert found == [[], [late], []]
    assert left(flight) == [[7, 8, 8]]


def test_failed_keys_have_a_record_each() -> None:
    """The first record of each failed key is found, up to a bound, while the records are there."""
    flight = in_flight(10)
    run_id = put(flight, records(7, 8, 8, 9, 9))
    flight.store(run_id, 0, missing(0))

    (failure,) = expired(flight, 9.0)

    found = [flight.failed_rows(failure, most=most).rows.tolist() for most in (1, 4)]
    assert found == [[1], [1, 3]]


def test_quarter_of_capacity_is_worth_a_lookup() -> None:
    """Rows wait until a quarter of the capacity is free, or all that is left of the batch fits."""
    flight, intake = in_flight(8), BatchIntake(20, [])
    first = put(flight, records(*range(20)), intake)
    found = [let_in(flight, intake)]

    for position in (0, 1):
        flight.store(first, 0, missing(position))
        left(flight)
        found.append(let_in(flight, intake))

    assert found == [None, None, 2]
    assert let_in(flight, BatchIntake(1, [])) == 1
    assert let_in(in_flight(1), BatchIntake(2, [])) == 1


@pytest.mark.parametrize(("row_bytes", "rows"), [(0, 8), (40, 2), (50, 2), (51, 1), (1_000, 1)])
def test_bytes_bound_the_rows(row_bytes: int, rows: int) -> None:
    """Large records go in a few at a time, and a single one always."""
    assert let_in(in_flight(8, max_bytes=100), BatchIntake(8, []), row_bytes) == rows


@pytest.mark.parametrize("small", [0, 1, 10, 100])
def test_first_answers_are_bounded_in_bytes(small: int) -> None:
    """Before 1,000 answers have come, a few small ones let in only four times as many rows."""
    budget = ByteBudget(64 * 2**20)
    if small:
        budget.on_answered(small, answer_bytes=0)
    first = budget.rows_that_fit(100)
    budget.on_answered(1, answer_bytes=8 * 2**20)

    assert first == 8 + 4 * small
    assert budget.rows_that_fit(0) == min(8 * (small + 1), 8 + 4 * (small + 1))
    budget.on_answered(999, answer_bytes=0)
    assert budget.rows_that_fit(100) > 1_000


def test_growing_answers_are_noticed() -> None:
    """The last answers count most: many small ones before do not hide that they grow."""
    budget = ByteBudget(1_000_000)
    budget.on_answered(1_000_000, answer_bytes=100_000_000)

    budget.on_answered(10_000, answer_bytes=1_000_000_000)

    assert 10 <= budget.rows_that_fit(0) <= 12


@pytest.mark.parametrize(("answer", "rows", "rest"), [(large(0, 1), 9, 5), (large(0), 16, 12)])
def test_answer_sizes_are_learnt(answer: Answer, rows: int, rest: int) -> None:
    """The mean size of answers, of those that timed out too, bounds the rows in flight."""
    flight = in_flight(100)
    run_id = put(flight, records(7, 8), deadline_s=5.0)

    flight.store(run_id, 0, answer)
    expired(flight, 5.0)

    assert left(flight) == [[7, 8]]
    assert let_in(flight, BatchIntake(50, [])) == rows
    put(flight, records(*range(4)))
    assert let_in(flight, BatchIntake(50, [])) == rest


@pytest.mark.parametrize("mode", [OrderedQueue, UnorderedQueue])
def test_watermark_alone_takes_a_place(mode: NewQueue) -> None:
    """A run without rows takes a place until it leaves, as no batch."""
    flight, intake = in_flight(1, mode=mode), BatchIntake(1, [Cut(1, 10)])
    flight.store(put(flight, records(7), intake), 0, missing(0))
    assert left(flight) == [[7]]

    put(flight, records(7), intake)

    assert flight.size
    assert left(flight) == []
    assert not flight.size


def test_small_batches_are_joined() -> None:
    """Batches are joined up to a bound of rows or bytes; the first waits at most 50 ms."""
    pool = BatchPool(most_rows=4, most_bytes=40)
    batches = [records(1, 2), records(3), records(4)]
    found = []
    for number, batch in enumerate(batches):
        found.append((bool(pool), pool.is_full, pool.due_s))
        pool.add_batch(batch, now_s=float(number))

    assert found == [(False, False, None), (True, False, 0.05), (True, False, 0.05)]
    assert pool.is_full
    assert pool.take_rows() == pa.concat_batches(batches)
    assert (bool(pool), pool.is_full, pool.due_s) == (False, False, None)
    pool.add_batch(batches[0], now_s=9.0)
    assert pool.take_rows() is batches[0]  # a single batch is not copied
    for _ in range(2):
        pool.add_batch(pa.record_batch({"text": ["x" * 20]}), now_s=0.0)
    assert pool.is_full


def staged(deadline_s: float = 9.0) -> tuple[RecordsInFlight, list[RunAnswers], RunId]:
    """Three records with two lookups; the key of a third lookup needs both."""
    flight = RecordsInFlight(
        OrderedQueue(10), ByteBudget(10_000), [frozenset(), frozenset(), frozenset({0, 1})]
    )
    intake = BatchIntake(3, [Cut(3, 70)])
    run = flight.next_run(intake, row_bytes=8)
    assert run is not None
    answers = [RunAnswers(3, COLUMNS) for _ in range(3)]
    run_id = flight.put_run(run, run_rows(records(7, 8, 9), *answers), RunTimes(deadline_s, 99))
    for own in answers[:2]:
        own.add_keys(np.arange(3), np.arange(3), 3)
    return flight, answers, run_id


def ready(flight: RecordsInFlight, run_id: RunId, lookup: int, answer: Answer) -> list[int]:
    """The rows whose key of the last lookup an answer makes known."""
    progress = flight.store(run_id, lookup, answer)
    flight.check_invariants()
    assert {(each.run, each.lookup) for each in progress.ready} <= {(run_id, 2)}
    return [row for each in progress.ready for row in each.rows.tolist()]


def test_later_lookup_waits_for_its_sources() -> None:
    """A row is ready for a later lookup, once, when all lookups that its key needs have answers."""
    flight, answers, run_id = staged()

    found = [
        ready(flight, run_id, lookup, answer)
        for lookup, answer in [
            (0, missing(0, 1)),
            (1, hits(1)),
            (1, hits(1)),
            (0, missing(2)),
            (1, failed(0, 2)),
        ]
    ]

    assert found == [[], [1], [], [], [0, 2]]
    assert left(flight) == []
    assert answers[2].add_keys(np.array([1]), np.array([0]), 1) == 0
    flight.store(run_id, 2, missing(0))
    assert left(flight) == []  # in order: the first record waits
    answers[2].add_keys(np.array([0, 2]), np.array([0, 1]), 2)
    flight.store(run_id, 2, missing(1, 2))
    assert flight.passed_ms is None
    assert left(flight) == [[7, 8, 9]]
    assert flight.passed_ms == 70


def test_deadline_ends_all_lookups_of_a_record() -> None:
    """Each lookup without an answer times out, but no key that nothing matches is one."""
    flight, answers, run_id = staged(deadline_s=5.0)
    flight.store(run_id, 0, missing(0, 1, 2))
    flight.store(run_id, 1, missing(0))
    assert flight.times_of(run_id) == RunTimes(5.0, 99)

    failures = expired(flight, 5.0)

    assert [(each.lookup, each.records) for each in failures] == [(1, 2)]
    assert answers[2].outcomes_at(np.arange(3)).tolist() == [Outcome.MISSING] * 3
    assert flight.run_of(run_id).answers == tuple(answers)
    assert left(flight) == [[7, 8, 9]]
    assert flight.store(run_id, 1, missing(1)) == Progress()
