"""The transport without a network."""

from collections.abc import Sequence
from queue import Queue

import pytest

from lookup_core.errors import ErrorCode, ProtocolViolation
from spark_client.transport.memory_transport import MemoryTransport
from tests.spark_client.transport_contract import WAIT_S, Pair, TransportContract


class Listener:
    """A peer that only listens."""

    def __init__(self) -> None:
        self.heard: Queue[bytes] = Queue()

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """Note it; one message is answered, one is a fault."""
        self.heard.put(message)
        if message == b"wrong":
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "wrong")
        return [b"answer"] if message == b"question" else []

    def more(self) -> Sequence[bytes]:
        """Nothing."""
        return []


class TestMemoryTransport(TransportContract):
    """The contract, and what a peer in memory adds."""

    @pytest.fixture
    def pair(self) -> Pair:
        """A transport and its peer."""
        listener = Listener()
        transport = MemoryTransport(listener)
        return Pair(
            transport,
            say=lambda message: transport.deliver([message]),
            heard=lambda count: [listener.heard.get(timeout=WAIT_S) for _ in range(count)],
            hang_up=lambda: transport.lose("hung up"),
        )


def test_peer_answers_at_once() -> None:
    """What the peer says to a message is there for the next who listens."""
    transport = MemoryTransport(Listener())

    transport.send(b"question")

    assert list(transport.receive(1.0)) == [b"answer"]


def test_violation_closes_the_transport() -> None:
    """A peer that refuses a message ends the connection with its reason."""
    transport = MemoryTransport(Listener())

    transport.send(b"wrong")
    transport.send(b"question")

    with pytest.raises(ProtocolViolation, match="wrong"):
        transport.receive(1.0)


def test_forked_child_lets_go() -> None:
    """There is nothing to let go of, and the parent goes on."""
    transport = MemoryTransport(Listener())

    transport.disown()

    transport.send(b"question")
    assert list(transport.receive(1.0)) == [b"answer"]
