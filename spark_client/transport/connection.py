"""Connection of a Python worker to one sidecar: many channels, and one thread for the network.

The thread connects, reads, answers heartbeats and reconnects, so tasks never block in the network.
`channel_session` applies frames to their channels.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from lookup_core.backoff import NEVER, Backoff
from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
    bad_frame,
)
from lookup_core.protocol import frames
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import MAX_CHANNELS, PROTOCOL_VERSION, ChannelFrame, Frame
from spark_client.transport.channel_session import ChannelSession, Wire, nothing
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.shared_cache import MappedCache, boot_time

_log = logging.getLogger(__name__)

AGENT = "sidelook-client"
WELCOME_TIMEOUT_S = 10.0
_IDLE_S = 60.0  # without a channel; then the connection is closed
_TICK_S = 1.0
_STABLE_S = 10.0  # after which a connection resets the reconnect backoff


class Transport(Protocol):
    """Whole messages to and from one sidecar, over one connection."""

    def send(self, message: bytes) -> None:
        """Send without blocking; from any thread. A no-op after a loss or `close`."""

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """The messages that have come; waits at most `timeout_s`; from one thread only.

        Raises SidecarUnreachable when the connection is lost, ProtocolViolation when the peer
        closed it because of the client's messages.
        """

    def wake(self) -> None:
        """End a waiting `receive`, or the next one; from any thread."""

    def close(self) -> None:
        """Close, without waiting for the peer; a no-op if closed."""

    def close_after_fork(self) -> None:
        """In a forked child: close the descriptors; the parent continues to use them."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock, jitter and time limits of a connection; tests replace them."""

    connect_timeout_s: float = 60.0
    warn_after_s: float = 3.0  # without a channel
    open_margin_s: float = 5.0  # the thread must give up first: it knows the reason
    clock: Callable[[], float] = time.monotonic
    cache_clock: Callable[[], float] = boot_time
    pause: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.SystemRandom().random  # differs in forked children


