"""Contract of `Transport`, over a WebSocket and in memory, and the faults of a WebSocket.

The WebSocket's server is the websockets library's: another implementation than the client's.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, unix_serve
from websockets.typing import Subprotocol

from lookup_core.errors import ProtocolViolation, SidecarUnreachable
from lookup_core.protocol.frames import SUBPROTOCOL
from spark_client.transport.connection import Transport
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.handshake import handshake
from spark_client.transport.web_socket import LOST_AFTER_S, PING_AFTER_S, WebSocket
from tests.spark_client.builders import WAIT_S
from tests.spark_client.memory_transport import MemoryTransport


class MemoryListener:
    """A peer in memory that records messages."""

    def __init__(self) -> None:
        self.heard: Queue[bytes] = Queue()

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """See `MemoryPeer`."""
        self.heard.put(message)
        return []

    def more(self) -> Sequence[bytes]:
        """See `MemoryPeer`."""
        return []


class WebSocketListener:
    """A server that records its connections and their messages."""

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
            close_timeout=0.1,  # a side that closes does not wait for the other
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
            pass  # a client may leave


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[WebSocketListener]:
    """A server on a Unix socket."""
    listener = WebSocketListener(tmp_path / "s.sock")
    yield listener
    listener.stop()


@pytest.fixture
def web_socket(listener: WebSocketListener) -> Iterator[WebSocket]:
    """A connection to it."""
    connected = handshake(endpoint_of(listener.url), token=None, timeout_s=WAIT_S)
    yield connected
    connected.close()


@pytest.fixture
def connection(
    web_socket: WebSocket,  # noqa: ARG001 -- the other end
    listener: WebSocketListener,
) -> Iterator[ServerConnection]:
    """The server's end of it."""
    connection = listener.connections.get(timeout=WAIT_S)
    yield connection
    connection.close()


@dataclass(frozen=True, slots=True)
class Pair:
    """A transport, and the actions of its peer."""

    transport: Transport
    say: Callable[[bytes], None]
    heard: Queue[bytes]
    hang_up: Callable[[], None]


