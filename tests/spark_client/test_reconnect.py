"""What goes out when a connection is lost or left: nothing of a channel before its OPEN.

The sidecar in memory closes the connection for any frame of a channel that it does not know.
"""

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.errors import ErrorCode, InvalidRequest, ProtocolViolation, SidecarUnreachable
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest, ChannelStatistics
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.fake_sidecar import URL, Behaviour, FakePeer, FakeSidecar
from spark_client.transport.channel_session import IDLE_AFTER_S, ChannelSession
from spark_client.transport.connection import Connection, Timing
from spark_client.transport.memory_transport import MemoryTransport
from tests.spark_client.partition import DIMENSIONS, connection_to

KEY = pa.schema({"id": pa.int64()})
REQUEST = ChannelRequest("customers", ("name",), "a test", KEY)
CONTENDED = Behaviour(credit_records=10, returns_credit=False)
WAIT_S = 10.0


def ask(channel: ChannelSession, question: int, count: int) -> None:
    """Request the first `count` keys."""
    keys = pa.record_batch([pa.array(range(count), pa.int64())], KEY)
    channel.ask(SentKeys(QuestionId(question), keys, deadline_s=1e9))


def answered(channel: ChannelSession, count: int) -> dict[int, list[int]]:
    """The positions in the answers to `count` keys, by question."""
    found: dict[int, list[int]] = {}
    while sum(map(len, found.values())) < count:
        answers = channel.answers(WAIT_S)
        assert answers, "no answer came"
        for each in answers:
            found.setdefault(each.question, []).extend(each.answer.positions.tolist())
    return {question: sorted(positions) for question, positions in found.items()}


def is_served(channel: ChannelSession) -> bool:
    """Whether a lookup on the channel is answered; what came before it has been dispatched then."""
    ask(channel, 99, 1)
    return answered(channel, 1) == {99: [0]}


def partial(channel: ChannelSession, position: int, *, is_last: bool = False) -> frames.Result:
    """No row for a key of the channel's first LOOKUP."""
    answer = rowless_answer(np.array([position], np.int32), Outcome.MISSING)
    payload = encode_batch(answer_batch(answer))
    return frames.Result(channel.channel.number, 1, is_last, has_rows=False, payload=payload)


def opened_channels(sidecar: FakeSidecar) -> list[int]:
    """The channels that were requested, in order."""
    received = sidecar.memory.received
    return [frame.channel for frame in received if isinstance(frame, frames.Open)]


@pytest.fixture
def sidecar() -> FakeSidecar:
    """A sidecar whose credit other channels need: it gives none back."""
    return FakeSidecar(DIMENSIONS, CONTENDED)


def test_lookups_wait_for_open_after_loss(sidecar: FakeSidecar) -> None:
    """Answers that end a wait for credit are decoded at a reconnect, and send nothing then."""
    connection = connection_to(sidecar)
    blocked, busy = connection.open(REQUEST), connection.open(REQUEST)
    ask(blocked, 1, 6)
    ask(blocked, 2, 9)  # more than the credit that is left, which is not worth a frame
    assert is_served(busy)
    sidecar.behaviour = Behaviour()

    sidecar.crash()

    assert is_served(busy)
    assert answered(blocked, 15) == {1: [*range(6)], 2: [*range(9)]}
    assert sidecar.connection_count == 2


def test_outage_spends_no_credit() -> None:
    """What is requested without a connection waits for the next one, and goes out on it."""
    sidecar, is_lost, is_over = FakeSidecar(DIMENSIONS), threading.Event(), threading.Event()

    def pause(_: float) -> None:
        is_lost.set()
        assert is_over.wait(WAIT_S)

    channel = connection_to(sidecar, Timing(pause=pause)).open(REQUEST)
    sidecar.crash()
    assert is_lost.wait(WAIT_S)

    ask(channel, 1, 3)

    assert channel.channel.statistics() == ChannelStatistics(0, 0, 0, backlog_records=3)
    is_over.set()
    assert answered(channel, 3) == {1: [0, 1, 2]}


def test_failed_channel_sends_nothing(sidecar: FakeSidecar) -> None:
    """A bad answer that is found at a reconnect fails its channel; the others are not harmed."""
    now_s = [0.0]
    timing = Timing(clock=lambda: now_s[0], pause=lambda _: None)
    connection = connection_to(sidecar, timing)
    failing, busy = connection.open(REQUEST), connection.open(REQUEST)
    number = failing.channel.number
    sidecar.tell(frames.Result(number, 1, is_last=True, has_rows=False, payload=b""))
    assert is_served(busy)

    ask(failing, 1, 1)
    sidecar.crash()
    assert is_served(busy)
    with failing.awaiting_input():
        now_s[0] = IDLE_AFTER_S  # STATUS would be due
        assert is_served(busy)
    failing.mark(5)
    ask(failing, 2, 1)
    failing.abandon(QuestionId(1))
    failing.close()

    assert is_served(busy)
    with pytest.raises(ProtocolViolation, match="an Arrow message was expected"):
        failing.answers(WAIT_S)
    assert opened_channels(sidecar) == [1, 2, 2]


