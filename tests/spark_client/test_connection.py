"""The connection of a worker: channels, losses and returns."""

import itertools
import threading
import time

import pyarrow as pa
import pytest

from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    ProtocolViolation,
    SidecarUnreachable,
    SidelookError,
)
from lookup_core.protocol import frames
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.fake_sidecar import URL, Behaviour, FakeSidecar
from spark_client.transport.channel_session import IDLE_AFTER_S, ChannelSession
from spark_client.transport.connection import AGENT, WELCOME_TIMEOUT_S, Connection, Timing
from spark_client.transport.memory_transport import MemoryTransport
from tests.spark_client.partition import CUSTOMERS, DIMENSIONS, connection_to

KEY = pa.schema({"id": pa.int64()})
REQUEST = ChannelRequest("customers", ("name",), "a test", KEY)
FAR_S = 1e9
WAIT_S = 10.0


def ask(channel: ChannelSession, question: int, *ids: int) -> None:
    """Ask for keys."""
    keys = pa.record_batch([pa.array(ids, pa.int64())], KEY)
    channel.ask(SentKeys(QuestionId(question), keys, FAR_S))


def names(channel: ChannelSession, count: int) -> dict[int, list[str | None]]:
    """The names in the answers to so many keys, by question; missing rows give none."""
    found: dict[int, list[str | None]] = {}
    while count > 0:
        answers = channel.answers(WAIT_S)
        assert answers, "no answer came"
        for answered in answers:
            rows = answered.answer.rows
            found.setdefault(answered.question, []).extend(
                [] if rows is None else rows.column(0).to_pylist()
            )
            count -= answered.answer.size
    return found


def sent(sidecar: FakeSidecar, kind: type[Frame]) -> list[Frame]:
    """What the sidecar received of one kind."""
    return [frame for frame in sidecar.memory.received if isinstance(frame, kind)]


@pytest.fixture
def sidecar() -> FakeSidecar:
    """A sidecar that answers at once."""
    return FakeSidecar(DIMENSIONS)


@pytest.fixture
def connection(sidecar: FakeSidecar) -> Connection:
    """Not connected yet."""
    return connection_to(sidecar)


def test_nothing_connects_before_a_channel(sidecar: FakeSidecar, connection: Connection) -> None:
    """A connection starts no thread and opens nothing until it is needed."""
    before = threading.active_count()

    assert sidecar.connection_count == 0
    assert connection._thread is None
    connection.open(REQUEST)
    assert sidecar.connection_count == 1
    assert threading.active_count() == before + 1


def test_channels_share_one_connection(sidecar: FakeSidecar, connection: Connection) -> None:
    """Answers find the channel that asked, whoever waits first."""
    first, second = connection.open(REQUEST), connection.open(REQUEST)
    ask(first, 1, 1)
    ask(second, 1, 3, 99)

    assert names(second, 2) == {1: ["Ćirić"]}
    assert names(first, 1) == {1: ["Ann"]}
    assert sidecar.connection_count == 1
    assert first.columns == CUSTOMERS.schema.empty_table().select(["name"]).schema


def test_full_channel_blocks_no_other(connection: Connection) -> None:
    """A channel whose answers nobody fetches does not hold the others up."""
    quiet, busy = connection.open(REQUEST), connection.open(REQUEST)
    for question in range(50):
        ask(quiet, question, *range(20))

    for question in range(50):
        ask(busy, question, 1)

    assert len(names(busy, 50)) == 50
    assert len(names(quiet, 1000)) == 50


def test_silent_input_makes_its_channel_idle(sidecar: FakeSidecar) -> None:
    """The thread tells it in time, and again on a new connection; the others stay as they are."""
    now_s = [0.0]
    connection = connection_to(sidecar, Timing(clock=lambda: now_s[0], pause=lambda _: None))
    silent, busy = connection.open(REQUEST), connection.open(REQUEST)

    with silent.awaiting_input():
        now_s[0] = IDLE_AFTER_S
        ask(busy, 1, 1)
        assert names(busy, 1) == {1: ["Ann"]}  # so the thread took its turn
        assert sent(sidecar, frames.Status) == [frames.Status(1, is_idle=True)]
        sidecar.crash()
        ask(busy, 2, 1)
        assert names(busy, 1) == {2: ["Ann"]}

    assert sent(sidecar, frames.Status) == [frames.Status(1, is_idle=True)] * 2


