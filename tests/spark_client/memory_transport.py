"""Connections to a fake sidecar in the same process, which tests can break."""

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Protocol

from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection
from websockets.typing import Subprotocol

from lookup_core.errors import BackendError, ErrorCode, SidecarUnreachable, SidelookError
from lookup_core.protocol import frames
from lookup_core.protocol.credit_ledger import Grant
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import SUBPROTOCOL, Frame
from lookup_core.protocol.stream_effects import Offer, Submit
from spark_client.testing.fake_server import MemoryServer
from spark_client.testing.fake_sidecar import FakePeer, FixedCredit, MemorySidecar
from spark_client.testing.served_dimension import ServedDimension

URL = "memory:"


class MemoryPeer(Protocol):
    """The other end of a `MemoryTransport`; called by one thread at a time."""

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """The immediate replies; raises ProtocolViolation to close the connection."""

    def more(self) -> Sequence[bytes]:
        """Later messages; called with each `receive`."""


class MemoryTransport:
    """A `Transport` to a peer in the same process; waits and wakes like a socket."""

    def __init__(self, peer: MemoryPeer, *, messages: int | None = None) -> None:
        """It is lost instead of carrying more messages than this; None: it lasts."""
        self._peer = peer
        self._messages_left = messages
        self._changed = threading.Condition()
        self._inbox: list[bytes] = []
        self._failure: SidelookError | None = None
        self._is_woken = False

    def send(self, message: bytes) -> None:
        """See `Transport`."""
        with self._changed:
            if self._failure is None:
                try:
                    if self._carries():
                        self._inbox.extend(self._peer.on_message(message))
                except SidelookError as error:
                    self._failure = error
                self._wake()

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """See `Transport`."""
        with self._changed:
            self._changed.wait_for(self._has_something, timeout_s)
            self._is_woken = False
            inbox, self._inbox = self._inbox, []
            received = [message for message in inbox if self._carries()]
            if self._failure is not None and not received:
                raise self._failure
            return received

    def wake(self) -> None:
        """See `Transport`."""
        with self._changed:
            self._wake()

    def close(self) -> None:
        """See `Transport`."""
        self.lose("closed by the client")

    def close_after_fork(self) -> None:
        """See `Transport`; there are no descriptors."""

    def deliver(self, messages: Sequence[bytes]) -> None:
        """Send from the peer's side."""
        with self._changed:
            self._inbox.extend(messages)
            self._changed.notify()

    def lose(self, reason: str) -> None:
        """Break the connection; messages that have arrived are still delivered."""
        with self._changed:
            self._failure = self._failure or SidecarUnreachable("memory", reason)
            self._changed.notify()

    def _carries(self) -> bool:
        if self._messages_left is None:
            return True
        self._messages_left -= 1
        if self._messages_left < 0:
            self._failure = self._failure or SidecarUnreachable("memory", "lost on purpose")
        return self._messages_left >= 0

    def _wake(self) -> None:
        self._is_woken = True
        self._changed.notify()

    def _has_something(self) -> bool:
        if self._failure is None:
            self._inbox.extend(self._peer.more())
        return bool(self._inbox or self._is_woken or self._failure)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Credit, and the size and order of the answers."""

    credit_records: int = 1_000
    credit_bytes: int = 1_000_000
    part_size: int | None = None  # keys of one RESULT; None: one for each outcome
    seed: int | None = None  # shuffles the parts that wait; None: they come in order
    is_silent: bool = False  # takes lookups and never answers
    returns_credit: bool = True  # False: CREDIT is always 0, as if other channels needed it
    cache: str | None = None  # the folder of a shared cache


@dataclass(slots=True)
class Memory:
    """State of a sidecar over all its connections."""

    received: list[Frame] = field(default_factory=list)  # without HELLO
    refusals: list[frames.Failure] = field(default_factory=list)  # for the next OPENs, one each
    chance: random.Random = field(default_factory=random.Random)


class _BehavedCredit(FixedCredit):
    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(behaviour.credit_records, behaviour.credit_bytes)
        self._returns_credit = behaviour.returns_credit

    def take_back(self, channel: int, ended: Grant, *, record_bytes: int) -> Grant:
        """Let the channel have all of it again, or nothing."""
        kept = super().take_back(channel, ended, record_bytes=record_bytes)
        return kept if self._returns_credit else ended


class BehavedPeer(FakePeer):
    """A fake sidecar's side of a connection, with a behaviour, and with a memory."""

    def __init__(
        self, dimensions: Mapping[str, ServedDimension], behaviour: Behaviour, memory: Memory
    ) -> None:
        super().__init__(dimensions, _BehavedCredit(behaviour))
        self._behaviour = behaviour
        self._memory = memory

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """See `FakePeer`."""
        frame = decode_frame(message)
        if not isinstance(frame, frames.Hello):
            self._memory.received.append(frame)
        return super().on_message(message)

    def more(self) -> Sequence[bytes]:
        """Later messages: the next answer that waits, or all of them without a seed."""
        if self._behaviour.is_silent:
            return self.replies()
        if self._behaviour.seed is None:
            return super().more()
        if self.waiting:
            self.answer(self._memory.chance.choice([*self.waiting]))
        return self.replies()

    def offer(self, requested: frames.Open) -> Offer:
        """See `FakePeer`."""
        if self._memory.refusals:
            failure = self._memory.refusals.pop(0)
            code, is_permanent = ErrorCode(failure.code), not failure.is_retryable
            raise BackendError(code, failure.detail, is_permanent=is_permanent)
        return replace(super().offer(requested), cache=self._behaviour.cache)

    def submit(self, submit: Submit) -> None:
        """See `FakePeer`."""
        super().submit(submit)
        size = self._behaviour.part_size
        self.waiting[submit.part] = [
            part
            for answer in self.waiting[submit.part]
            for part in answer.parts(size or answer.size)
        ]