class Connection:
    """Opens channels, from any thread; connects when the first one is opened."""

    def __init__(self, connect: Callable[[], Transport], *, url: str, timing: Timing) -> None:
        """`connect` raises SidecarUnreachable if a retry may help."""
        self._connect = connect
        self._url = url
        self._timing = timing
        self._lock = threading.Lock()  # protects everything below
        self._sessions: dict[int, ChannelSession] = {}  # {channel number: session}
        self._caches: dict[str, MappedCache] = {}  # {folder: cache}
        self._report_at_s = 0.0
        self._numbers = count(1)
        self._thread: threading.Thread | None = None
        self._transport: Transport | None = None  # after WELCOME
        self._is_leaving = False  # after GOAWAY
        self._backoff = self._new_backoff()
        self._idle_since_s = 0.0
        self._outage: SidecarUnreachable | None = None  # since the last WELCOME

    @property
    def has_room(self) -> bool:
        """Whether another channel may be opened."""
        with self._lock:
            return len(self._sessions) < MAX_CHANNELS

    def open(self, request: ChannelRequest, *, is_interactive: bool = False) -> ChannelSession:
        """An open channel; `begin` and `finish` in one."""
        return self.finish(self.begin(request, is_interactive=is_interactive))

    def begin(
        self,
        request: ChannelRequest,
        *,
        is_interactive: bool = False,
        wake: Callable[[], None] = nothing,
    ) -> ChannelSession:
        """A channel that is being opened, for `finish`; the caller closes it in any case.

        With `is_interactive`, a refusal that does not heal by itself is raised at once. `wake` is
        called when the channel has answers, or has failed.
        """
        clock = self._timing.clock
        wire = Wire(self._lock, self._send, self._release, clock, self._shared_cache)
        with self._lock:
            channel = ClientChannel(next(self._numbers), request)
            session = ChannelSession(
                channel, wire, backoff=self._new_backoff(), is_interactive=is_interactive, wake=wake
            )
            self._sessions[channel.number] = session
            if self._transport is not None and not self._is_leaving:
                session.reopen()
            if self._thread is None:
                self._backoff = self._new_backoff()
                self._thread = threading.Thread(target=self._run, name="sidelook", daemon=True)
                self._thread.start()
        return session

    def finish(self, session: ChannelSession) -> ChannelSession:
        """Wait until the channel is open, at most about the connect timeout.

        Raises SidecarUnreachable, or the refusal of the service: InvalidRequest or BackendError. A
        permanent refusal is raised at once. After an error the channel is closed.
        """
        with ExitStack() as stack:
            stack.callback(session.close)
            self._wait_until_open(session)
            stack.pop_all()
        return session

    def _wait_until_open(self, session: ChannelSession) -> None:
        timeout_s = self._timing.connect_timeout_s
        quiet_s = min(self._timing.warn_after_s, timeout_s)
        if session.is_open_within(quiet_s):
            return
        what = f"{session.channel.request.dimension} at {self._url}"
        _log.warning("waiting up to %g s for %s: %s", timeout_s, what, self._hindrance(session))
        most_s = timeout_s + self._timing.open_margin_s
        if not session.is_open_within(most_s - quiet_s):
            late = f"it opened no channel within {most_s:g} s: {self._hindrance(session)}"
            raise SidecarUnreachable(self._url, f"{late}; see connect_timeout")

    def _hindrance(self, session: ChannelSession) -> str:
        with self._lock:
            if session.refusal is not None:
                return str(session.refusal)
            return "no answer yet" if self._outage is None else self._outage.reason

    def close_after_fork(self) -> None:
        """In a forked child: close the descriptors. Nothing else is safe to use."""
        if self._transport is not None:
            self._transport.close_after_fork()

    def _new_backoff(self) -> Backoff:
        give_up_after_s = self._timing.connect_timeout_s
        return Backoff(initial_s=0.05, max_s=2.0, give_up_after_s=give_up_after_s)

    def _run(self) -> None:
        try:
            while self._is_needed(is_connected=False):
                self._serve_or_pause()
        except SidelookError as error:
            self._fail_all(error)
        except Exception as error:  # noqa: BLE001 -- the thread's border: waiting tasks must fail
            self._fail_all(SidelookError(ErrorCode.INTERNAL, f"{type(error).__name__}: {error}"))

    def _serve_or_pause(self) -> None:
        try:
            self._serve()
        except SidecarUnreachable as error:
            with self._lock:
                self._outage = error
            delay_s = self._backoff.on_failure(self._timing.jitter(), now=self._timing.clock())
            if delay_s == NEVER:
                raise given_up(self._url, error, self._timing.connect_timeout_s) from error
            if self._is_needed(is_connected=False):
                self._timing.pause(delay_s)

    def _serve(self) -> None:
        transport = self._connect()
        try:
            rest = self._greet(transport)
            self._attach(transport)
            self._take(rest)
            welcomed_s = self._timing.clock()
            while self._is_needed(is_connected=True):
                self._take(transport.receive(self._tick_s()))
                if self._timing.clock() - welcomed_s >= _STABLE_S:
                    self._backoff.on_success()
        finally:
            self._detach(transport)
            transport.close()

    def _greet(self, transport: Transport) -> Sequence[bytes]:
        """Send HELLO and wait for WELCOME; returns the messages that came with it."""
        transport.send(encode_frame(frames.Hello((PROTOCOL_VERSION,), AGENT)))
        deadline_s = self._timing.clock() + WELCOME_TIMEOUT_S
        while (left_s := deadline_s - self._timing.clock()) > 0:
            if messages := transport.receive(left_s):
                _check_welcome(decode_frame(messages[0]))
                return messages[1:]
        raise SidecarUnreachable(self._url, f"no WELCOME within {WELCOME_TIMEOUT_S:g} s")

    def _attach(self, transport: Transport) -> None:
        with self._lock:
            self._transport, self._is_leaving, self._outage = transport, False, None
            for session in self._sessions.values():
                session.reopen()

    def _detach(self, transport: Transport) -> None:
        """After a loss: no channel sends anything before its OPEN on the next connection."""
        with self._lock:
            if self._transport is transport:
                self._transport = None
                for session in self._sessions.values():
                    session.channel.on_lost()

    def _is_needed(self, *, is_connected: bool) -> bool:
        with self._lock:
            if self._thread is not threading.current_thread():
                return False  # a newer thread has replaced it
            idle_s = self._timing.clock() - self._idle_since_s
            if self._sessions or (is_connected and idle_s < _IDLE_S):
                return True
            self._thread = self._transport = None
            self._caches.clear()
            return False

    def _tick_s(self) -> float:
        with self._lock:
            due_s = [each.reopen_at_s for each in self._sessions.values() if each.reopen_at_s]
        return min([_TICK_S, *(each - self._timing.clock() for each in due_s)])

    def _take(self, messages: Sequence[bytes]) -> None:
        with self._lock:
            for message in messages:
                self._dispatch(decode_frame(message))
            now_s = self._timing.clock()
            for session in self._sessions.values():
                session.on_tick(now_s)
            if now_s >= self._report_at_s:
                self._report_at_s = now_s + _TICK_S
                self._report_uses()
            if self._is_leaving and all(each.channel.is_quiet for each in self._sessions.values()):
                raise SidecarUnreachable(self._url, "it is going away")

    def _dispatch(self, frame: Frame) -> None:
        match frame:
            case frames.Opened() | frames.Credit() | frames.Result() | frames.Reason():
                self._dispatch_to_session(frame)
            case frames.Failure():
                self._on_failure(frame)
            case frames.Goaway():
                self._is_leaving = True
                for session in self._sessions.values():
                    session.on_goaway()
            case frames.Closed():
                pass  # `close` has released the session
            case _:
                kind = type(frame).__name__.upper()
                raise bad_frame(f"a sidecar never sends {kind} here")

    def _dispatch_to_session(self, frame: ChannelFrame) -> None:
        session = self._sessions.get(frame.channel)
        if session is not None:
            if isinstance(frame, frames.Result):
                self._backoff.on_success()
            try:
                session.on_frame(frame)
            except SidelookError as error:  # it must not end the other channels
                self._sessions.pop(frame.channel).fail(error)
                self._send([frames.Close(frame.channel)])
        elif isinstance(frame, frames.Opened):
            self._send([frames.Close(frame.channel)])  # its task has closed it

    def _on_failure(self, failure: frames.Failure) -> None:
        error = _error_of(failure)
        if failure.channel == frames.CONNECTION:
            raise SidecarUnreachable(self._url, str(error)) if error.is_retryable else error
        session = self._sessions.get(failure.channel)
        if session is None:
            return
        if not session.on_refusal(error, jitter=self._timing.jitter()):
            del self._sessions[failure.channel]
        elif self._is_leaving:
            session.on_goaway()

    def _send(self, sending: Sequence[Frame]) -> None:
        if self._transport is not None:
            for frame in sending:
                self._transport.send(encode_frame(frame))

    def _shared_cache(self, folder: str) -> MappedCache | None:
        """The cache in this folder, which may be relative to that of the socket.

        None if it cannot be mapped, as in a container that does not have the folder.
        """
        if folder not in self._caches:
            try:
                base = Path(endpoint_of(self._url).path or "/").parent
                self._caches[folder] = MappedCache(base / folder, clock=self._timing.cache_clock)
            except (OSError, ValueError) as error:
                _log.info("no shared cache of %s: %s", self._url, error)
                return None
        return self._caches[folder]

    def _report_uses(self) -> None:
        for session in self._sessions.values():
            session.report_uses()
        in_use = {session.shared_cache for session in self._sessions.values()}
        for folder, cache in [*self._caches.items()]:
            cache.release()
            if not cache.has_lease and cache not in in_use:  # its sidecar may have ended
                del self._caches[folder]

    def _release(self, number: int) -> None:
        self._sessions.pop(number, None)
        self._idle_since_s = self._timing.clock()

    def _fail_all(self, error: SidelookError) -> None:
        with self._lock:
            for session in self._sessions.values():
                own = copy(error)  # each task adds its remedies and traceback
                own.__cause__ = error.__cause__
                session.fail(own)
            self._sessions.clear()
            self._thread = None


def given_up(url: str, last: SidecarUnreachable, timeout_s: float) -> SidecarUnreachable:
    """The error after tries for this time, of which the last one failed so."""
    tried = f"tried for {timeout_s:g} s; see connect_timeout"
    return SidecarUnreachable(url, f"{last.reason}; {tried}")


def _check_welcome(frame: Frame) -> None:
    match frame:
        case frames.Welcome(version=version, agent=agent):
            if version != PROTOCOL_VERSION:
                raise InvalidRequest(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{agent} speaks version {version}, this client {PROTOCOL_VERSION}",
                )
        case frames.Failure():
            raise _error_of(frame)
        case _:
            raise bad_frame("the first frame must be WELCOME")


def _error_of(failure: frames.Failure) -> SidelookError:
    known = {str(code): code for code in ErrorCode}
    code = known.get(failure.code, ErrorCode.INTERNAL)
    if code.is_retryable or code is ErrorCode.INTERNAL:
        return BackendError(code, failure.detail, is_permanent=not failure.is_retryable)
    return InvalidRequest(code, failure.detail)
