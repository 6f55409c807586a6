"""One channel between the connection's thread and the task's thread, and malformed answers."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode, ProtocolViolation, SidecarUnreachable
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.transport.connection import ChannelSession, Connection, Timing, nothing
from tests.spark_client.builders import (
    DIMENSIONS,
    KEY,
    REQUEST,
    WAIT_S,
    answered,
    look_up,
    result,
)
from tests.spark_client.memory_transport import Behaviour, ReachableSidecar

OPENED = frames.Opened(1, 10, 10_000, pa.schema({"name": pa.utf8()}), ("id",))
GONE = SidecarUnreachable("x", "gone")


class Line:
    """A session of a connection without a thread, and the frames that it sends."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.now_s = 0.0
        timing = Timing(connect_timeout_s=1.0, clock=lambda: self.now_s, jitter=lambda: 0.0)
        self.connection = Connection(ReachableSidecar({}).connect, url="x", timing=timing)
        self.connection._thread = threading.current_thread()
        self.connection._transport = self
        self.session = self.connection.begin(ChannelRequest("d", None, "a test", KEY))
        self.hear(frames.Welcome(1, "a test"))

    def send(self, message: bytes) -> None:
        """See `Transport`."""
        assert self.connection.lock.locked()
        self.sent.append(decode_frame(message))

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """See `Transport`."""
        del timeout_s
        return []

    wake = close = close_after_fork = nothing

    def hear(self, *heard: Frame) -> None:
        """As the connection's thread does with frames, and each second."""
        self.connection._take([encode_frame(frame) for frame in heard])

    def reopen(self) -> None:
        """As on a new connection."""
        self.connection.client.on_lost()
        self.hear(frames.Welcome(1, "a test"), OPENED)


@pytest.fixture
def line() -> Line:
    """A session whose channel is open, with one run of two keys sent."""
    line = Line()
    line.hear(OPENED)
    look_up(line.session, 1, 1, 2)
    line.sent.clear()
    return line


def answers(session: ChannelSession) -> list[tuple[int, list[int]]]:
    """Runs and positions of the answers that have come."""
    return [(each.run, each.answer.positions.tolist()) for each in session.answers(0.0)]


def test_answers_survive_their_connection(line: Line) -> None:
    """Answers of the old connection count; only open lookups are sent again, from sequence 1."""
    look_up(line.session, 2, 2)
    look_up(line.session, 3, 3)
    line.hear(result(1, 0, 1, is_last=True))
    assert answers(line.session) == [(1, [0, 1])]
    line.hear(result(2, 0, is_last=True))  # not fetched before the loss

    line.reopen()

    assert answers(line.session) == [(2, [0])]
    line.hear(result(1, 0, is_last=True))
    assert answers(line.session) == [(3, [0])]


def test_failure_follows_the_answers(line: Line) -> None:
    """Answers that came before a failure are returned first; then the first failure is raised."""
    assert line.session.is_open_within(0.0)
    line.hear(result(1, 0))
    for failure in (GONE, SidecarUnreachable("x", "a second reason")):
        line.session.channel.fail(failure)

    assert answers(line.session) == [(1, [0])]
    for _ in range(2):
        with pytest.raises(SidecarUnreachable, match="gone"):
            line.session.answers(None)
    with pytest.raises(SidecarUnreachable, match="gone"):
        line.session.is_open_within(0.0)


def test_refused_channel_is_opened_later() -> None:
    """After its delay a refused channel is requested again; OPENED clears the refusal."""
    line = Line()
    channel = line.session.channel
    line.sent.clear()
    line.hear(frames.Failure(1, ErrorCode.TABLE_UNAVAILABLE, "later", is_retryable=True))
    assert (str(channel.refusal), channel.reopen_at_s) == ("table_unavailable: later", 0.025)
    assert not line.session.is_open_within(0.0)

    for line.now_s in (0.024, 0.025):
        line.hear()
    line.hear(OPENED)

    assert [type(frame) for frame in line.sent] == [frames.Open]
    assert (channel.refusal, line.session.is_open_within(0.0)) == (None, True)


def payload(*positions: int, outcome: int = Outcome.MISSING) -> bytes:
    """The payload of a RESULT without rows."""
    answer = rowless_answer(np.array(positions, np.int32), Outcome.MISSING)
    answer = replace(answer, outcomes=np.full(len(positions), outcome, np.uint8))
    return bytes(encode_batch(answer_batch(answer)))


@pytest.fixture
def sidecar() -> ReachableSidecar:
    """A sidecar that takes lookups and never answers; the tests answer for it."""
    return ReachableSidecar(DIMENSIONS, Behaviour(is_silent=True))


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\xff" * 99, "an Arrow message was expected"),
        (payload(0, 1, outcome=99), "outcomes and rows contradict each other"),
        (payload(1), "the last answer leaves 1 of 2 keys without one"),
    ],
)
def test_malformed_answer_fails_its_channel(
    sidecar: ReachableSidecar, connection: Connection, sent: bytes, why: str
) -> None:
    """The task's error has the reason; other channels continue."""
    channel, other = connection.open(REQUEST), connection.open(REQUEST)
    look_up(channel, 1, 1, 2)
    look_up(other, 1, 1)

    sidecar.broadcast(frames.Result(1, 1, is_last=True, has_rows=False, payload=sent))

    with pytest.raises(ProtocolViolation, match=why) as caught:
        channel.answers(WAIT_S)
    assert caught.value.code is ErrorCode.BAD_FRAME
    sidecar.broadcast(result(1, 0, is_last=True, channel=2))
    assert answered(other, 1) == {1: [0]}


@pytest.mark.parametrize("sequence", [0, 7, 2**63 - 1])
def test_answers_without_lookup_are_ignored(
    sidecar: ReachableSidecar, connection: Connection, sequence: int
) -> None:
    """A RESULT of a sequence that is not open is dropped, whatever its payload is."""
    channel = connection.open(REQUEST)
    look_up(channel, 1, 1)

    sidecar.broadcast(frames.Result(1, sequence, is_last=True, has_rows=True, payload=b"nonsense"))
    sidecar.broadcast(result(1, 0, is_last=True))

    found = channel.answers(WAIT_S) or channel.answers(WAIT_S)  # the first wakes for nothing
    assert [each.answer.positions.tolist() for each in found] == [[0]]


def part(sequence: int, answer: Answer, *, is_last: bool) -> frames.Result:
    """A RESULT of channel 1 with an answer without rows."""
    payload = encode_batch(answer_batch(answer))
    return frames.Result(1, sequence, is_last, has_rows=False, payload=payload)


def test_keys_meet_a_change_once(line: Line) -> None:
    """Keys that met a change of the table are sent once more, with the others answered at once."""
    changed = rowless_answer(np.array([1], np.int32), Outcome.ERROR, error=ErrorCode.SCHEMA_CHANGED)
    missing = rowless_answer(np.array([0], np.int32), Outcome.MISSING)
    first = [part(1, missing, is_last=False), part(1, changed, is_last=True)]
    line.hear(*first)
    before = answers(line.session)
    (again,) = [frame for frame in line.sent if isinstance(frame, frames.Lookup)]

    line.hear(part(2, changed.moved(-1), is_last=True))
    (last,) = line.session.answers(0.0)

    assert before == [(1, [0])]
    assert decode_batch(again.payload, KEY).to_pydict() == {"id": [2]}
    assert last.answer.positions.tolist() == [1]
    assert last.answer.errors == {1: ErrorCode.SCHEMA_CHANGED}
    assert not line.session.channel.has_work
