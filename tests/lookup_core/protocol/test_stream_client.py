"""The client's side of a connection: greeting, refusals, GOAWAY, losses and limits of time."""

import pytest

from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    ProtocolViolation,
    SidecarUnreachable,
)
from lookup_core.protocol import frames
from lookup_core.protocol.client_channel import ClientChannel
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.stream_client import (
    AGENT,
    WELCOME_TIMEOUT_S,
    Reaction,
    StreamClient,
)
from tests.lookup_core.protocol.channel_frames import REQUEST, opened, sent_keys

WELCOME = frames.Welcome(1, "a service")
OVERLOADED = frames.Failure(1, ErrorCode.OVERLOADED, "full", is_retryable=True)


class Client(StreamClient):
    """A client whose frames come without jitter."""

    now_s = 0.0

    def hear(self, frame: Frame) -> Reaction:
        """A frame of the service arrives."""
        return self.receive(encode_frame(frame), now_s=self.now_s, jitter=0.0)


@pytest.fixture
def client() -> Client:
    """A client that has sent HELLO and requested one channel."""
    client = Client("x", connect_timeout_s=60.0)
    assert client.open(REQUEST)[1] == Reaction()
    assert decode_frame(client.on_connected(0.0)) == frames.Hello((1,), AGENT)
    return client


@pytest.fixture
def channel(client: Client) -> ClientChannel:
    """Its channel, which is open."""
    client.hear(WELCOME)
    (channel,) = client.hear(opened()).changed
    return channel


def test_welcome_requests_the_channels(client: Client) -> None:
    """No channel is requested before WELCOME, and later ones at once."""
    (first,) = client.hear(WELCOME).sending
    (second,) = client.open(REQUEST)[1].sending

    assert (type(first), type(second)) == (frames.Open, frames.Open)
    assert list(client.channels) == [1, 2]


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (frames.Welcome(2, "new"), InvalidRequest),
        (frames.Goaway("no"), ProtocolViolation),
        (frames.Failure(0, "draining", "", is_retryable=True), BackendError),
    ],
)
def test_other_greetings_are_refused(client: Client, frame: Frame, error: type[Exception]) -> None:
    """The first frame is a WELCOME with the version of the client."""
    with pytest.raises(error):
        client.hear(frame)

    assert not client.is_welcome


def test_welcome_comes_in_time(client: Client) -> None:
    """Without WELCOME, the connection ends after `WELCOME_TIMEOUT_S`."""
    assert client.tick(WELCOME_TIMEOUT_S - 0.1) == Reaction()
    with pytest.raises(SidecarUnreachable, match="no WELCOME within 10 s"):
        client.tick(WELCOME_TIMEOUT_S)


def test_refused_channel_is_requested_when_due(client: Client) -> None:
    """A retriable refusal is repeated after its delay; a final one ends the channel."""
    client.hear(WELCOME)
    assert client.hear(OVERLOADED) == Reaction()
    assert (client.next_due_s(), client.tick(0.024)) == (0.025, Reaction())
    (again,) = client.tick(0.025).sending
    (failed,) = client.hear(frames.Failure(1, "key_type", "", is_retryable=False)).changed

    assert isinstance(again, frames.Open)
    assert isinstance(failed.failure, InvalidRequest)
    assert (client.channels, client.next_due_s()) == ({}, None)


def test_overdue_channel_waits_for_welcome(client: Client) -> None:
    """A shell has nothing to do for a refused channel until the next connection is greeted."""
    client.hear(WELCOME)
    client.hear(OVERLOADED)
    client.on_lost()
    client.on_connected(1.0)

    assert (client.next_due_s(), client.tick(2.0)) == (None, Reaction())
    assert [type(each) for each in client.hear(WELCOME).sending] == [frames.Open]
    assert client.next_due_s() is None


def test_connection_is_left_without_answers_due(client: Client, channel: ClientChannel) -> None:
    """After GOAWAY nothing new is sent; the connection ends once no answer is due."""
    (sent,) = channel.look_up(sent_keys(1, "a"), now_s=0.0)
    client.hear(frames.Goaway("drain"))

    assert isinstance(sent, frames.Lookup)
    assert channel.look_up(sent_keys(2, "b"), now_s=0.0) == []
    assert client.open(REQUEST)[1] == Reaction()
    assert client.tick(1.0) == Reaction()
    channel.abandon(sent_keys(1).run, now_s=1.0)
    with pytest.raises(SidecarUnreachable, match="going away"):
        client.tick(1.0)
    client.on_lost()
    client.on_connected(1.0)
    assert [each.channel for each in client.hear(WELCOME).sending if isinstance(each, frames.Open)]


def test_malformed_frame_ends_its_channel(client: Client, channel: ClientChannel) -> None:
    """OPENED with other columns fails and closes its channel; the connection stays."""
    other = frames.Opened(1, 1, 1, REQUEST.key, ("id",))

    assert client.hear(other) == Reaction((frames.Close(1),), (channel,))
    assert client.hear(opened()) == Reaction((frames.Close(1),))
    assert client.hear(frames.Closed(1)) == Reaction()
    with pytest.raises(ProtocolViolation, match="a sidecar never sends HELLO here"):
        client.hear(frames.Hello((1,), AGENT))


def test_attempts_end_after_the_timeout(client: Client, channel: ClientChannel) -> None:
    """Delays grow until the connect timeout; then all channels fail with errors of their own."""
    lost = SidecarUnreachable("x", "down")
    delays = [client.retry_in_s(lost, now_s=now_s, jitter=0.0) for now_s in (0.0, 1.0)]
    with pytest.raises(SidecarUnreachable, match="tried for 60 s") as caught:
        client.retry_in_s(lost, now_s=60.0, jitter=0.0)

    assert delays == [0.025, 0.05]
    assert client.fail_all(caught.value) == [channel]
    assert channel.failure is not caught.value
    assert str(channel.failure) == str(caught.value)
