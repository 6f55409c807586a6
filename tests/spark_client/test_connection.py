"""The connection of a worker: channels, losses, reconnects, refusals and GOAWAY.

The sidecar in memory closes the connection for any frame of a channel that it does not know.
"""

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

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
from lookup_core.protocol.frames import MAX_CHANNELS, Frame
from lookup_core.protocol.sent_lookups import RunId
from lookup_core.protocol.stream_client import AGENT, WELCOME_TIMEOUT_S
from spark_client.testing.fake_server import MemoryServer
from spark_client.transport.connection import Connection, Timing
from spark_client.transport.connections import Connections, SidecarAddress, connections
from tests.spark_client.builders import (
    DIMENSIONS,
    KEY,
    REQUEST,
    WAIT_S,
    answered,
    connection_to,
    is_served,
    look_up,
    received,
    result,
)
from tests.spark_client.memory_transport import (
    URL,
    BehavedPeer,
    Behaviour,
    MemoryTransport,
    ReachableSidecar,
    RecordingServer,
)

# Other channels need its credit: CREDIT is always 0.
CONTENDED = Behaviour(credit_records=10, returns_credit=False)


def refusal(
    code: ErrorCode = ErrorCode.OVERLOADED, channel: int = 1, *, is_retryable: bool = True
) -> frames.Failure:
    """An ERROR, retriable by default."""
    return frames.Failure(channel, code, "full", is_retryable=is_retryable)


def test_connects_with_the_first_channel(sidecar: ReachableSidecar, connection: Connection) -> None:
    """No thread and no connection exist before the first channel."""
    before = set(threading.enumerate())
    connection.close_after_fork()  # nothing to close yet
    assert (sidecar.connection_count, connection._thread) == (0, None)

    channel = connection.open(REQUEST)
    connection.close_after_fork()  # in memory there are no descriptors

    assert is_served(channel)
    assert sidecar.connection_count == 1
    assert len(set(threading.enumerate()) - before) == 1


def test_full_channel_blocks_no_other(sidecar: ReachableSidecar, connection: Connection) -> None:
    """Channels share a connection; one whose answers are not fetched does not block the others."""
    quiet, busy = connection.open(REQUEST), connection.open(REQUEST)
    for run in range(50):
        look_up(quiet, run, *range(20))

    for run in range(50):
        look_up(busy, run, 1)

    assert len(answered(busy, 50)) == 50
    assert len(answered(quiet, 1000)) == 50
    assert quiet.channel.columns == pa.schema({"name": pa.utf8()})
    assert sidecar.connection_count == 1


def test_lost_connection_is_replayed(sidecar: ReachableSidecar) -> None:
    """After a crash the unanswered lookups are sent again, and answered once."""
    sidecar.behaviour = Behaviour(is_silent=True)
    channel = connection_to(sidecar).open(REQUEST)
    look_up(channel, 1, 1, 2)
    look_up(channel, 2, 3)
    sidecar.behaviour = Behaviour()

    sidecar.crash()

    assert answered(channel, 3) == {1: [0, 1], 2: [0]}
    assert sidecar.connection_count == 2
    assert list(channel.answers(0.0)) == []


def test_missing_sidecar_is_retried(sidecar: ReachableSidecar) -> None:
    """The connection retries until the sidecar responds."""
    sidecar.is_down = True
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        sidecar.is_down = len(pauses) < 3

    assert is_served(connection_to(sidecar, Timing(pause=pause)).open(REQUEST))
    assert len(pauses) == 3


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ChannelRequest("x", None, "", KEY), ErrorCode.UNKNOWN_DIMENSION),
        (ChannelRequest("customers", ("x",), "", KEY), ErrorCode.UNKNOWN_COLUMN),
    ],
)
def test_final_refusals_fail_their_channel(
    sidecar: ReachableSidecar, connection: Connection, request_: ChannelRequest, code: ErrorCode
) -> None:
    """A refused channel raises; the others and the connection continue."""
    channel = connection.open(REQUEST)

    with pytest.raises(InvalidRequest) as caught:
        connection.open(request_)

    assert caught.value.code is code
    assert is_served(channel)
    assert sidecar.connection_count == 1


