"""Blocking session of one channel: the `LookupChannel` around the pure `ClientChannel`.

Has no thread: the connection's thread delivers frames, the task's thread sends lookups and waits.
Both hold the connection's lock while they use the channel.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.backoff import NEVER, Backoff
from lookup_core.cache.cached_answers import CachedAnswers, CachedLookup
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, ProtocolViolation, SidelookError
from lookup_core.keys.key_index import Slots
from lookup_core.keys.typed_keys import named_key
from lookup_core.protocol import frames
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.client_channel import ClientChannel
from lookup_core.protocol.frames import ChannelFrame, Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.shared_cache import SharedCache

_MOST_VISITS = 16_384  # of rows, until the next report
_FRAME_VISITS = 262_144  # a mebibyte; of a larger batch, the other visits do not count


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
    shared_cache: Callable[[str], SharedCache | None] = _no_cache  # by its folder


@dataclass(frozen=True, slots=True)
class _CachedLookup:
    """The lookups of a channel in the shared cache."""

    cache: SharedCache
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
        visited = np.concatenate([_NO_SLOTS, *self.visited])[:_FRAME_VISITS]
        return frames.Cached(
            channel,
            hits=self.keys[Outcome.HIT],
            missing=self.keys[Outcome.MISSING],
            defaults=self.keys[Outcome.DEFAULT],
            visited=visited.astype("<i4").tobytes(),
        )


_NO_SLOTS = np.zeros(0, np.int32)


class ChannelSession:
    """A `LookupChannel`; made by `Connection.open`."""

    def __init__(
        self,
        channel: ClientChannel,
        wire: Wire,
        *,
        backoff: Backoff,
        is_patient: bool = True,
        ring: Callable[[], None] = nothing,
    ) -> None:
        """Without `is_patient`, only refusals that heal by themselves are retried.

        `ring` wakes a thread that waits for answers of several channels.
        """
        self.channel = channel
        self.reopen_at_s: float | None = None  # after a retriable refusal
        self.refusal: SidelookError | None = None  # the last one, until OPENED
        self._is_revoked = False  # until there is work: meanwhile others need its credit
        self._wire = wire
        self._backoff = backoff
        self._is_patient = is_patient
        self._changed = threading.Condition(wire.lock)
        self._ring = ring
        self._failure: SidelookError | None = None
        self._results: deque[frames.Result] = deque()  # bounded by the credit
        self._cached: _CachedLookup | None = None  # since OPENED offered a cache
        self._uses = _Uses()
        self._answers: list[ChannelAnswer] = []  # decoded when their connection was lost

    @property
    def columns(self) -> pa.Schema:
        """See `LookupChannel`."""
        assert self.channel.columns is not None
        return self.channel.columns

    @property
    def versions(self) -> VersionColumns | None:
        """See `LookupChannel`."""
        return self.channel.versions

    @property
    def has_all_rows(self) -> bool:
        """See `LookupChannel`."""
        return self.channel.has_all_rows

    @property
    def default(self) -> pa.RecordBatch | None:
        """See `LookupChannel`."""
        return self.channel.default

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the dimension's key columns, in order."""
        return self.channel.key

    @property
    def shared_cache(self) -> SharedCache | None:
        """With the lock held: the cache that it reads."""
        return None if self._cached is None else self._cached.cache

    def cached(self, keys: pa.RecordBatch) -> CachedAnswers | None:
        """See `LookupChannel`."""
        cached = self._cached
        if cached is None or not cached.lookup.takes_repeated(keys):
            return None
        found = cached.answers(keys)
        if found is not None:
            with self._wire.lock:
                self._count(found)
        return found

    def look_up(self, keys: SentKeys, *, skips_cache: bool = False) -> None:
        """See `LookupChannel`."""
        cached = None if skips_cache else self._cached
        found = None if cached is None else cached.answers(keys.keys)
        with self._changed:
            if found is not None:
                self._count(found)
                self._answers += [
                    ChannelAnswer(keys.question, keys.placed(answer)) for answer in found.answers
                ]
                if found.size == keys.count:
                    return
                keys = keys.only(found.is_open(keys.count))
            self._wire.send(self.channel.look_up(keys, now_s=self._wire.clock()))
            self._answers += self.channel.pop_refused()
            self._open_if_revoked()

    def explanation(self, code: ErrorCode) -> str:
        """See `LookupChannel`."""
        with self._changed:
            return self.channel.explanation(code)

    def mark(self, watermark_ms: int) -> None:
        """See `LookupChannel`."""
        with self._changed:
            self._wire.send(self.channel.mark(watermark_ms, now_s=self._wire.clock()))
            self._open_if_revoked()

    def answers(self, timeout_s: float | None) -> Sequence[ChannelAnswer]:
        """See `LookupChannel`."""
        with self._changed:
            if timeout_s != 0:
                self._changed.wait_for(
                    lambda: self._results or self._answers or self._failure, timeout_s
                )
            if self._results:
                self._decode()
                # Do not wait for CREDIT: if other channels need it, none comes.
                self._wire.send(self.channel.resume(now_s=self._wire.clock()))
            answers, self._answers = self._answers, []
            if self._failure is not None and not answers:
                raise self._failure
            return answers

    def abandon(self, question: QuestionId) -> None:
        """See `LookupChannel`."""
        with self._changed:
            self._wire.send(self.channel.abandon(question, now_s=self._wire.clock()))

    def report_idle(self) -> None:
        """See `LookupChannel`."""
        with self._changed:
            self._wire.send(self.channel.on_silence(now_s=self._wire.clock()))

    def close(self) -> None:
        """See `LookupChannel`."""
        with self._changed:
            self.report_uses()
            self._wire.send(self.channel.close())
            self._wire.release(self.channel.number)

    def is_open_within(self, timeout_s: float) -> bool:
        """Wait until the channel is open; raises the error that ended it."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or self.channel.columns is not None, timeout_s
            )
            if self._failure is not None:
                raise self._failure
            return self.channel.columns is not None

    def reopen(self) -> None:
        """With the lock held: request the channel on a new connection, unless it has failed."""
        self.reopen_at_s, self._is_revoked = None, False
        try:
            self._decode()  # before the sequences restart at 1 on the new connection
        except ProtocolViolation as violation:  # must not end the other channels
            self.fail(violation)
        if self._failure is None:
            self._wire.send([self.channel.open()])

    def on_frame(self, frame: ChannelFrame) -> None:
        """With the lock held: take a frame of the service."""
        match frame:
            case frames.Opened():
                self._backoff.on_success()
                self.refusal = None
                self._wire.send(self.channel.on_opened(frame, now_s=self._wire.clock()))
                self._cached = self._cached_lookup(frame)
                self._answers += self.channel.pop_refused()
            case frames.Credit():
                self._wire.send(self.channel.on_credit(frame, now_s=self._wire.clock()))
                return
            case frames.Result():
                self._results.append(frame)
            case frames.Reason():
                self.channel.on_reason(frame)
                return
        self._wake()

    def on_refusal(self, refusal: SidelookError, *, jitter: float) -> bool:
        """With the lock held: take a refusal of the channel; returns whether it is opened again."""
        self.channel.on_lost()
        if refusal.is_retryable and self.channel.columns is not None and not self.channel.has_work:
            self._is_revoked = True
            return True
        now_s = self._wire.clock()
        delay_s = NEVER
        if refusal.is_retryable and (self._is_patient or refusal.code.heals_by_itself):
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
        self._ring()

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

    def _count(self, found: CachedAnswers) -> None:
        self._uses.add(found)
        if self._uses.visits > _MOST_VISITS:
            self.report_uses()

    def _open_if_revoked(self) -> None:
        if self._is_revoked:
            self.reopen()

    def _decode(self) -> None:
        while self._results:
            answer = self.channel.on_result(self._results.popleft())
            if answer is not None:
                self._answers.append(answer)
