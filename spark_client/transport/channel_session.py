"""Blocking session of one channel, around the pure `ClientChannel`.

Has no thread: the connection's thread delivers frames, the task's thread sends lookups and waits.
Both hold the connection's lock while they use the channel.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.backoff import NEVER, Backoff
from lookup_core.cache.cached_answers import CachedAnswers, CachedLookup
from lookup_core.errors import ErrorCode, ProtocolViolation, SidelookError
from lookup_core.keys.key_index import Slots
from lookup_core.keys.typed_keys import named_key
from lookup_core.protocol import frames
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.client_channel import ClientChannel
from lookup_core.protocol.frames import ChannelFrame, Frame
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.shared_cache import MappedCache

_MAX_UNREPORTED_VISITS = 16_384
_MAX_FRAME_VISITS = 262_144  # a mebibyte; of a larger batch, the other visits do not count
_NO_SLOTS = np.zeros(0, np.int32)


def nothing() -> None:
    """Wake no thread: there is one channel, and `answers` waits for it."""


def _no_cache(_folder: str) -> None:
    """Offer no cache."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The connection as a session uses it; all of it with the lock held."""

    lock: threading.Lock
    send: Callable[[Sequence[Frame]], None]
    release: Callable[[int], None]  # forget the channel of this number
    clock: Callable[[], float] = time.monotonic
    shared_cache: Callable[[str], MappedCache | None] = _no_cache  # by its folder


@dataclass(frozen=True, slots=True)
class _CachedLookup:
    """The lookups of a channel in the shared cache."""

    cache: MappedCache
    lookup: CachedLookup

    def answers(self, keys: pa.RecordBatch) -> CachedAnswers | None:
        reader = self.cache.reader()
        return None if reader is None else self.lookup.answers(reader, keys, self.cache.clock())


@dataclass(slots=True)
class _Uses:
    """The lookups that the shared cache answered since the last report."""

    keys: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # {outcome: number}
    visited: list[Slots] = field(default_factory=list)
    visits: int = 0

    def add(self, found: CachedAnswers) -> None:
        for answer in found.answers:
            if answer.size:
                self.keys[answer.outcomes.item(0)] += answer.size
        if len(found.visited):
            self.visited.append(found.visited)
            self.visits += len(found.visited)

    def frame(self, channel: int) -> frames.Cached:
        visited = np.concatenate([_NO_SLOTS, *self.visited])[:_MAX_FRAME_VISITS]
        return frames.Cached(
            channel,
            hits=self.keys[Outcome.HIT],
            missing=self.keys[Outcome.MISSING],
            defaults=self.keys[Outcome.DEFAULT],
            visited=visited.astype("<i4").tobytes(),
        )