def test_lost_connection_is_replayed(sidecar: FakeSidecar) -> None:
    """After a crash everything unanswered is asked again, and answered once."""
    sidecar.behaviour = Behaviour(is_silent=True)
    connection = connection_to(sidecar)
    channel = connection.open(REQUEST)
    ask(channel, 1, 1, 2)
    ask(channel, 2, 3)
    sidecar.behaviour = Behaviour()

    sidecar.crash()

    assert names(channel, 3) == {1: ["Ann", None], 2: ["Ćirić"]}
    assert sidecar.connection_count == 2
    assert list(channel.answers(0.0)) == []


def test_crashes_lose_and_repeat_nothing(sidecar: FakeSidecar, connection: Connection) -> None:
    """Whenever the connection breaks, each question gets all its answers exactly once."""
    channel = connection.open(REQUEST)
    found: dict[int, list[str | None]] = {}

    for question in range(40):
        ask(channel, question, 1, 3)
        if question % 4 == 0:
            sidecar.crash()
        found |= names(channel, 2)

    assert found == {question: ["Ann", "Ćirić"] for question in range(40)}
    assert list(channel.answers(0.0)) == []


def test_absent_sidecar_is_waited_for(sidecar: FakeSidecar) -> None:
    """Tries go on until the sidecar is there."""
    sidecar.is_down = True
    tries = []

    def pause(seconds: float) -> None:
        tries.append(seconds)
        sidecar.is_down = len(tries) < 3

    channel = connection_to(sidecar, Timing(pause=pause)).open(REQUEST)

    ask(channel, 1, 1)
    assert names(channel, 1) == {1: ["Ann"]}
    assert len(tries) == 3


def test_absent_sidecar_is_an_error_in_the_end(sidecar: FakeSidecar) -> None:
    """After the connect timeout the last reason and the wait are told, and later tries are new."""
    sidecar.is_down = True
    connection = connection_to(sidecar, Timing(connect_timeout_s=0.05))

    with pytest.raises(SidecarUnreachable, match=r"down; tried for 0\.05 s; see connect_timeout"):
        connection.open(REQUEST)
    sidecar.is_down = False
    channel = connection.open(REQUEST)

    ask(channel, 1, 1)
    assert names(channel, 1) == {1: ["Ann"]}


def test_lost_sidecar_fails_open_channels(sidecar: FakeSidecar) -> None:
    """A sidecar that does not come back is an error for everyone who waits, once all is read."""
    channel = connection_to(sidecar, Timing(connect_timeout_s=0.05)).open(REQUEST)
    sidecar.is_down = True

    sidecar.crash()

    with pytest.raises(SidecarUnreachable, match="it is down"):
        names(channel, 1)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ChannelRequest("x", None, "", KEY), ErrorCode.UNKNOWN_DIMENSION),
        (ChannelRequest("customers", ("x",), "", KEY), ErrorCode.UNKNOWN_COLUMN),
    ],
)
def test_refused_channels_are_errors(
    sidecar: FakeSidecar, connection: Connection, request_: ChannelRequest, code: ErrorCode
) -> None:
    """What the sidecar refuses for good is raised to the one who asked, and to nobody else."""
    channel = connection.open(REQUEST)

    with pytest.raises(InvalidRequest) as caught:
        connection.open(request_)

    assert caught.value.code is code
    ask(channel, 1, 1)
    assert names(channel, 1) == {1: ["Ann"]}
    assert sidecar.connection_count == 1


def test_passing_refusal_is_tried_again(sidecar: FakeSidecar, connection: Connection) -> None:
    """An overloaded sidecar is asked again after a while, on the same connection."""
    refusal = frames.Failure(1, ErrorCode.OVERLOADED, "full", is_retryable=True)
    sidecar.memory.refusals += [refusal, refusal]

    channel = connection.open(REQUEST)

    ask(channel, 1, 1)
    assert names(channel, 1) == {1: ["Ann"]}
    assert len(sent(sidecar, frames.Open)) == 3
    assert sidecar.connection_count == 1