def test_retriable_refusals_are_retried(sidecar: ReachableSidecar, connection: Connection) -> None:
    """An overloaded sidecar gets OPEN again on the same connection."""
    sidecar.memory.refusals += [refusal(), refusal()]

    assert is_served(connection.open(REQUEST))
    assert len(received(sidecar, frames.Open)) == 3
    assert sidecar.connection_count == 1


UNAVAILABLE = ErrorCode.TABLE_UNAVAILABLE


@pytest.mark.parametrize(
    ("sent", "is_interactive"),
    [
        (refusal(UNAVAILABLE, is_retryable=False), False),
        (refusal(UNAVAILABLE), True),
        (refusal(ErrorCode.BACKEND_AUTH), True),
    ],
)
def test_lasting_refusal_fails_at_once(
    sidecar: ReachableSidecar, connection: Connection, sent: frames.Failure, *, is_interactive: bool
) -> None:
    """A permanent refusal ends any OPEN; the driver's also one that a person must mend."""
    sidecar.memory.refusals.append(sent)

    with pytest.raises(BackendError, match=f"{sent.code}: full") as caught:
        connection.open(REQUEST, is_interactive=is_interactive)

    assert caught.value.is_permanent is not sent.is_retryable
    assert len(received(sidecar, frames.Open)) == 1


@pytest.mark.parametrize("work", ["keys", "a watermark"])
def test_revoked_channel_opens_with_work(
    sidecar: ReachableSidecar, connection: Connection, work: str
) -> None:
    """A channel that ended while it was silent is opened again for keys or a watermark."""
    silent, busy = connection.open(REQUEST), connection.open(REQUEST)
    sidecar.revoke(1)
    assert is_served(busy)
    revoked = len(received(sidecar, frames.Open))
    if work == "a watermark":
        silent.mark(5)

    assert is_served(silent)
    assert (revoked, len(received(sidecar, frames.Open))) == (2, 3)


def test_driver_waits_for_what_heals(sidecar: ReachableSidecar, connection: Connection) -> None:
    """An outage of the database or an overload is retried, also by the driver."""
    sidecar.memory.refusals += [refusal(), refusal(ErrorCode.BACKEND_UNAVAILABLE)]

    assert is_served(connection.open(REQUEST, is_interactive=True))
    assert len(received(sidecar, frames.Open)) == 3


def test_long_waits_are_logged(sidecar: ReachableSidecar, caplog: pytest.LogCaptureFixture) -> None:
    """A missing sidecar or a lasting refusal is logged, and raised after the connect timeout."""
    connection = connection_to(sidecar, Timing(connect_timeout_s=0.1, warn_after_s=0.05))

    sidecar.memory.refusals += [refusal(ErrorCode.TABLE_UNAVAILABLE)] * 1000
    with pytest.raises(BackendError, match="table_unavailable: full"):
        connection.open(REQUEST)
    sidecar.is_down = True
    sidecar.crash()
    with pytest.raises(SidecarUnreachable, match=r"down; tried for 0\.1 s; see connect_timeout"):
        connection.open(REQUEST)

    waiting = f"waiting up to 0.1 s for customers at {URL}: "
    assert caplog.messages == [f"{waiting}table_unavailable: full", f"{waiting}it is down"]


def test_wait_for_a_channel_is_bounded() -> None:
    """A connection attempt that hangs ends with the reason of the attempt before it."""
    is_over = threading.Event()
    reasons = ["nothing listens there"]

    def stuck() -> MemoryTransport:
        if reasons:
            raise SidecarUnreachable(URL, reasons.pop())
        is_over.wait()
        raise SidecarUnreachable(URL, "the test is over")

    timing = Timing(connect_timeout_s=0.5, warn_after_s=0.25, open_margin_s=0.5)
    late = "it opened no channel within 1 s: nothing listens there; see connect_timeout"
    with pytest.raises(SidecarUnreachable, match=late):
        Connection(stuck, url=URL, timing=timing).open(REQUEST)
    is_over.set()


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        (
            frames.Failure(frames.CONNECTION, ErrorCode.BAD_FRAME, "byte 3", is_retryable=False),
            InvalidRequest,
            "byte 3",
        ),
        (frames.Hello((1,), AGENT), ProtocolViolation, "never sends HELLO here"),
    ],
)
def test_connection_errors_reach_all_channels(
    sidecar: ReachableSidecar,
    connection: Connection,
    frame: Frame,
    error: type[SidelookError],
    text: str,
) -> None:
    """An ERROR of the connection, or a client's frame, ends each channel with its own error."""
    channels = [connection.open(REQUEST), connection.open(REQUEST)]

    sidecar.broadcast(frame)

    for channel in channels:
        with pytest.raises(error, match=text) as caught:
            channel.answers(WAIT_S)
        caught.value.add_remedy("wait")
        assert caught.value.detail.endswith(f"{text}; wait")