@pytest.fixture(params=["memory", "web_socket"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Each implementation with its peer."""
    if request.param == "memory":
        peer = MemoryListener()
        memory = MemoryTransport(peer)
        return Pair(
            memory,
            say=lambda message: memory.deliver([message]),
            heard=peer.heard,
            hang_up=lambda: memory.lose("hung up"),
        )
    connection: ServerConnection = request.getfixturevalue("connection")
    return Pair(
        request.getfixturevalue("web_socket"),
        say=connection.send,
        heard=request.getfixturevalue("listener").heard,
        hang_up=connection.close,
    )


def received(transport: Transport, count: int) -> list[bytes]:
    """The next `count` messages, in any grouping."""
    messages: list[bytes] = []
    until_s = time.monotonic() + WAIT_S
    while len(messages) < count and time.monotonic() < until_s:
        messages += transport.receive(WAIT_S)
    return messages


def test_messages_arrive_whole_and_in_order(pair: Pair) -> None:
    """Small and large messages are carried unchanged, in both directions."""
    messages = [b"", b"a", b"b" * 3_000_000, b"c"]
    heard: list[bytes] = []

    def peer() -> None:  # in a thread, because a socket holds less than this
        for message in messages:
            pair.say(message)
        heard.extend(pair.heard.get(timeout=WAIT_S) for _ in messages)

    speaking = threading.Thread(target=peer)
    speaking.start()
    for message in messages:
        pair.transport.send(message)
    assert received(pair.transport, 4) == messages
    while speaking.is_alive():
        pair.transport.receive(0.01)

    assert heard == messages


def test_wake_ends_a_wait(pair: Pair) -> None:
    """A wait ends with its timeout, or when another thread wakes it, also before it begins."""
    assert list(pair.transport.receive(0.0)) == []
    pair.transport.wake()
    waiting = threading.Thread(target=pair.transport.receive, args=(1e6,))
    waiting.start()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()

    waiting = threading.Thread(target=pair.transport.receive, args=(1e6,))
    waiting.start()
    pair.transport.wake()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def test_last_messages_precede_the_loss(pair: Pair) -> None:
    """Messages sent before a loss are delivered; then every `receive` raises."""
    pair.say(b"last words")
    pair.hang_up()

    assert received(pair.transport, 1) == [b"last words"]
    for _ in range(2):
        with pytest.raises(SidecarUnreachable):
            received(pair.transport, 1)


def test_sending_after_the_end_is_harmless(pair: Pair) -> None:
    """A lost or closed transport ignores `send`, `wake` and another `close`."""
    pair.hang_up()
    with pytest.raises(SidecarUnreachable):
        received(pair.transport, 1)

    pair.transport.send(b"too late")
    pair.transport.close()
    pair.transport.send(b"later still")
    pair.transport.close()
    pair.transport.wake()

    assert pair.heard.empty()


def test_fragments_become_one_message(web_socket: WebSocket, connection: ServerConnection) -> None:
    """A fragmented message is delivered whole."""
    connection.send([b"a", b"b", b"c"])

    assert received(web_socket, 1) == [b"abc"]


def test_pings_are_answered(web_socket: WebSocket, connection: ServerConnection) -> None:
    """`receive` answers the heartbeat of the service."""
    answered = connection.ping()

    web_socket.receive(1.0)

    assert answered.wait(WAIT_S)


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        *((code, ProtocolViolation, f"{code}: because") for code in (1002, 1003, 1007, 1008, 1009)),
        *((code, SidecarUnreachable, f"closed with {code}: because") for code in (1001, 1011)),
    ],
)
def test_close_code_tells_the_fault(
    web_socket: WebSocket,
    connection: ServerConnection,
    code: int,
    error: type[Exception],
    text: str,
) -> None:
    """A fault of the client's messages is final; a drain or an error of the service is a loss."""
    connection.close(code, "because")

    with pytest.raises(error, match=text):
        received(web_socket, 1)


def test_vanished_peer_is_a_loss(web_socket: WebSocket, connection: ServerConnection) -> None:
    """A killed peer sends no close frame."""
    connection.socket.shutdown(socket.SHUT_RDWR)

    with pytest.raises(SidecarUnreachable):
        received(web_socket, 1)


def test_sender_never_waits(
    web_socket: WebSocket, connection: ServerConnection, listener: WebSocketListener
) -> None:
    """Messages that a stalled peer does not read are kept, and are sent when it reads."""
    connection.recv_flow_control.acquire()
    messages = [bytes([number]) * 400_000 for number in range(4)]

    for message in messages:
        web_socket.send(message)
    assert web_socket._outgoing
    connection.recv_flow_control.release()
    until_s = time.monotonic() + WAIT_S
    while web_socket._outgoing and time.monotonic() < until_s:
        web_socket.receive(0.1)

    assert [listener.heard.get(timeout=WAIT_S) for _ in messages] == messages


def test_silent_peer_is_lost(listener: WebSocketListener) -> None:
    """After `PING_AFTER_S` without a byte a ping is sent; without an answer the peer is lost."""
    ours, theirs = socket.socketpair()
    probe = handshake(endpoint_of(listener.url), token=None, timeout_s=WAIT_S)
    lost_s = PING_AFTER_S + LOST_AFTER_S
    times = iter([0.0, PING_AFTER_S - 1, PING_AFTER_S, lost_s - 1])
    ours.settimeout(0)
    silent = WebSocket(ours, probe._protocol, url="silent", clock=lambda: next(times, lost_s))

    waits = [list(silent.receive(0.0)) for _ in range(2)]
    ping = theirs.recv(100)
    waits.append(list(silent.receive(0.0)))

    assert waits == [[], [], []]
    assert ping[0] == 0x89
    with pytest.raises(SidecarUnreachable, match="silent for 20 s"):
        silent.receive(0.0)
    for each in (silent, probe):
        each.close_after_fork()
    theirs.close()


def test_other_bytes_are_a_violation(web_socket: WebSocket, connection: ServerConnection) -> None:
    """Bytes that are no WebSocket frames end the connection for good."""
    connection.socket.send(b"\xff\xff\xff\xff")

    with pytest.raises(ProtocolViolation, match="does not speak WebSocket"):
        received(web_socket, 1)