def test_lasting_refusal_is_an_error(sidecar: FakeSidecar) -> None:
    """A dimension that stays unavailable is raised after the connect timeout."""
    refusal = frames.Failure(1, ErrorCode.TABLE_UNAVAILABLE, "no table", is_retryable=True)
    sidecar.memory.refusals += [refusal] * 1000
    connection = connection_to(sidecar, Timing(connect_timeout_s=0.05))

    with pytest.raises(BackendError, match="table_unavailable: no table"):
        connection.open(REQUEST)


def test_long_wait_is_told(sidecar: FakeSidecar, caplog: pytest.LogCaptureFixture) -> None:
    """Who waits for a channel reads soon for how long at most, and what went wrong so far."""
    sidecar.is_down = True
    connection = connection_to(sidecar, Timing(connect_timeout_s=0.05, warn_after_s=0.0))

    for _ in range(2):
        with pytest.raises(SidecarUnreachable):
            connection.open(REQUEST)

    assert len(caplog.messages) == 2
    expected = f"waiting up to 0.05 s for customers at {URL}: it is down"
    assert caplog.messages[1] == expected


LATE = "it opened no channel within 2 s: nothing listens there; see connect_timeout"


def test_wait_for_a_channel_has_one_deadline() -> None:
    """The time until the warning is part of the wait; its end tells what the last try found."""
    is_over = threading.Event()
    reasons = ["nothing listens there"]

    def stuck() -> MemoryTransport:
        if reasons:
            raise SidecarUnreachable(URL, reasons.pop())
        is_over.wait()
        raise SidecarUnreachable(URL, "the test is over")

    timing = Timing(connect_timeout_s=2.0, warn_after_s=2.0, open_margin_s=0.0)
    began_s = time.monotonic()
    with pytest.raises(SidecarUnreachable, match=LATE):
        Connection(stuck, url=URL, timing=timing).open(REQUEST)
    took_s = time.monotonic() - began_s
    is_over.set()

    assert 2.0 <= took_s < 4.0


def test_other_version_is_told_with_both(sidecar: FakeSidecar) -> None:
    """A sidecar of another version is refused at once, naming its version and ours."""
    sidecar.behaviour = Behaviour(version=7)

    with pytest.raises(InvalidRequest, match="speaks version 7, this client 1"):
        connection_to(sidecar).open(REQUEST)


def test_goaway_moves_everything_elsewhere(sidecar: FakeSidecar, connection: Connection) -> None:
    """When asked to go, the client asks nothing more there and connects anew."""
    channel = connection.open(REQUEST)
    ask(channel, 1, 1)
    names(channel, 1)

    sidecar.tell(frames.Goaway("drain"))
    while sidecar.connection_count < 2:
        connection._thread.join(0.01) if connection._thread else None
    ask(channel, 2, 3)

    assert names(channel, 1) == {2: ["Ćirić"]}


def test_errors_of_the_connection_reach_all(sidecar: FakeSidecar, connection: Connection) -> None:
    """A fault that concerns the connection ends it for everyone on it."""
    channels = [connection.open(REQUEST), connection.open(REQUEST)]

    sidecar.tell(frames.Failure(0, ErrorCode.BAD_FRAME, "at byte 3", is_retryable=False))

    for channel in channels:
        with pytest.raises(InvalidRequest, match="at byte 3"):
            channel.answers(WAIT_S)


def test_unexpected_frames_are_violations(sidecar: FakeSidecar, connection: Connection) -> None:
    """A sidecar that speaks like a client is none."""
    channel = connection.open(REQUEST)

    sidecar.tell(frames.Hello((1,), AGENT))

    with pytest.raises(ProtocolViolation, match="never sends HELLO"):
        channel.answers(WAIT_S)


