"""Read progress of one partition: position, silence of its brokers, and watermark.

Pure: the consumer's view and the time come in as arguments.
"""

from collections import deque
from dataclasses import dataclass

from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS

# Heartbeats have a topic of their own and may overtake earlier changes, which follow within this
# time as a rule.
_OVERTAKEN_WITHIN_S = 1.0
_MAX_HEARTBEATS = 1_000  # that wait for earlier changes


@dataclass(frozen=True, slots=True)
class Clocks:
    """One moment on both clocks."""

    monotonic_s: float
    wall_ms: float  # the clock of aiokafka's poll times


@dataclass(frozen=True, slots=True)
class Poll:
    """The consumer's view of a partition; None where no broker has responded yet."""

    position: int  # the offset of the next message to read
    answered_at_ms: int | None = None  # on the wall clock of this machine
    high_watermark: int | None = None  # the offset of the next message to be written
    stable_end: int | None = None  # less than that while a transaction is open

    @property
    def readable_end(self) -> int | None:
        """The offset at which reading ends for now."""
        return self.high_watermark if self.stable_end is None else self.stable_end

    @property
    def is_blocked(self) -> bool:
        """Whether an open transaction blocks reading."""
        end = self.high_watermark
        return self.stable_end is not None and end is not None and self.stable_end < end


class KafkaProgress:
    """The progress of one partition since its assignment."""

    def __init__(self, position: int, *, end: int, at: Clocks) -> None:
        self.watermark_ms = NO_WATERMARK_MS
        self.is_caught_up = False
        self._end_at_assignment = end
        self.poll = Poll(position)
        self._heard_s = self._looked_s = at.monotonic_s
        self._complete_s = at.monotonic_s  # all messages before this moment are read
        # Before the request for the last response, and for the one that made it complete.
        self._requested_s = self._proved_s = at.monotonic_s
        self._stalled_s: float | None = None  # since an open transaction blocks reading
        # Source times with the times of their arrival.
        self._heartbeats: deque[tuple[int, float]] = deque(maxlen=_MAX_HEARTBEATS)

    def update(self, poll: Poll, *, at: Clocks) -> None:
        """Update from the consumer's current view."""
        self._note_answer(poll, at=at)
        self._note_stall(poll, at=at)
        self._looked_s = at.monotonic_s
        self.poll = poll
        if poll.answered_at_ms is not None:
            self.is_caught_up |= poll.position >= self._end_at_assignment
        self._apply_heartbeats()

    def resume(self, *, at: Clocks) -> None:
        """End a pause, during which no response was expected."""
        self._heard_s = self._looked_s = at.monotonic_s
        self._stalled_s = None

    def advance(self, source_time_ms: int) -> None:
        """Advance the watermark to the source time of a message."""
        self.watermark_ms = max(self.watermark_ms, source_time_ms)

    def add_heartbeat(self, source_time_ms: int, *, at: Clocks) -> None:
        """Add a heartbeat: the source has sent all earlier changes, some maybe not arrived yet."""
        self._heartbeats.append((source_time_ms, at.monotonic_s))

    def drop_early_heartbeats(self, source_time_ms: int) -> None:
        """Drop the heartbeats that overtook a change of this source time, in any partition."""
        while self._heartbeats and source_time_ms < self._heartbeats[-1][0]:
            self._heartbeats.pop()

    def silent_s(self, *, at: Clocks) -> float:
        """The time since all messages were read.

        Grows while no broker responds, while reading lags, and while a transaction stays open.
        """
        since_s = self._complete_s
        if self._stalled_s is not None:
            since_s = min(since_s, self._stalled_s)
        return at.monotonic_s - since_s

    def requested_s(self, *, at: Clocks) -> float:
        """The time since a request was sent, at most, whose response and all before it are read.

        A broker gets its next request after its response to the former one.
        """
        return at.monotonic_s - self._proved_s

    def unanswered_s(self, *, at: Clocks) -> float:
        """The time since a broker responded."""
        return at.monotonic_s - self._heard_s

    def _note_answer(self, poll: Poll, *, at: Clocks) -> None:
        if poll.answered_at_ms is not None and poll.answered_at_ms != self.poll.answered_at_ms:
            # After the last look in any case: the wall clock may have been set.
            self._requested_s = self._heard_s
            ago_s = (at.wall_ms - poll.answered_at_ms) / 1000
            self._heard_s = min(max(self._looked_s, at.monotonic_s - ago_s), at.monotonic_s)
        if poll.readable_end is not None and poll.position >= poll.readable_end:
            self._complete_s, self._proved_s = self._heard_s, self._requested_s

    def _note_stall(self, poll: Poll, *, at: Clocks) -> None:
        if not poll.is_blocked:
            self._stalled_s = None
        elif self._stalled_s is None or poll.stable_end != self.poll.stable_end:
            self._stalled_s = at.monotonic_s

    def _apply_heartbeats(self) -> None:
        end = self.poll.high_watermark
        if end is None or self.poll.position < end:
            return
        # A response after a heartbeat's arrival covers all messages sent before it.
        settled_s = self._heard_s - _OVERTAKEN_WITHIN_S
        while self._heartbeats and self._heartbeats[0][1] < settled_s:
            self.advance(self._heartbeats.popleft()[0])