def test_failed_channels_leave_the_next_connection_alone() -> None:
    """A task that has not noticed the end of its channel sends nothing on a later connection."""
    sidecar = FakeSidecar(DIMENSIONS)
    connection = connection_to(sidecar, Timing(connect_timeout_s=0.05))
    failed, thread = connection.open(REQUEST), connection._thread
    assert thread is not None
    sidecar.is_down = True
    sidecar.crash()
    thread.join(WAIT_S)
    sidecar.is_down = False
    other = connection.open(REQUEST)

    ask(failed, 1, 1)
    failed.mark(5)

    assert is_served(other)
    with pytest.raises(SidecarUnreachable):
        failed.answers(WAIT_S)


def test_unrequested_channel_fails_alone(sidecar: FakeSidecar) -> None:
    """OPENED for a channel that was refused and waits is a violation, and not its OPEN."""
    connection = connection_to(sidecar, Timing(clock=lambda: 0.0))  # nothing is ever due
    refused, busy = connection.open(REQUEST), connection.open(REQUEST)
    number = refused.channel.number
    refusal = frames.Failure(number, ErrorCode.OVERLOADED, "full", is_retryable=True)

    sidecar.tell(refusal)
    sidecar.tell(frames.Opened(number, 10, 10, pa.schema([]), ("id",)))
    sidecar.tell(refusal)  # of a channel that is gone

    with pytest.raises(ProtocolViolation, match="OPENED without OPEN"):
        refused.answers(WAIT_S)
    assert is_served(busy)


def test_channel_with_other_columns_fails_alone(sidecar: FakeSidecar) -> None:
    """Its task may request more before it notices; nothing of that goes out."""
    connection = connection_to(sidecar)
    changed, busy = connection.open(REQUEST), connection.open(REQUEST)
    sidecar.tell(frames.Opened(changed.channel.number, 10, 10, pa.schema([]), ("id",)))
    assert is_served(busy)

    ask(changed, 1, 1)

    assert is_served(busy)
    with pytest.raises(InvalidRequest, match="columns of 'customers' changed"):
        changed.answers(WAIT_S)


class LeavingPeer(FakePeer):
    """Sends GOAWAY right behind WELCOME."""

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """See `MemoryPeer`."""
        replies = super().on_message(message)
        goaway = [] if self._memory.received else [encode_frame(frames.Goaway("drain"))]
        return [*replies, *goaway]


def test_goaway_behind_welcome_is_heard() -> None:
    """Frames that come in one read with WELCOME are not dropped."""
    sidecar = FakeSidecar(DIMENSIONS)
    leaving = [MemoryTransport(LeavingPeer(DIMENSIONS, Behaviour(), sidecar.memory))]

    def connect() -> MemoryTransport:
        return leaving.pop() if leaving else sidecar.connect()

    connection = Connection(connect, url=URL, timing=Timing(pause=lambda _: None))

    channel = connection.open(REQUEST)

    assert is_served(channel)
    assert sidecar.connection_count == 1


def test_left_connection_opens_no_channel() -> None:
    """A channel that was refused is requested again on the next connection, not on the one left."""
    sidecar, now_s = FakeSidecar(DIMENSIONS, Behaviour(is_silent=True)), [0.0]
    connection = connection_to(sidecar, Timing(clock=lambda: now_s[0], pause=lambda _: None))
    waiting, refused = connection.open(REQUEST), connection.open(REQUEST)
    refusal = frames.Failure(
        refused.channel.number, ErrorCode.OVERLOADED, "full", is_retryable=True
    )
    ask(waiting, 1, 3)

    for frame in (refusal, frames.Goaway("drain"), refusal, partial(waiting, 0)):
        sidecar.tell(frame)
    assert answered(waiting, 1) == {1: [0]}
    now_s[0] = 10.0  # long after the channel would be due
    sidecar.tell(partial(waiting, 1))
    assert answered(waiting, 1) == {1: [1]}

    assert opened_channels(sidecar) == [1, 2]
    sidecar.behaviour = Behaviour()
    sidecar.tell(partial(waiting, 2, is_last=True))
    assert answered(waiting, 1) == {1: [2]}
    assert is_served(refused)
    assert opened_channels(sidecar) == [1, 2, 1, 2]