class ChannelSession:
    """One open channel, as one task uses it; made by `Connection.open`.

    `channel` has the columns, versions and default row of the dimension.
    """

    def __init__(
        self,
        channel: ClientChannel,
        wire: Wire,
        *,
        backoff: Backoff,
        is_interactive: bool = False,
        wake: Callable[[], None] = nothing,
    ) -> None:
        """With `is_interactive`, only refusals that heal by themselves are retried.

        `wake` wakes a thread that waits for answers of several channels.
        """
        self.channel = channel
        self.reopen_at_s: float | None = None  # after a retriable refusal
        self.refusal: SidelookError | None = None  # the last one, until OPENED
        self._is_revoked = False  # until there is work: meanwhile others need its credit
        self._wire = wire
        self._backoff = backoff
        self._is_interactive = is_interactive
        self._changed = threading.Condition(wire.lock)
        self._wake_task = wake
        self._failure: SidelookError | None = None
        self._cached: _CachedLookup | None = None  # since OPENED offered a cache
        self._uses = _Uses()

    @property
    def shared_cache(self) -> MappedCache | None:
        """With the lock held: the cache that it reads."""
        return None if self._cached is None else self._cached.cache

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
            with self._wire.lock:
                self.channel.add_answers(keys, found.answers)
            if found.size == keys.count:
                return
            keys = keys.only(found.is_open(keys.count))
        self.send(keys)

    def send(self, keys: SentKeys) -> None:
        """Look up distinct keys in the sidecar, without blocking; as `look_up`."""
        with self._changed:
            self._wire.send(self.channel.look_up(keys, now_s=self._wire.clock()))
            self._open_if_revoked()

    def _read_cache(self, cached: "_CachedLookup", keys: pa.RecordBatch) -> CachedAnswers | None:
        found = cached.answers(keys)
        if found is not None:
            with self._wire.lock:
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
            self._wire.send(self.channel.mark(watermark_ms, now_s=self._wire.clock()))
            self._open_if_revoked()

    def answers(self, timeout_s: float | None) -> Sequence[ChannelAnswer]:
        """Answers that have come; waits for some, at most `timeout_s`, None without limit.

        Raises the SidelookError that ended the channel, once all answers are returned:
        InvalidRequest, ProtocolViolation, BackendError, or SidecarUnreachable after the connect
        timeout without a connection.
        """
        with self._changed:
            if timeout_s != 0:
                self._changed.wait_for(lambda: self.channel.has_answers or self._failure, timeout_s)
            answers = self.channel.pop_answers()
            # Do not wait for CREDIT: if other channels need it, none comes.
            self._wire.send(self.channel.resume(now_s=self._wire.clock()))
            if self._failure is not None and not answers:
                raise self._failure
            return answers

    def abandon(self, run: RunId) -> None:
        """Cancel the lookups of a run; a no-op if all are answered."""
        with self._changed:
            self._wire.send(self.channel.abandon(run, now_s=self._wire.clock()))

    def report_idle(self) -> None:
        """Make the channel idle until `send` or `mark`, without blocking."""
        with self._changed:
            self._wire.send(self.channel.on_silence(now_s=self._wire.clock()))

    def close(self) -> None:
        """Close the channel and cancel its lookups, without blocking; a no-op if closed."""
        with self._changed:
            self.report_uses()
            self._wire.send(self.channel.close())
            self._wire.release(self.channel.number)

    def is_open_within(self, timeout_s: float) -> bool:
        """Wait until the channel is open; raises the error that ended it."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self.channel.is_described, timeout_s)
            if self._failure is not None:
                raise self._failure
            return self.channel.is_described

    def reopen(self) -> None:
        """With the lock held: request the channel on a new connection, unless it has failed."""
        self.reopen_at_s, self._is_revoked = None, False
        if self._failure is None:
            try:
                self._wire.send([self.channel.open()])
            except ProtocolViolation as violation:  # must not end the other channels
                self.fail(violation)

    def on_frame(self, frame: ChannelFrame) -> None:
        """With the lock held: take a frame of the service."""
        if isinstance(frame, frames.Opened):
            self._backoff.on_success()
            self.refusal = None
        self._wire.send(self.channel.receive(frame, now_s=self._wire.clock()))
        if isinstance(frame, frames.Opened):
            self._cached = self._cached_lookup(frame)
        if isinstance(frame, frames.Opened | frames.Result):
            self._wake()

    def on_refusal(self, refusal: SidelookError, *, jitter: float) -> bool:
        """With the lock held: take a refusal of the channel; returns whether it is opened again."""
        self.channel.on_lost()
        if refusal.is_retryable and self.channel.is_described and not self.channel.has_work:
            self._is_revoked = True
            return True
        now_s = self._wire.clock()
        delay_s = NEVER
        if refusal.is_retryable and (not self._is_interactive or refusal.code.heals_by_itself):
            delay_s = self._backoff.on_failure(jitter, now=now_s)
        if delay_s == NEVER:
            self.fail(refusal)
            return False
        self.reopen_at_s, self.refusal = now_s + delay_s, refusal
        return True

    def on_goaway(self) -> None:
        """With the lock held: the connection is being left; due frames wait for the next one."""
        self.channel.pause()
        self.reopen_at_s, self._is_revoked = None, False

    def on_tick(self, now_s: float) -> None:
        """With the lock held: send the frames that are due."""
        if self.reopen_at_s is not None and self.reopen_at_s <= now_s:
            self.reopen()

    def fail(self, failure: SidelookError) -> None:
        """With the lock held: end the channel; its task still gets the answers that have come."""
        self.channel.on_lost()
        self._failure = self._failure or failure
        self._wake()

    def _wake(self) -> None:
        self._changed.notify()
        self._wake_task()

    def _cached_lookup(self, opened: frames.Opened) -> "_CachedLookup | None":
        # A lookup that waits for changes up to its event time is answered by the service only.
        if opened.cache is None or opened.waits:
            return None
        cache = self._wire.shared_cache(opened.cache)
        request = self.channel.request
        if cache is None or not len(request.key):
            return None
        lookup = CachedLookup(
            cache.description,
            key=named_key(request.key, cache.description.schema),
            columns=opened.columns.names,
            options=request.options,
        )
        return _CachedLookup(cache, lookup)

    def report_uses(self) -> None:
        """With the lock held: report the lookups that the shared cache answered, and visits."""
        if self._uses.keys or self._uses.visits:
            self._wire.send(self.channel.report_cached(self._uses.frame(self.channel.number)))
            self._uses = _Uses()

    def _open_if_revoked(self) -> None:
        if self._is_revoked:
            self.reopen()
