"""One channel, between the thread of the connection and the thread of the task."""

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.backoff import Backoff
from lookup_core.errors import BackendError, ErrorCode, InvalidRequest, SidecarUnreachable
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.channel_session import IDLE_AFTER_S, ChannelSession, Wire

KEY = pa.schema({"id": pa.int64()})
OPENED = frames.Opened(1, 10, 10_000, pa.schema({"name": pa.utf8()}), ("id",))


class Line:
    """A session, and what it sends."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: list[Frame] = []
        self.released: list[int] = []
        self.now_s = 0.0
        channel = ClientChannel(1, ChannelRequest("d", None, "a test", KEY))
        wire = Wire(self.lock, self._send, self.released.append, lambda: self.now_s)
        self.session = ChannelSession(
            channel, wire, backoff=Backoff(initial_s=0.05, max_s=2.0, give_up_after_s=1.0)
        )

    def _send(self, sending: Sequence[Frame]) -> None:
        assert self.lock.locked()
        self.sent.extend(sending)

    def tick(self, now_s: float) -> None:
        """What the connection's thread does from time to time."""
        self.now_s = now_s
        with self.lock:
            self.session.on_tick(now_s)

    def hear(self, frame: frames.Opened | frames.Credit | frames.Result) -> None:
        """What the connection's thread does with a frame."""
        with self.lock:
            self.session.on_frame(frame)


@pytest.fixture
def line() -> Line:
    """A session whose channel stands, with one question sent."""
    line = Line()
    with line.lock:
        line.session.reopen()
    line.hear(OPENED)
    keys = pa.record_batch([pa.array([1, 2])], KEY)
    line.session.ask(SentKeys(QuestionId(1), keys, 99.0))
    return line


def result(sequence: int, *positions: int, is_last: bool = False) -> frames.Result:
    """An answer without rows."""
    answer = rowless_answer(np.array(positions, np.int32), Outcome.MISSING)
    payload = encode_batch(answer_batch(answer))
    return frames.Result(1, sequence, is_last, has_rows=False, payload=payload)


def answered(session: ChannelSession) -> list[tuple[int, list[int]]]:
    """Questions and positions of what has come."""
    return [(each.question, each.answer.positions.tolist()) for each in session.answers(0.0)]


def test_answers_wait_in_order(line: Line) -> None:
    """What came is given once, in the order in which it came."""
    line.hear(result(1, 1))
    line.hear(result(1, 0, is_last=True))

    assert answered(line.session) == [(1, [1]), (1, [0])]
    assert answered(line.session) == []


def test_answers_survive_their_connection(line: Line) -> None:
    """Answers of the old connection belong to its sequences, which begin anew on the next."""
    for question in (2, 3):
        keys = pa.record_batch([pa.array([question])], KEY)
        line.session.ask(SentKeys(QuestionId(question), keys, 99.0))
    line.hear(result(1, 0, 1, is_last=True))
    assert answered(line.session) == [(1, [0, 1])]
    line.hear(result(2, 0, is_last=True))  # not fetched before the loss

    with line.lock:
        line.session.reopen()
    line.hear(OPENED)

    assert answered(line.session) == [(2, [0])]
    line.hear(result(1, 0, is_last=True))  # the only one that was asked again
    assert answered(line.session) == [(3, [0])]


def test_failure_waits_for_the_answers(line: Line) -> None:
    """What came before the failure is given first; then the failure, again and again."""
    line.hear(result(1, 0))
    with line.lock:
        line.session.fail(SidecarUnreachable("x", "gone"))
        line.session.fail(SidecarUnreachable("x", "the second reason is no news"))

    assert answered(line.session) == [(1, [0])]
    for _ in range(2):
        with pytest.raises(SidecarUnreachable, match="gone"):
            line.session.answers(None)


def test_channel_that_ended_says_why(line: Line) -> None:
    """A channel that stands is well; one that has failed raises what ended it."""
    line.session.check()

    with line.lock:
        line.session.fail(SidecarUnreachable("x", "gone"))
    with pytest.raises(SidecarUnreachable, match="gone"):
        line.session.check()


def test_refusal_is_forgotten_with_the_channel() -> None:
    """Once the channel stands, nothing is wrong; whoever waits knows it then."""
    line = Line()
    with line.lock:
        line.session.on_refusal(BackendError(ErrorCode.TABLE_UNAVAILABLE, "later"), jitter=0.0)
        line.session.reopen()
    was_decided = line.session.is_decided_within(0.0)

    line.hear(OPENED)

    assert (was_decided, line.session.is_decided_within(0.0)) == (False, True)
    assert line.session.refusal is None


def test_refusals_are_final_or_pass(line: Line) -> None:
    """One that may pass is tried again later, until it lasts too long; another is not."""
    passing = BackendError(ErrorCode.TABLE_UNAVAILABLE, "later")
    with line.lock:
        assert line.session.on_refusal(passing, jitter=0.0)
    assert line.session.reopen_at_s == 0.025
    assert line.session.refusal is passing

    line.now_s = 1.0
    with line.lock:
        assert not line.session.on_refusal(passing, jitter=0.0)
        assert not line.session.on_refusal(InvalidRequest(ErrorCode.TYPE, "never"), jitter=0.0)
    with pytest.raises(BackendError, match="later"):
        line.session.answers(None)


def test_frames_of_the_task_go_out(line: Line) -> None:
    """Watermarks, cancellations and the end are sent in the order in which they happen."""
    line.sent.clear()

    line.session.mark(5)
    line.session.abandon(QuestionId(1))
    line.session.close()

    assert line.sent == [frames.Watermark(1, 5), frames.Cancel(1, 1), frames.Close(1)]
    assert line.released == [1]


def test_long_wait_for_input_is_idleness(line: Line) -> None:
    """It is told when it has lasted long enough, once, and ends with what is asked next."""
    line.sent.clear()

    with line.session.awaiting_input():
        line.tick(IDLE_AFTER_S - 0.001)
        assert line.sent == []
        line.tick(IDLE_AFTER_S)
        line.tick(IDLE_AFTER_S + 1)
    line.tick(IDLE_AFTER_S + 2)
    line.session.mark(5)

    assert line.sent == [
        frames.Status(1, is_idle=True),
        frames.Status(1, is_idle=False),
        frames.Watermark(1, 5),
    ]


def test_waits_for_input_do_not_add_up(line: Line) -> None:
    """Each batch begins the wait anew; without a wait there is no idleness, however long."""
    line.sent.clear()

    with line.session.awaiting_input():
        line.now_s = 3.0
    line.tick(100.0)
    with line.session.awaiting_input():
        line.tick(100.0 + IDLE_AFTER_S - 0.001)

    assert line.sent == []


def test_refused_channel_is_asked_for_in_time(line: Line) -> None:
    """When its delay is over, the channel is asked for again."""
    with line.lock:
        line.session.on_refusal(BackendError(ErrorCode.OVERLOADED, "full"), jitter=0.0)
    line.sent.clear()

    line.tick(0.024)
    assert line.sent == []
    line.tick(0.025)
    assert [type(frame) for frame in line.sent] == [frames.Open]


def test_credit_releases_the_backlog(line: Line) -> None:
    """What waited for credit is sent by the thread that hears of it."""
    keys = pa.record_batch([pa.array(range(30))], KEY)
    line.session.ask(SentKeys(QuestionId(2), keys, 99.0))
    line.sent.clear()

    line.hear(frames.Credit(1, 12, 800))

    assert [type(frame) for frame in line.sent] == [frames.Lookup]