class ReachableSidecar(MemorySidecar):
    """A fake sidecar that any thread may connect to, any number of times."""

    def __init__(
        self, dimensions: Mapping[str, ServedDimension], behaviour: Behaviour | None = None
    ) -> None:
        super().__init__(dimensions)
        self.behaviour = behaviour or Behaviour()
        self.memory = Memory(chance=random.Random(self.behaviour.seed))  # noqa: S311 -- repeatable
        self.connection_count = 0
        self.is_down = False
        self.messages_until_loss: list[int] = []  # of the next connections; later ones last
        self._transports: list[MemoryTransport] = []
        self._peers: list[FakePeer] = []

    def new_peer(self) -> FakePeer:
        """The service's side of a new connection, for any transport."""
        return BehavedPeer(self.dimensions, self.behaviour, self.memory)

    def connect(self) -> MemoryTransport:
        """A new connection; raises SidecarUnreachable while the sidecar is down."""
        if self.is_down:
            raise SidecarUnreachable(URL, "it is down")
        self.connection_count += 1
        peer = self.new_peer()
        messages = self.messages_until_loss.pop() if self.messages_until_loss else None
        transport = MemoryTransport(peer, messages=messages)
        self._peers.append(peer)
        self._transports.append(transport)
        return transport

    def revoke(self, channel: int) -> None:
        """End a channel of each connection, as if another one needed its share of credit."""
        for peer in self._peers:
            peer.server.revoke(channel, 0.0)

    def crash(self) -> None:
        """Break all connections; open lookups stay unanswered."""
        for transport in self._transports:
            transport.lose("crashed")

    def broadcast(self, frame: Frame) -> None:
        """Send a frame on all connections."""
        for transport in self._transports:
            transport.deliver([encode_frame(frame)])


class RecordingServer(MemoryServer):
    """Records requests; refuses them with `status` if it is set."""

    def __init__(self, sidecar: MemorySidecar, *, subprotocol: str | None = SUBPROTOCOL) -> None:
        super().__init__(sidecar)
        self.status: HTTPStatus | None = None
        self.requests: list[Request] = []
        self.subprotocols = None if subprotocol is None else [Subprotocol(subprotocol)]

    def refusal(self, connection: ServerConnection, request: Request) -> Response | None:
        """See `MemoryServer`."""
        self.requests.append(request)
        if self.status is not None:
            return connection.respond(self.status, "no\n")
        return super().refusal(connection, request)
