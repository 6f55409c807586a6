"""The records of one operator between their arrival and their leaving."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode
from lookup_core.operator.batch_intake import BatchIntake, ByteBudget
from lookup_core.operator.encoded_keys import encoded_keys
from lookup_core.operator.event_time_watermarks import Cut
from lookup_core.operator.ordered_queue import OrderedQueue
from lookup_core.operator.question import Question
from lookup_core.operator.records_in_flight import Failed, RecordsInFlight
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from lookup_core.protocol.sent_lookups import QuestionId

COLUMNS = pa.schema({"name": pa.utf8()})
KEY = pa.schema({"id": pa.int64()})


def in_flight(capacity: int, *, max_bytes: int = 10_000, ordered: bool = True) -> RecordsInFlight:
    """Nothing in it yet."""
    queue = OrderedQueue(capacity) if ordered else UnorderedQueue(capacity)
    return RecordsInFlight(queue, ByteBudget(max_bytes))


def records(*ids: int) -> pa.RecordBatch:
    """Records with a key; eight bytes each."""
    return pa.record_batch([pa.array(ids, pa.int64())], KEY)


def put(
    flight: RecordsInFlight,
    batch: pa.RecordBatch,
    intake: BatchIntake | None = None,
    *,
    deadline_s: float = 9.0,
) -> QuestionId:
    """Put the next run of a batch, which there must be room for."""
    run = flight.next_run(intake or BatchIntake(batch.num_rows, []), row_bytes=8)
    assert run is not None
    part = batch.slice(run.rows.start, run.rows.stop - run.rows.start)
    encoded = encoded_keys(part.columns, KEY)
    question = Question(encoded.codes, key_count=encoded.keys.num_rows, columns=COLUMNS)
    hashes = part.column(0).to_numpy().astype(np.uint64)
    question_id = flight.put(run, part, question, deadline_s=deadline_s, key_hashes=hashes)
    flight.check_invariants()
    return question_id


def missing(*positions: int) -> Answer:
    """No row for these keys."""
    return rowless_answer(np.array(positions, np.int32), Outcome.MISSING)


def left(flight: RecordsInFlight) -> list[list[int]]:
    """The ids of what leaves now, together as it leaves."""
    leaving = [
        leave.records.column(0).take(pa.array(leave.rows)).to_pylist() for leave in flight.leaving()
    ]
    flight.check_invariants()
    return leaving


def test_answered_rows_leave_together() -> None:
    """All rows that ask for an answered key leave, in ordered mode behind those before them."""
    flight = in_flight(10)
    question = put(flight, records(7, 8, 7, 9))

    assert flight.answer(question, missing(1)) == []
    assert left(flight) == []
    flight.answer(question, missing(0))
    assert left(flight) == [[7, 8, 7]]
    flight.answer(question, missing(2))
    assert left(flight) == [[9]]
    assert flight.is_empty


def test_unordered_parts_leave_as_one() -> None:
    """Rows of one question that leave at the same time make one output, in their input's order."""
    flight = in_flight(10, ordered=False)
    question = put(flight, records(7, 8, 9))

    flight.answer(question, missing(2))
    flight.answer(question, missing(0))

    assert left(flight) == [[7, 9]]


def test_watermarks_keep_questions_in_order() -> None:
    """Slices of one question between watermarks leave as one output, never across an open one."""
    flight = in_flight(10, ordered=False)
    batch = records(1, 2, 3)
    question = put(flight, batch, BatchIntake(3, [Cut(1, 10), Cut(2, 20), Cut(3, 30)]))

    flight.answer(question, missing(2))
    flight.answer(question, missing(0))
    assert left(flight) == [[1]]
    flight.answer(question, missing(1))

    assert left(flight) == [[2, 3]]
    assert flight.is_empty


def test_slices_keep_keys_of_their_rows() -> None:
    """Where a watermark cuts a question, what stands behind it has its own keys in order."""
    flight = RecordsInFlight(KeyOrderedQueue(10), ByteBudget(10_000))
    first = put(flight, records(1, 2), BatchIntake(2, [Cut(1, 10)]))
    second = put(flight, records(2))

    flight.answer(second, missing(0))
    flight.answer(first, missing(0))
    assert left(flight) == [[1]]
    flight.answer(first, missing(1))

    assert left(flight) == [[2], [2]]


def test_order_of_keys_needs_their_hashes() -> None:
    """Without hashes nothing goes in where keys keep their order."""
    flight = RecordsInFlight(KeyOrderedQueue(10), ByteBudget(10_000))
    run = flight.next_run(BatchIntake(1, []), row_bytes=8)
    question = Question(np.zeros(1, np.intp), key_count=1, columns=COLUMNS)
    assert run is not None

    with pytest.raises(ValueError, match="key_hashes"):
        flight.put(run, records(1), question, deadline_s=9.0)

    assert flight.is_empty
    flight.check_invariants()


