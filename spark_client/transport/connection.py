"""Connection of a Python worker to one sidecar: many channels, and one thread for the network.

The thread connects, reads, answers heartbeats and reconnects, so tasks never block in the network.
`StreamClient` decides what is sent, also for the sessions of the tasks.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lookup_core.cache.cached_answers import CachedAnswers, CachedLookup
from lookup_core.errors import ErrorCode, SidecarUnreachable, SidelookError
from lookup_core.keys.typed_keys import named_key
from lookup_core.protocol import frames
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from lookup_core.protocol.stream_client import Reaction, StreamClient
from spark_client.transport.shared_cache import (
    CacheUses,
    ChannelCache,
    MappedCache,
    MappedCaches,
    boot_time,
)

_log = logging.getLogger(__name__)

_IDLE_S = 60.0  # without a channel; then the connection is closed
_TICK_S = 1.0
_MAX_UNREPORTED_VISITS = 16_384


def nothing() -> None:
    """Wake no thread: there is one channel, and `answers` waits for it."""


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
        self.url = url
        self.timing = timing
        self.lock = threading.Lock()  # protects everything below, also of the sessions
        self.client = StreamClient(url, connect_timeout_s=timing.connect_timeout_s)
        self.caches = MappedCaches(url, clock=timing.cache_clock)
        self._connect = connect
        self._sessions: dict[ClientChannel, ChannelSession] = {}  # until their tasks close them
        self._report_at_s = 0.0
        self._thread: threading.Thread | None = None
        self._transport: Transport | None = None
        self._idle_since_s = 0.0

    @property
    def has_room(self) -> bool:
        """Whether another channel may be opened."""
        with self.lock:
            return self.client.has_room

    def open(self, request: ChannelRequest, *, is_interactive: bool = False) -> "ChannelSession":
        """An open channel; raises as `ChannelSession.wait_until_open` does."""
        session = self.begin(request, is_interactive=is_interactive)
        session.wait_until_open()
        return session

    def begin(
        self,
        request: ChannelRequest,
        *,
        is_interactive: bool = False,
        wake: Callable[[], None] = nothing,
    ) -> "ChannelSession":
        """A channel that is being opened; the caller closes it in any case.

        With `is_interactive`, a refusal that does not heal by itself is raised at once. `wake` is
        called when the channel has answers, or has failed.
        """
        with self.lock:
            channel, reaction = self.client.open(request, is_interactive=is_interactive)
            session = self._sessions[channel] = ChannelSession(self, channel, wake)
            self._carry_out(reaction)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sidelook", daemon=True)
                self._thread.start()
        return session

    def send(self, sending: Sequence[Frame]) -> None:
        """With the lock held: send frames of a channel; a no-op without a connection."""
        if self._transport is not None and self.client.is_welcome:
            for frame in sending:
                self._transport.send(encode_frame(frame))

    def release(self, channel: ClientChannel) -> None:
        """With the lock held: forget a closed channel."""
        self.client.channels.pop(channel.number, None)
        self._sessions.pop(channel, None)
        self._idle_since_s = self.timing.clock()

    def close_after_fork(self) -> None:
        """In a forked child: close the descriptors. Nothing else is safe to use."""
        if self._transport is not None:
            self._transport.close_after_fork()

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
            with self.lock:
                delay_s = self.client.retry_in_s(
                    error, now_s=self.timing.clock(), jitter=self.timing.jitter()
                )
            if self._is_needed(is_connected=False):
                self.timing.pause(delay_s)

    def _serve(self) -> None:
        transport = self._connect()
        try:
            with self.lock:
                self._transport = transport
                transport.send(self.client.on_connected(self.timing.clock()))
            while self._is_needed(is_connected=True):
                self._take(transport.receive(self._tick_s()))
        finally:
            with self.lock:
                if self._transport is transport:
                    self._transport = None
                    self.client.on_lost()
            transport.close()

    def _is_needed(self, *, is_connected: bool) -> bool:
        with self.lock:
            if self._thread is not threading.current_thread():
                return False  # a newer thread has replaced it
            idle_s = self.timing.clock() - self._idle_since_s
            if self.client.channels or (is_connected and idle_s < _IDLE_S):
                return True
            self._thread = self._transport = None
            self.client.on_lost()
            self.caches.by_folder.clear()
            return False

    def _tick_s(self) -> float:
        with self.lock:
            due_s = self.client.next_due_s()
        return _TICK_S if due_s is None else min(_TICK_S, due_s - self.timing.clock())

    def _take(self, messages: Sequence[bytes]) -> None:
        with self.lock:
            now_s, jitter = self.timing.clock(), self.timing.jitter()
            for message in messages:
                self._carry_out(self.client.receive(message, now_s=now_s, jitter=jitter))
            if now_s >= self._report_at_s:
                self._report_at_s = now_s + _TICK_S
                self._report_uses()
            self._carry_out(self.client.tick(now_s))

    def _carry_out(self, reaction: Reaction) -> None:
        self.send(reaction.sending)
        for channel in reaction.changed:
            self._sessions[channel].on_change()

    def _report_uses(self) -> None:
        for session in self._sessions.values():
            session.report_uses()
        self.caches.release({session.shared_cache for session in self._sessions.values()})

    def _fail_all(self, error: SidelookError) -> None:
        with self.lock:
            for channel in self.client.fail_all(error):
                self._sessions[channel].on_change()
            self._thread = None


class ChannelSession:
    """Blocking session of one channel, as one task uses it; made by `Connection`.

    `channel` has the columns, versions and default row of the dimension. The connection's thread
    changes it, the task's thread sends lookups and waits; both hold the connection's lock.
    """

    def __init__(
        self, connection: Connection, channel: ClientChannel, wake: Callable[[], None]
    ) -> None:
        """`wake` wakes a thread that waits for answers of several channels."""
        self.channel = channel
        self._connection = connection
        self._clock = connection.timing.clock
        self._changed = threading.Condition(connection.lock)
        self._wake_task = wake
        self._opened: frames.Opened | None = None  # when `_cached` was made
        self._cached: ChannelCache | None = None  # since OPENED offered a cache
        self._uses = CacheUses()

    @property
    def shared_cache(self) -> MappedCache | None:
        """With the lock held: the cache that it reads."""
        return None if self._cached is None else self._cached.cache

    def wait_until_open(self) -> None:
        """Wait until the channel is open, at most about the connect timeout.

        Raises SidecarUnreachable, or the refusal of the service: InvalidRequest or BackendError. A
        permanent refusal is raised at once. After an error the channel is closed.
        """
        timing, url = self._connection.timing, self._connection.url
        timeout_s = timing.connect_timeout_s
        quiet_s = min(timing.warn_after_s, timeout_s)
        with ExitStack() as stack:
            stack.callback(self.close)
            if not self.is_open_within(quiet_s):
                what = f"{self.channel.request.dimension} at {url}"
                _log.warning("waiting up to %g s for %s: %s", timeout_s, what, self._hindrance())
                most_s = timeout_s + timing.open_margin_s
                if not self.is_open_within(most_s - quiet_s):
                    late = f"it opened no channel within {most_s:g} s: {self._hindrance()}"
                    raise SidecarUnreachable(url, f"{late}; see connect_timeout")
            stack.pop_all()

    def is_open_within(self, timeout_s: float) -> bool:
        """Wait until the channel is open; raises the error that ended it."""
        channel = self.channel
        with self._changed:
            self._changed.wait_for(lambda: channel.failure or channel.opened, timeout_s)
            if channel.failure is not None:
                raise channel.failure
            return channel.opened is not None

    def _hindrance(self) -> str:
        with self._changed:
            if self.channel.refusal is not None:
                return str(self.channel.refusal)
            outage = self._connection.client.outage
            return "no answer yet" if outage is None else outage.reason

    def cached(self, keys: pa.RecordBatch) -> CachedAnswers | None:
        """The answers of the shared cache to keys, which may repeat; `send` the others.

        None without such a cache, and if `look_up` of the distinct keys is cheaper.
        """
        cached = self._cached
        if cached is None or not cached.lookup.takes_repeated(keys):
            return None
        return self._read_cache(cached, keys)

    def look_up(self, keys: SentKeys) -> None:
        """Look up distinct keys, in the shared cache first; `answers` returns the results."""
        found = None if self._cached is None else self._read_cache(self._cached, keys.keys)
        if found is not None:
            with self._changed:
                self.channel.add_answers(keys, found.answers)
            if found.size == keys.count:
                return
            keys = keys.only(found.is_open(keys.count))
        self.send(keys)

    def send(self, keys: SentKeys) -> None:
        """Look up distinct keys in the sidecar, without blocking; as `look_up`."""
        with self._changed:
            self._connection.send(self.channel.look_up(keys, now_s=self._clock()))

    def _read_cache(self, cached: ChannelCache, keys: pa.RecordBatch) -> CachedAnswers | None:
        found = cached.answers(keys)
        if found is not None:
            with self._changed:
                self._uses.add(found)
                if self._uses.visits > _MAX_UNREPORTED_VISITS:
                    self.report_uses()
        return found

    def explanation(self, code: ErrorCode) -> str:
        """Why keys have this code, and the remedy, as far as the sidecar knows."""
        with self._changed:
            return self.channel.explanation(code)

    def mark(self, watermark_ms: int) -> None:
        """Send a watermark behind the earlier lookups, without blocking."""
        with self._changed:
            self._connection.send(self.channel.mark(watermark_ms, now_s=self._clock()))

    def answers(self, timeout_s: float | None) -> Sequence[ChannelAnswer]:
        """Answers that have come; waits for some, at most `timeout_s`, None without limit.

        Raises the SidelookError that ended the channel, once all answers are returned:
        InvalidRequest, ProtocolViolation, BackendError, or SidecarUnreachable after the connect
        timeout without a connection.
        """
        channel = self.channel
        with self._changed:
            if timeout_s != 0:
                self._changed.wait_for(lambda: channel.has_answers or channel.failure, timeout_s)
            answers = channel.pop_answers()
            # Do not wait for CREDIT: if other channels need it, none comes.
            self._connection.send(channel.resume(now_s=self._clock()))
            if channel.failure is not None and not answers:
                raise channel.failure
            return answers

    def abandon(self, run: RunId) -> None:
        """Cancel the lookups of a run; a no-op if all are answered."""
        with self._changed:
            self._connection.send(self.channel.abandon(run, now_s=self._clock()))

    def report_idle(self) -> None:
        """Make the channel idle until `send` or `mark`, without blocking."""
        with self._changed:
            self._connection.send(self.channel.on_silence(now_s=self._clock()))

    def close(self) -> None:
        """Close the channel and cancel its lookups, without blocking; a no-op if closed."""
        with self._changed:
            self.report_uses()
            self._connection.send(self.channel.close())
            self._connection.release(self.channel)

    def on_change(self) -> None:
        """With the lock held: the channel was opened, has answers, or has failed."""
        opened = self.channel.opened
        if opened is not None and opened is not self._opened:
            self._opened, self._cached = opened, self._cached_lookup(opened)
        self._changed.notify()
        self._wake_task()

    def _cached_lookup(self, opened: frames.Opened) -> ChannelCache | None:
        # A lookup that waits for changes up to its event time is answered by the service only.
        request = self.channel.request
        if opened.cache is None or opened.waits or not len(request.key):
            return None
        cache = self._connection.caches.cache(opened.cache)
        if cache is None:
            return None
        lookup = CachedLookup(
            cache.description,
            key=named_key(request.key, cache.description.schema),
            columns=opened.columns.names,
            options=request.options,
        )
        return ChannelCache(cache, lookup)

    def report_uses(self) -> None:
        """With the lock held: report the lookups that the shared cache answered, and visits."""
        if self._uses.keys or self._uses.visits:
            report = self._uses.frame(self.channel.number)
            self._connection.send(self.channel.report_cached(report))
            self._uses = CacheUses()
