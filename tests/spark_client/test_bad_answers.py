"""A sidecar that answers nonsense: the task that asked fails with a clear error, and never waits.

What of it is refused, and why, stands with the decoders; this is what a task sees.
"""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.fake_sidecar import Behaviour, FakeSidecar
from spark_client.transport.channel_session import ChannelSession
from spark_client.transport.connection import Connection
from tests.spark_client.partition import DIMENSIONS, connection_to
from tools.fuzz import forged_arrow
from tools.fuzz.forged_arrow import ForgedBatch

KEY = pa.schema({"id": pa.int64()})
REQUEST = ChannelRequest("customers", ("name",), "a test", KEY)
WAIT_S = 10.0
NO_BATCH = "the payload is not a record batch of the channel's schema"


def answer(*positions: int, outcome: int = Outcome.MISSING) -> bytes:
    """The payload of a RESULT without rows."""
    outcomes = np.full(len(positions), outcome, np.uint8)
    ages_ms = np.zeros(len(positions), np.uint32)
    answered = Answer(np.array(positions, np.int32), outcomes, ages_ms, None)
    return bytes(encode_batch(answer_batch(answered)))


def row(outcome: Outcome) -> bytes:
    """The payload of a RESULT with one row."""
    rows = pa.record_batch({"name": ["Ann"]})
    numbers = np.zeros(1, np.int32), np.full(1, outcome, np.uint8), np.zeros(1, np.uint32)
    return bytes(encode_batch(answer_batch(Answer(*numbers, rows))))


def unknown_code() -> bytes:
    """The payload of a RESULT with an error that there is not."""
    batch = answer_batch(rowless_answer(np.zeros(1, np.int32), Outcome.ERROR))
    column = pa.array(["of tomorrow"], pa.utf8())
    return bytes(encode_batch(batch.set_column(3, batch.schema.field(3), column)))


ANSWERS = {
    "nothing": (b"", False, "an Arrow message was expected"),
    "garbage": (b"\xff" * 99, True, "an Arrow message was expected"),
    "rows as none": (row(Outcome.HIT), False, "an error code is unknown"),
    "none as rows": (answer(0, 1), True, "outcomes and rows contradict each other"),
    "cut": (answer(0, 1)[:-8], False, NO_BATCH),
    "compressed": (
        ForgedBatch(codec=forged_arrow.LZ4).message(),
        False,
        "compressed buffers are refused",
    ),
    "terabyte": (ForgedBatch(body_bytes=2**40).message(), False, NO_BATCH),
    "missing row": (row(Outcome.MISSING), True, "outcomes and rows contradict each other"),
    "unknown outcome": (answer(0, 1, outcome=99), False, "outcomes and rows contradict each other"),
    "unknown code": (unknown_code(), False, "an error code is unknown"),
    "position outside": (answer(0, 2), False, "positions must be distinct and below 2"),
    "negative position": (answer(0, -1), False, "positions must be distinct and below 2"),
    "position twice": (answer(1, 1), False, "positions must be distinct and below 2"),
    "too few": (answer(1), False, "the last answer leaves 1 of 2 keys without one"),
    "none at all": (answer(), False, "the last answer leaves 2 of 2 keys without one"),
}


def ask(channel: ChannelSession, *ids: int) -> None:
    """Ask for keys, with all the time there is."""
    keys = pa.record_batch([pa.array(ids, pa.int64())], KEY)
    channel.ask(SentKeys(QuestionId(1), keys, deadline_s=1e9))


@pytest.fixture
def sidecar() -> FakeSidecar:
    """A sidecar that takes lookups and says nothing; the tests speak for it."""
    return FakeSidecar(DIMENSIONS, Behaviour(is_silent=True))


@pytest.fixture
def connection(sidecar: FakeSidecar) -> Connection:
    """A connection to it."""
    return connection_to(sidecar)


@pytest.mark.parametrize(("payload", "has_rows", "why"), ANSWERS.values(), ids=list(ANSWERS))
def test_nonsense_fails_the_task_that_asked(
    sidecar: FakeSidecar,
    connection: Connection,
    payload: bytes,
    has_rows: bool,  # noqa: FBT001 -- a parameter
    why: str,
) -> None:
    """The error says what was wrong; another channel goes on."""
    channel, other = connection.open(REQUEST), connection.open(REQUEST)
    ask(channel, 1, 2)
    ask(other, 1)

    sidecar.tell(frames.Result(1, 1, is_last=True, has_rows=has_rows, payload=payload))

    with pytest.raises(ProtocolViolation, match=why) as caught:
        channel.answers(WAIT_S)
    assert caught.value.code is ErrorCode.BAD_FRAME
    sidecar.tell(frames.Result(2, 1, is_last=True, has_rows=False, payload=answer(0)))
    assert [each.answer.size for each in other.answers(WAIT_S)] == [1]


def test_key_answered_twice_is_nonsense(sidecar: FakeSidecar, connection: Connection) -> None:
    """A second answer to a key in a later frame does not reach the records."""
    channel = connection.open(REQUEST)
    ask(channel, 1, 2)

    result = frames.Result(1, 1, is_last=False, has_rows=False, payload=answer(0))
    sidecar.tell(result)
    assert [each.answer.size for each in channel.answers(WAIT_S)] == [1]
    sidecar.tell(result)

    with pytest.raises(ProtocolViolation, match="distinct"):
        channel.answers(WAIT_S)


def test_nonsense_before_a_loss_is_told_after_it(
    sidecar: FakeSidecar, connection: Connection
) -> None:
    """Nonsense that nobody has read when the connection is lost fails its own channel only."""
    channel, other = connection.open(REQUEST), connection.open(REQUEST)
    ask(channel, 1, 2)
    sidecar.tell(frames.Result(1, 1, is_last=True, has_rows=False, payload=b"nonsense"))
    sidecar.crash()

    with pytest.raises(ProtocolViolation, match="an Arrow message was expected"):
        channel.answers(WAIT_S)
    assert other.answers(0.0) == []


@pytest.mark.parametrize("sequence", [0, 7, 2**63 - 1])
def test_answers_to_nobody_are_ignored(
    sidecar: FakeSidecar, connection: Connection, sequence: int
) -> None:
    """A sequence that was never sent, or is over, is nobody's, whatever its payload is."""
    channel = connection.open(REQUEST)
    ask(channel, 1)

    sidecar.tell(frames.Result(1, sequence, is_last=True, has_rows=True, payload=b"nonsense"))
    sidecar.tell(frames.Result(1, 1, is_last=True, has_rows=False, payload=answer(0)))

    answers = channel.answers(WAIT_S) or channel.answers(WAIT_S)  # the first wakes for nothing
    assert [each.answer.positions.tolist() for each in answers] == [[0]]