@pytest.mark.parametrize("frame", [refusal(channel=frames.CONNECTION), frames.Goaway("drain")])
def test_left_connection_is_replaced(
    sidecar: ReachableSidecar, connection: Connection, frame: Frame
) -> None:
    """After a retriable ERROR of the connection, or GOAWAY, channels move to the next one."""
    channel = connection.open(REQUEST)

    sidecar.broadcast(frame)

    assert is_served(channel)  # perhaps sent before the frame was read
    assert is_served(channel)
    assert sidecar.connection_count == 2


@pytest.mark.parametrize(
    ("greeting", "error", "text"),
    [
        (frames.Failure(0, ErrorCode.UNAUTHORIZED, "x", is_retryable=False), InvalidRequest, "x"),
        (frames.Goaway("no"), ProtocolViolation, "must be WELCOME"),
        (frames.Welcome(7, "a"), InvalidRequest, "a speaks version 7, this client 1"),
    ],
)
def test_first_frame_must_be_a_known_welcome(
    sidecar: ReachableSidecar, greeting: Frame, error: type[SidelookError], text: str
) -> None:
    """A refusal is raised unchanged; another frame, or another version, is refused."""

    def connect() -> MemoryTransport:
        transport = sidecar.connect()
        transport.deliver([encode_frame(greeting)])
        return transport

    with pytest.raises(error, match=text):
        Connection(connect, url="x", timing=Timing()).open(REQUEST)


class MutePeer(BehavedPeer):
    """Never replies."""

    def on_message(self, message: bytes) -> Sequence[bytes]:  # noqa: ARG002 -- a port
        """See `MemoryPeer`."""
        return []


def test_peer_without_welcome_is_unreachable(sidecar: ReachableSidecar) -> None:
    """A silent peer is left after `WELCOME_TIMEOUT_S` of the clock, and retried."""
    times = itertools.count(0.0, WELCOME_TIMEOUT_S / 2)
    timing = Timing(connect_timeout_s=1.0, clock=lambda: next(times), pause=lambda _: None)
    peer = MutePeer({}, Behaviour(), sidecar.memory)

    with pytest.raises(SidecarUnreachable, match="no WELCOME within 10 s"):
        Connection(lambda: MemoryTransport(peer), url="x", timing=timing).open(REQUEST)


def test_unknown_opened_channel_is_closed(
    sidecar: ReachableSidecar, connection: Connection
) -> None:
    """OPENED for a channel whose task has ended is answered with CLOSE."""
    channel = connection.open(REQUEST)

    sidecar.broadcast(frames.Opened(77, 10, 10, pa.schema([]), ("id",)))

    assert is_served(channel)
    assert frames.Close(77) in sidecar.memory.received


def test_closed_channel_leaves_nothing_behind(
    sidecar: ReachableSidecar, connection: Connection
) -> None:
    """Closing cancels the open lookups once, and its number is not used again."""
    sidecar.behaviour = Behaviour(is_silent=True)
    channel = connection.open(REQUEST)
    look_up(channel, 1, 1)

    channel.close()
    channel.close()
    other = connection.open(REQUEST)

    assert sidecar.memory.received[-3:-1] == [frames.Cancel(1, 1), frames.Close(1)]
    assert other.channel.number == 2
    assert connection.client.channels.keys() == {2}


def test_unexpected_errors_reach_the_tasks() -> None:
    """An exception of the thread fails the waiting tasks."""

    def broken() -> MemoryTransport:
        raise ZeroDivisionError("oops")

    with pytest.raises(SidelookError, match="internal: ZeroDivisionError: oops"):
        Connection(broken, url="x", timing=Timing()).open(REQUEST)