def fat(*positions: int) -> Answer:
    """A row of a thousand bytes for each of these keys."""
    count = len(positions)
    rows = pa.record_batch([pa.array(["x" * 1_000] * count)], COLUMNS)
    return Answer(
        np.array(positions, np.int32), np.zeros(count, np.uint8), np.zeros(count, np.uint32), rows
    )


def test_fat_answers_let_fewer_in() -> None:
    """Once answers are seen to be large, fewer rows are in flight than there are places."""
    flight = in_flight(100, max_bytes=10_000)
    question = put(flight, records(7, 8))

    flight.answer(question, fat(0, 1))

    assert left(flight) == [[7, 8]]
    run = flight.next_run(BatchIntake(50, []), row_bytes=8)
    assert run is not None
    assert run.rows.stop - run.rows.start == 9


def test_size_is_learnt_from_what_timed_out() -> None:
    """What came of an answer before its time was over counts for the next rows, too."""
    flight = in_flight(100, max_bytes=10_000)
    question = put(flight, records(7, 8), deadline_s=5.0)

    flight.answer(question, fat(0))
    flight.expire(5.0)

    assert left(flight) == [[7, 8]]
    run = flight.next_run(BatchIntake(50, []), row_bytes=8)
    assert run is not None
    assert run.rows.stop - run.rows.start == 19


def test_late_answers_change_nothing() -> None:
    """An answer to what has left, or to a stranger, is ignored."""
    flight = in_flight(10)
    question = put(flight, records(7))
    flight.answer(question, missing(0))
    assert flight.answer(question, missing(0)) == []
    left(flight)

    assert flight.answer(question, missing(0)) == []
    assert flight.answer(QuestionId(99), missing(0)) == []
    assert left(flight) == []


def test_expired_questions_are_named_once() -> None:
    """What expires is counted in records, and leaves like anything else."""
    flight = in_flight(10)
    question = put(flight, records(7, 8, 8), deadline_s=5.0)
    flight.answer(question, missing(0))

    assert flight.next_deadline() == 5.0
    assert flight.expire(4.9) == []
    assert flight.expire(5.0) == [
        (question, Failed(Outcome.TIMEOUT, 2, (ErrorCode.TIMEOUT,))),
    ]
    assert flight.expire(5.0) == []
    assert left(flight) == [[7, 8, 8]]


def test_failures_are_counted_in_records() -> None:
    """An error of one key fails every record that asks for it."""
    flight = in_flight(10)
    question = put(flight, records(7, 8, 7))
    error = rowless_answer(np.array([0], np.int32), Outcome.ERROR, error=ErrorCode.TYPE)

    assert flight.answer(question, error) == [Failed(Outcome.ERROR, 2, (ErrorCode.TYPE,))]


def test_little_room_is_waited_for() -> None:
    """Half of the capacity is worth a lookup of its own; less only if it is all there is."""
    flight = in_flight(4)
    intake = BatchIntake(20, [])
    first = put(flight, records(*range(20)), intake)
    assert flight.next_run(intake, row_bytes=8) is None

    flight.answer(first, missing(0))
    left(flight)
    assert flight.next_run(intake, row_bytes=8) is None
    flight.answer(first, missing(1))
    left(flight)

    run = flight.next_run(intake, row_bytes=8)
    assert run is not None
    assert (run.rows.start, run.rows.stop) == (4, 6)


def test_bytes_bound_the_rows() -> None:
    """Large records go in few at a time, a single one always."""
    flight = in_flight(8, max_bytes=100)
    intake = BatchIntake(8, [])

    run = flight.next_run(intake, row_bytes=40)

    assert run is not None
    assert run.rows.stop == 2
    huge = in_flight(8, max_bytes=100).next_run(BatchIntake(8, []), row_bytes=1000)
    assert huge is not None
    assert huge.rows.stop == 1


@pytest.mark.parametrize("ordered", [True, False])
def test_watermark_alone_takes_a_place(ordered: bool) -> None:  # noqa: FBT001 -- a parameter
    """A run without rows holds its place until it leaves, and leaves nothing behind."""
    flight = in_flight(1, ordered=ordered)
    intake = BatchIntake(1, [Cut(1, 10)])
    question = put(flight, records(7), intake)
    flight.answer(question, missing(0))
    assert left(flight) == [[7]]

    put(flight, records(7), intake)

    assert not flight.is_empty
    assert left(flight) == []
    assert flight.is_empty