@pytest.mark.parametrize(
    ("greeting", "error", "text"),
    [
        (
            frames.Failure(0, ErrorCode.UNAUTHORIZED, "who?", is_retryable=False),
            InvalidRequest,
            "who",
        ),
        (frames.Goaway("no"), ProtocolViolation, "must be WELCOME"),
    ],
)
def test_first_frame_must_welcome(greeting: Frame, error: type[SidelookError], text: str) -> None:
    """A peer that greets otherwise is refused with what it says."""
    sidecar = FakeSidecar(DIMENSIONS)

    def connect() -> MemoryTransport:
        transport = sidecar.connect()
        transport.deliver([encode_frame(greeting)])
        return transport

    with pytest.raises(error, match=text):
        Connection(connect, url="x", timing=Timing()).open(REQUEST)


def test_peer_without_welcome_is_unreachable() -> None:
    """A peer that says nothing is left in time, and tried again until the connect timeout."""

    class Mute:
        """Says nothing."""

        def on_message(self, _: bytes) -> list[bytes]:
            """Nothing."""
            return []

        def more(self) -> list[bytes]:
            """Nothing."""
            return []

    times = itertools.count(0.0, WELCOME_TIMEOUT_S / 2)
    timing = Timing(connect_timeout_s=1.0, clock=lambda: next(times), pause=lambda _: None)

    with pytest.raises(SidecarUnreachable, match="no WELCOME within 10 s"):
        Connection(lambda: MemoryTransport(Mute()), url="x", timing=timing).open(REQUEST)


def test_changed_columns_fail_their_channel_only(sidecar: FakeSidecar) -> None:
    """A dimension that comes back with other columns fails who reads it, and nobody else."""
    connection = connection_to(sidecar)
    channel, other = connection.open(REQUEST), connection.open(REQUEST)

    sidecar.tell(frames.Opened(1, 10, 10, pa.schema({"name": pa.int8()}), ("id",)))

    with pytest.raises(InvalidRequest, match="columns of 'customers' changed"):
        channel.answers(WAIT_S)
    ask(other, 1, 1)
    assert names(other, 1) == {1: ["Ann"]}
    assert frames.Close(1) in sidecar.memory.received


def test_nobody_waits_for_a_late_channel(sidecar: FakeSidecar, connection: Connection) -> None:
    """A channel that opens after its task has gone is closed again."""
    channel = connection.open(REQUEST)

    sidecar.tell(frames.Opened(77, 10, 10, pa.schema([]), ("id",)))
    ask(channel, 1, 1)

    assert names(channel, 1) == {1: ["Ann"]}
    assert frames.Close(77) in sidecar.memory.received


def test_forked_child_touches_nothing(sidecar: FakeSidecar, connection: Connection) -> None:
    """Letting go changes nothing for the parent; without a connection there is nothing to do."""
    connection.disown()
    channel = connection.open(REQUEST)
    connection.disown()

    ask(channel, 1, 1)
    assert names(channel, 1) == {1: ["Ann"]}
    assert sidecar.connection_count == 1


def test_closed_channel_leaves_nothing_behind(sidecar: FakeSidecar, connection: Connection) -> None:
    """Closing cancels what is unanswered, once, and the number is not used again."""
    sidecar.behaviour = Behaviour(is_silent=True)
    channel = connection.open(REQUEST)
    ask(channel, 1, 1)

    channel.close()
    channel.close()
    other = connection.open(REQUEST)

    assert sidecar.memory.received[-3:-1] == [frames.Cancel(1, 1), frames.Close(1)]
    assert other.channel.number == 2
    assert connection._sessions.keys() == {2}


def test_unexpected_trouble_reaches_the_tasks(sidecar: FakeSidecar) -> None:
    """Whatever goes wrong in the thread, nobody waits for it in vain."""

    def broken() -> None:
        raise ZeroDivisionError("oops")

    connection = Connection(broken, url="x", timing=Timing())  # type: ignore[arg-type]  # broken

    with pytest.raises(SidelookError, match="internal: ZeroDivisionError: oops"):
        connection.open(REQUEST)
    assert sidecar.connection_count == 0