def test_lookups_wait_for_open_after_loss() -> None:
    """Answers that end a wait for credit are decoded at a reconnect, and send nothing then."""
    sidecar = ReachableSidecar(DIMENSIONS, CONTENDED)
    connection = connection_to(sidecar)
    blocked, busy = connection.open(REQUEST), connection.open(REQUEST)
    look_up(blocked, 1, *range(6))
    look_up(blocked, 2, *range(9))  # more than the credit that is left, which is not worth a frame
    assert is_served(busy)
    sidecar.behaviour = Behaviour()

    sidecar.crash()

    assert is_served(busy)
    assert answered(blocked, 15) == {1: [*range(6)], 2: [*range(9)]}
    assert sidecar.connection_count == 2


def test_failed_channel_sends_nothing() -> None:
    """A malformed answer found at a reconnect fails its channel; the others continue."""
    sidecar = ReachableSidecar(DIMENSIONS, CONTENDED)
    connection = connection_to(sidecar)
    failing, busy = connection.open(REQUEST), connection.open(REQUEST)
    sidecar.broadcast(frames.Result(1, 1, is_last=True, has_rows=False, payload=b""))
    assert is_served(busy)

    look_up(failing, 1, 1)
    sidecar.crash()
    assert is_served(busy)
    failing.report_idle()
    failing.mark(5)
    look_up(failing, 2, 1)
    failing.abandon(RunId(1))
    failing.close()

    assert is_served(busy)
    with pytest.raises(ProtocolViolation, match="an Arrow message was expected"):
        failing.answers(WAIT_S)
    assert [opening.channel for opening in received(sidecar, frames.Open)] == [1, 2, 2]


def test_failed_channel_spares_the_next_connection(sidecar: ReachableSidecar) -> None:
    """A task that has not noticed the end of its channel sends nothing on a later connection."""
    connection = connection_to(sidecar, Timing(connect_timeout_s=0.05))
    failed, thread = connection.open(REQUEST), connection._thread
    assert thread is not None
    sidecar.is_down = True
    sidecar.crash()
    thread.join(WAIT_S)
    sidecar.is_down = False
    other = connection.open(REQUEST)

    look_up(failed, 1, 1)
    failed.mark(5)

    assert is_served(other)
    with pytest.raises(SidecarUnreachable):
        failed.answers(WAIT_S)


def test_impossible_opened_fails_alone(sidecar: ReachableSidecar) -> None:
    """OPENED without OPEN, and OPENED with other columns, fail their channels, which are closed."""
    connection = connection_to(sidecar, Timing(clock=lambda: 0.0))  # nothing is ever due
    refused, changed, busy = (connection.open(REQUEST) for _ in range(3))

    sidecar.broadcast(refusal())
    sidecar.broadcast(frames.Opened(1, 10, 10, pa.schema([]), ("id",)))
    sidecar.broadcast(refusal())  # of a channel that is gone
    sidecar.broadcast(frames.Opened(2, 10, 10, pa.schema({"name": pa.int8()}), ("id",)))
    assert is_served(busy)
    look_up(changed, 1, 1)

    assert is_served(busy)
    with pytest.raises(ProtocolViolation, match="OPENED without OPEN"):
        refused.answers(WAIT_S)
    with pytest.raises(InvalidRequest, match="columns of 'customers' changed"):
        changed.answers(WAIT_S)
    assert frames.Close(2) in sidecar.memory.received


class LeavingPeer(BehavedPeer):
    """Sends GOAWAY right behind WELCOME."""

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """See `MemoryPeer`."""
        replies = super().on_message(message)
        goaway = [] if self._memory.received else [encode_frame(frames.Goaway("drain"))]
        return [*replies, *goaway]


def test_goaway_behind_welcome_is_heard(sidecar: ReachableSidecar) -> None:
    """Frames that come in one read with WELCOME are not dropped."""
    leaving = [MemoryTransport(LeavingPeer(DIMENSIONS, Behaviour(), sidecar.memory))]

    def connect() -> MemoryTransport:
        return leaving.pop() if leaving else sidecar.connect()

    connection = Connection(connect, url=URL, timing=Timing(pause=lambda _: None))

    assert is_served(connection.open(REQUEST))
    assert sidecar.connection_count == 1


