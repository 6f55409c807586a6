"""Non-blocking WebSocket transport with heartbeats.

The protocol core of the websockets library parses frames; its blocking client is not used, because
a peer that stops reading would block the task in `send`.
"""

import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State

from lookup_core.errors import SidecarUnreachable, SidelookError, bad_frame

PING_AFTER_S = 5.0  # without a byte from the peer
LOST_AFTER_S = 15.0  # after a ping, without a byte from the peer
RECEIVE_BYTES = 1024 * 1024
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_DATA = {Opcode.BINARY, Opcode.TEXT, Opcode.CONT}
_CLIENT_FAULTS = {
    CloseCode.PROTOCOL_ERROR,
    CloseCode.UNSUPPORTED_DATA,
    CloseCode.INVALID_DATA,
    CloseCode.POLICY_VIOLATION,
    CloseCode.MESSAGE_TOO_BIG,
}


class WebSocket:
    """A `Transport` over an open connection; see `handshake`."""

    def __init__(
        self,
        connected: socket.socket,
        protocol: ClientProtocol,
        *,
        url: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = connected
        self._protocol = protocol
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()  # protects socket, protocol and outgoing bytes
        self._outgoing: deque[memoryview] = deque()
        self._received: list[bytes] = []
        self._fragments: list[bytes] = []
        self._heard_s = clock()
        self._pinged_s: float | None = None
        self._is_closed = False
        self._failure: SidelookError | None = None
        self._waker, self._woken = socket.socketpair()
        self._waker.settimeout(0)
        self._woken.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(connected, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def send(self, message: bytes) -> None:
        """See `Transport`."""
        with self._lock:
            if self._is_closed or self._protocol.state is not State.OPEN:
                return
            self._protocol.send_binary(message)
            has_more = self._flush()
        if has_more:
            self.wake()

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """See `Transport`."""
        with self._lock:
            writes = selectors.EVENT_WRITE if self._outgoing else 0
        self._selector.modify(self._socket, selectors.EVENT_READ | writes)
        for key, _ in self._selector.select(max(0.0, min(timeout_s, PING_AFTER_S))):
            if key.fileobj is self._woken:
                self._woken.recv(4096)
        with self._lock:
            self._advance()
            received, self._received = self._received, []
            if self._failure is not None and not received:
                raise self._failure
            return received

    def wake(self) -> None:
        """See `Transport`."""
        with suppress(OSError):  # full: it wakes anyway; closed: no `receive` waits
            self._waker.send(b"\0")

    def close(self) -> None:
        """See `Transport`."""
        with self._lock:
            if not self._is_closed and self._protocol.state is State.OPEN:
                self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
                self._flush()
            self._is_closed = True
        self.close_after_fork()

    def close_after_fork(self) -> None:
        """See `Transport`."""
        self._selector.close()
        for each in (self._socket, self._waker, self._woken):
            each.close()

    def _advance(self) -> None:
        if self._failure is not None:
            return
        try:
            self._flush()
            if self._read():
                self._heard_s, self._pinged_s = self._clock(), None
            else:
                self._check_heartbeat()
        except SidelookError as error:  # earlier messages are delivered first
            self._failure = error

    def _read(self) -> bool:
        """Feed received bytes to the protocol; whether there were any."""
        has_heard = False
        while True:  # to the end: a selector does not see bytes that TLS holds
            try:
                chunk = self._socket.recv(RECEIVE_BYTES)
            except _WOULD_BLOCK:
                break
            except OSError as error:
                raise self._lost(str(error)) from error
            if not chunk:
                raise self._lost("the sidecar closed the connection")
            has_heard = True
            self._protocol.receive_data(chunk)
            self._take_events()
        return has_heard

    def _take_events(self) -> None:
        for frame in self._protocol.events_received():
            if isinstance(frame, Frame) and frame.opcode in _DATA:
                self._fragments.append(bytes(frame.data))
                if frame.fin:
                    self._received.append(b"".join(self._fragments))
                    self._fragments.clear()
        self._flush()  # pongs
        if self._protocol.state is not State.OPEN:
            raise self._closed_by_peer()

    def _flush(self) -> bool:
        """Send what the socket accepts; whether bytes are left. Errors show when reading."""
        self._outgoing.extend(memoryview(data) for data in self._protocol.data_to_send() if data)
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[0])
            except _WOULD_BLOCK:
                return True
            except OSError:
                self._outgoing.clear()
                return False
            if sent < len(self._outgoing[0]):
                self._outgoing[0] = self._outgoing[0][sent:]
            else:
                self._outgoing.popleft()
        return False

    def _check_heartbeat(self) -> None:
        now_s = self._clock()
        if self._pinged_s is not None and now_s - self._pinged_s >= LOST_AFTER_S:
            raise self._lost(f"silent for {now_s - self._heard_s:.0f} s")
        if self._pinged_s is None and now_s - self._heard_s >= PING_AFTER_S:
            self._protocol.send_ping(b"")
            self._pinged_s = now_s
            self._flush()

    def _closed_by_peer(self) -> SidelookError:
        close = self._protocol.close_rcvd
        reason = f"does not speak WebSocket: {self._protocol.parser_exc}"
        if close is not None:
            reason = f"closed with {close.code}: {close.reason}"
        if close is None or close.code in _CLIENT_FAULTS:
            return bad_frame(f"{self._url} {reason}")
        return self._lost(reason)

    def _lost(self, reason: str) -> SidecarUnreachable:
        return SidecarUnreachable(self._url, reason)
