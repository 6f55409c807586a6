"""What every `Transport` does, whatever carries its messages.

A test class with a `pair` fixture inherits this.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from lookup_core.errors import SidecarUnreachable
from spark_client.transport.interface import Transport

WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A transport, and what its peer can be made to do."""

    transport: Transport
    say: Callable[[bytes], None]
    heard: Callable[[int], Sequence[bytes]]  # waits for so many messages
    hang_up: Callable[[], None]


def received(transport: Transport, count: int) -> list[bytes]:
    """So many messages, however they are grouped."""
    messages: list[bytes] = []
    until_s = time.monotonic() + WAIT_S
    while len(messages) < count and time.monotonic() < until_s:
        messages += transport.receive(WAIT_S)
    return messages


class TransportContract:
    """Tests; `pair` comes from the class that inherits them."""

    def test_messages_arrive_whole_and_in_order(self, pair: Pair) -> None:
        """Small and large messages are carried unchanged, in both directions."""
        messages = [b"", b"a", b"b" * 3_000_000, b"c"]
        heard: list[bytes] = []

        def peer() -> None:  # in a thread of its own, because a socket holds less than this
            for message in messages:
                pair.say(message)
            heard.extend(pair.heard(4))

        speaking = threading.Thread(target=peer)
        speaking.start()
        for message in messages:
            pair.transport.send(message)
        assert received(pair.transport, 4) == messages
        while speaking.is_alive():
            pair.transport.receive(0.01)
        assert heard == messages

    def test_silence_ends_the_wait(self, pair: Pair) -> None:
        """Receiving without a message returns nothing when the time is over."""
        assert list(pair.transport.receive(0.0)) == []

    def test_wake_ends_the_wait_early(self, pair: Pair) -> None:
        """Another thread can end a wait; also one that has not begun."""
        threading.Timer(0.05, pair.transport.wake).start()

        started_s = time.monotonic()
        assert list(pair.transport.receive(WAIT_S / 2)) == []
        assert time.monotonic() - started_s < WAIT_S / 2

    def test_messages_before_the_end_are_delivered(self, pair: Pair) -> None:
        """What the peer said before it left is not lost; then the loss is an error, again."""
        pair.say(b"last words")
        pair.hang_up()

        assert received(pair.transport, 1) == [b"last words"]
        for _ in range(2):
            with pytest.raises(SidecarUnreachable):
                received(pair.transport, 1)

    def test_sending_after_the_end_is_harmless(self, pair: Pair) -> None:
        """A lost or closed transport swallows what is sent, and can be closed again."""
        pair.hang_up()
        with pytest.raises(SidecarUnreachable):
            received(pair.transport, 1)

        pair.transport.send(b"too late")
        pair.transport.close()
        pair.transport.send(b"later still")
        pair.transport.close()
        pair.transport.wake()