def test_left_connection_opens_no_channel(sidecar: ReachableSidecar) -> None:
    """After GOAWAY a refused channel is requested on the next connection only."""
    sidecar.behaviour, now_s = Behaviour(is_silent=True), [0.0]
    connection = connection_to(sidecar, Timing(clock=lambda: now_s[0], pause=lambda _: None))
    waiting, refused = connection.open(REQUEST), connection.open(REQUEST)
    look_up(waiting, 1, 0, 1, 2)

    for frame in (refusal(channel=2), frames.Goaway("drain"), refusal(channel=2), result(1, 0)):
        sidecar.broadcast(frame)
    assert answered(waiting, 1) == {1: [0]}
    now_s[0] = 10.0  # long after the channel would be due
    sidecar.broadcast(result(1, 1))
    assert answered(waiting, 1) == {1: [1]}

    assert [opening.channel for opening in received(sidecar, frames.Open)] == [1, 2]
    sidecar.behaviour = Behaviour()
    sidecar.broadcast(result(1, 2, is_last=True))
    assert answered(waiting, 1) == {1: [2]}
    assert is_served(refused)
    assert [opening.channel for opening in received(sidecar, frames.Open)] == [1, 2, 1, 2]


def test_token_is_read_from_its_file(sidecar: ReachableSidecar, tmp_path: Path) -> None:
    """The request has the token, as the sidecar reads it; an unfit file is an error at once."""
    server, token = RecordingServer(sidecar), tmp_path / "token"
    token.write_text("\ufeffsecret\r\n")

    with server.at(tmp_path / "s.sock") as url:
        Connections().to(SidecarAddress(url, str(token), 5.0)).open(REQUEST).close()
        with pytest.raises(InvalidRequest, match="none cannot be read: No such file"):
            Connections().to(SidecarAddress(url, str(tmp_path / "none"))).open(REQUEST)
        token.write_text("sécret")
        with pytest.raises(InvalidRequest, match="is not ASCII text; write one line of printable"):
            Connections().to(SidecarAddress(url, str(token))).open(REQUEST)

    assert server.requests[0].headers["Authorization"] == "Bearer secret"


def test_forked_child_has_no_connection(tmp_path: Path) -> None:
    """A child starts without connections, and the parent's continues."""
    server = MemoryServer(ReachableSidecar(DIMENSIONS))

    with server.at(tmp_path / "s.sock") as url:
        connection = connections.to(SidecarAddress(url))
        channel = connection.open(REQUEST)
        child = os.fork()
        if child == 0:
            os._exit(0 if connections.to(SidecarAddress(url)) is not connection else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert is_served(channel)
        channel.close()

    assert len(server.connections) == 1


def test_import_starts_nothing() -> None:
    """The import and a join start no thread and open no socket."""
    program = (
        "import socket, threading\n"
        "made = []\n"
        "class Counted(socket.socket):\n"
        "    def __init__(self, *arguments, **options):\n"
        "        made.append(arguments)\n"
        "        super().__init__(*arguments, **options)\n"
        "socket.socket = Counted\n"
        "import spark_client\n"
        "spark_client.Sidecar('unix:///nowhere').lookup_join('d', on='k')\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not made, made\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    subprocess.run([sys.executable, "-c", program], check=True, env=environ)


def test_channels_spread_over_connections(tmp_path: Path) -> None:
    """The 65th channel of a process has a connection of its own; places that are free are used."""
    sidecar = ReachableSidecar(DIMENSIONS)
    with MemoryServer(sidecar).at(tmp_path / "s.sock") as url:
        own, address = Connections(), SidecarAddress(url)
        channels = [own.to(address).open(REQUEST) for _ in range(MAX_CHANNELS + 1)]
        assert all(is_served(channel) for channel in channels)
        channels[0].close()
        again = own.to(address).open(REQUEST)

        assert is_served(again)
        assert [each.channel for each in received(sidecar, frames.Open)] == [
            *range(1, MAX_CHANNELS + 1),
            1,
            MAX_CHANNELS + 1,
        ]
        for channel in [*channels[1:], again]:
            channel.close()
