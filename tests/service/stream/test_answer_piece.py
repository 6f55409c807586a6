"""Answers in frames that are not encoded before they go."""

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.protocol.arrow_payload import answer_from_batch, decode_batch, result_schema
from lookup_core.protocol.frames import Result
from service.stream.outbox import PIECE_BYTES, AnswerPiece


def answer_of(count: int, row_bytes: int) -> Answer:
    """An answer with rows of this size."""
    rows = pa.record_batch({"name": ["x" * row_bytes] * count})
    positions = np.arange(count, dtype=np.int32)
    outcomes = np.full(count, Outcome.HIT, np.uint8)
    return Answer(positions, outcomes, np.zeros(count, np.uint32), rows)


def whole(answer: Answer) -> AnswerPiece:
    """All of an answer, the last of its lookup."""
    return AnswerPiece(7, 5, is_last=True, answer=answer, held_bytes=answer.total_bytes)


def test_small_answer_is_one_piece() -> None:
    """What fits into one frame goes in one, and frees what it holds."""
    piece = whole(answer_of(3, 10))

    assert list(piece.pieces()) == [piece]


def test_large_answer_frees_its_bytes_last() -> None:
    """Its pieces share the rows, so nothing is free before all of them are gone."""
    answer = answer_of(4, PIECE_BYTES // 2)

    pieces = list(whole(answer).pieces())

    assert [piece.answer.positions.tolist() for piece in pieces] == [[0], [1], [2], [3]]
    assert [piece.is_last for piece in pieces] == [False, False, False, True]
    assert [piece.held_bytes for piece in pieces] == [0, 0, 0, answer.total_bytes]
    assert {(piece.channel, piece.sequence) for piece in pieces} == {(7, 5)}


def test_piece_becomes_a_result() -> None:
    """The frame says all that the answer does."""
    answer = answer_of(2, 3)
    frame = whole(answer).frame()

    assert (frame.channel, frame.sequence, frame.is_last, frame.has_rows) == (7, 5, True, True)
    assert answer.rows is not None
    batch = decode_batch(frame.payload, result_schema(answer.rows.schema))
    assert answer_from_batch(batch, has_rows=True).rows == answer.rows


def test_answer_without_rows_is_told() -> None:
    """The flag of the frame says which columns there are."""
    answer = rowless_answer(np.array([4], np.int32), Outcome.MISSING)

    frame = AnswerPiece(7, 5, is_last=True, answer=answer, held_bytes=9).frame()

    assert frame == Result(7, 5, True, False, frame.payload)  # noqa: FBT003 -- as in the protocol
