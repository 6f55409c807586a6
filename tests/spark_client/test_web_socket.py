"""Messages over a real socket, against another implementation of WebSocket."""

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, unix_serve
from websockets.typing import Subprotocol

from lookup_core.errors import ProtocolViolation, SidecarUnreachable
from lookup_core.protocol.frames import SUBPROTOCOL
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.handshake import handshake
from spark_client.transport.web_socket import LOST_AFTER_S, PING_AFTER_S, WebSocket
from tests.spark_client.transport_contract import WAIT_S, Pair, TransportContract, received


class Listener:
    """A server that keeps its connection and what it hears."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.heard: Queue[bytes] = Queue()
        self.connections: Queue[ServerConnection] = Queue()
        self.server = unix_serve(
            self._listen,
            str(path),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=None,
            ping_interval=None,
            close_timeout=0.1,  # whoever hangs up does not wait for the other
        )
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        """Close everything."""
        self.server.shutdown()
        self.thread.join()

    def _listen(self, connection: ServerConnection) -> None:
        self.connections.put(connection)
        try:
            for message in connection:
                assert isinstance(message, bytes)
                self.heard.put(message)
        except ConnectionClosed:
            pass  # as it may


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    """A server on a Unix socket."""
    listener = Listener(tmp_path / "s.sock")
    yield listener
    listener.stop()


@pytest.fixture
def web_socket(listener: Listener) -> Iterator[WebSocket]:
    """A connection to it."""
    connected = handshake(endpoint_of(listener.url), token=None, timeout_s=WAIT_S)
    yield connected
    connected.close()


@pytest.fixture
def connection(
    web_socket: WebSocket,  # noqa: ARG001 -- whose other end it is
    listener: Listener,
) -> Iterator[ServerConnection]:
    """The server's end of it."""
    connection = listener.connections.get(timeout=WAIT_S)
    yield connection
    connection.close()


class TestWebSocketTransport(TransportContract):
    """The contract."""

    @pytest.fixture
    def pair(self, web_socket: WebSocket, connection: ServerConnection, listener: Listener) -> Pair:
        """A transport and its peer."""
        return Pair(
            web_socket,
            say=connection.send,
            heard=lambda count: [listener.heard.get(timeout=WAIT_S) for _ in range(count)],
            hang_up=connection.close,
        )


def test_fragments_become_one_message(web_socket: WebSocket, connection: ServerConnection) -> None:
    """A message that comes in pieces is delivered whole."""
    connection.send([b"a", b"b", b"c"])

    assert received(web_socket, 1) == [b"abc"]


def test_pings_are_answered(web_socket: WebSocket, connection: ServerConnection) -> None:
    """Whoever listens answers the service's heartbeat without anybody's help."""
    answered = connection.ping()

    web_socket.receive(1.0)

    assert answered.wait(WAIT_S)


@pytest.mark.parametrize("code", [1002, 1008, 1009])
def test_our_fault_is_final(web_socket: WebSocket, connection: ServerConnection, code: int) -> None:
    """A peer that closes because of what we sent is not asked again."""
    connection.close(code, "bad_frame: at byte 0")

    with pytest.raises(ProtocolViolation, match=f"{code}: bad_frame"):
        received(web_socket, 1)


@pytest.mark.parametrize("code", [1001, 1011, 1013])
def test_other_ends_may_be_tried_again(
    web_socket: WebSocket, connection: ServerConnection, code: int
) -> None:
    """A drain, a bug or an overload of the service is a loss like any other."""
    connection.close(code, "later")

    with pytest.raises(SidecarUnreachable, match=f"closed with {code}: later"):
        received(web_socket, 1)


def test_vanished_peer_is_a_loss(web_socket: WebSocket, connection: ServerConnection) -> None:
    """A peer that is killed closes nothing properly."""
    connection.socket.shutdown(socket.SHUT_RDWR)

    with pytest.raises(SidecarUnreachable):
        received(web_socket, 1)


def test_sender_never_waits(web_socket: WebSocket, connection: ServerConnection) -> None:
    """What a peer that reads nothing does not take is kept, and goes out when it reads."""
    connection.recv_flow_control.acquire()
    messages = [bytes([number]) * 400_000 for number in range(4)]

    for message in messages:
        web_socket.send(message)
    assert web_socket._outgoing
    connection.recv_flow_control.release()
    until_s = time.monotonic() + WAIT_S
    while web_socket._outgoing and time.monotonic() < until_s:
        web_socket.receive(0.1)

    assert not web_socket._outgoing


def test_silent_peer_is_noticed(listener: Listener) -> None:
    """After a while without a word there is a ping; without an answer the peer is lost."""
    ours, theirs = socket.socketpair()
    probe = handshake(endpoint_of(listener.url), token=None, timeout_s=WAIT_S)
    times = itertools.chain([0.0, PING_AFTER_S - 1, PING_AFTER_S], itertools.repeat(100.0))
    ours.settimeout(0)
    silent = WebSocket(ours, probe._protocol, url="silent", clock=lambda: next(times))

    assert list(silent.receive(0.0)) == []
    assert list(silent.receive(0.0)) == []
    assert theirs.recv(100)[0] == 0x89  # a ping
    assert LOST_AFTER_S < 100 - PING_AFTER_S
    with pytest.raises(SidecarUnreachable, match="silent for 100 s"):
        silent.receive(0.0)
    for each in (silent, probe):
        each.disown()
    theirs.close()


def test_garbage_is_a_violation(web_socket: WebSocket, connection: ServerConnection) -> None:
    """Bytes that are no WebSocket frames end the connection for good."""
    connection.socket.send(b"\xff\xff\xff\xff")

    with pytest.raises(ProtocolViolation):
        received(web_socket, 1)
