"""How far one partition is read, how long nothing was heard of it, and up to when it is complete.

Pure: it is shown what the consumer knows, and the time.
"""

from collections import deque
from dataclasses import dataclass

from lookup_core.watermark_valve import NO_WATERMARK_MS

# A heartbeat is no word on what was told before it: it has a topic of its own, and overtakes
# changes that a source or a producer is behind with. Those follow close upon it, as a rule.
_OVERTAKEN_WITHIN_S = 1.0
_MOST_HEARTBEATS = 1_000  # that wait for the changes before them


@dataclass(frozen=True, slots=True)
class Clocks:
    """One moment, by both clocks."""

    monotonic_s: float
    wall_ms: float  # aiokafka tells by it when a broker answered


@dataclass(frozen=True, slots=True)
class Poll:
    """What the consumer knows of a partition; None: no broker has answered yet."""

    position: int
    answered_at_ms: int | None = None  # by the wall clock of this machine
    high_watermark: int | None = None  # where the next message will be
    stable_end: int | None = None  # before it, if a transaction is open


class KafkaProgress:
    """Of one partition, from the moment when a reader was given it."""

    def __init__(self, position: int, *, end: int, at: Clocks) -> None:
        self.watermark_ms = NO_WATERMARK_MS
        self.is_caught_up = False
        self._end = end  # where the partition ended then
        self._poll = Poll(position)
        self._heard_s = self._looked_s = at.monotonic_s
        self._complete_s = at.monotonic_s  # what was there at this moment is read
        self._stalled_s: float | None = None  # since when an open transaction is in the way
        # Source times, and when they came.
        self._heartbeats: deque[tuple[int, float]] = deque(maxlen=_MOST_HEARTBEATS)

    @property
    def position(self) -> int:
        """Of the next message."""
        return self._poll.position

    @property
    def total(self) -> int | None:
        """Where the partition ended when a broker answered last."""
        return self._poll.high_watermark

    def look(self, poll: Poll, *, at: Clocks) -> None:
        """Take what the consumer knows now."""
        self._note_answer(poll, at=at)
        self._note_stall(poll, at=at)
        self._looked_s = at.monotonic_s
        self._poll = poll
        if poll.answered_at_ms is not None:
            self.is_caught_up |= poll.position >= self._end
        self._apply_heartbeats()

    def resumed(self, *, at: Clocks) -> None:
        """Nobody was asked on purpose until now: brokers that said nothing are not away."""
        self._heard_s = self._looked_s = at.monotonic_s
        self._stalled_s = None

    def told(self, source_time_ms: int) -> None:
        """Its messages tell of this source time."""
        self.watermark_ms = max(self.watermark_ms, source_time_ms)

    def heartbeat(self, source_time_ms: int, *, at: Clocks) -> None:
        """The source says that it has told all up to then; part of it may still be on its way."""
        self._heartbeats.append((source_time_ms, at.monotonic_s))

    def overtaken(self, source_time_ms: int) -> None:
        """A change of this source time came, in any partition: a later heartbeat came too early."""
        while self._heartbeats and source_time_ms < self._heartbeats[-1][0]:
            self._heartbeats.pop()

    def silent_s(self, *, at: Clocks) -> float:
        """How long ago all was read that there was.

        Be it that no broker answers, that reading is behind, or that a transaction stays open.
        """
        since_s = self._complete_s
        if self._stalled_s is not None:
            since_s = min(since_s, self._stalled_s)
        return at.monotonic_s - since_s

    def unanswered_s(self, *, at: Clocks) -> float:
        """How long no broker has answered."""
        return at.monotonic_s - self._heard_s

    def _note_answer(self, poll: Poll, *, at: Clocks) -> None:
        if poll.answered_at_ms is not None and poll.answered_at_ms != self._poll.answered_at_ms:
            # It answered since the last look, whatever was done to the wall clock meanwhile.
            ago_s = (at.wall_ms - poll.answered_at_ms) / 1000
            self._heard_s = min(max(self._looked_s, at.monotonic_s - ago_s), at.monotonic_s)
        readable_end = poll.high_watermark if poll.stable_end is None else poll.stable_end
        if readable_end is not None and poll.position >= readable_end:
            self._complete_s = self._heard_s

    def _note_stall(self, poll: Poll, *, at: Clocks) -> None:
        is_open = (
            poll.high_watermark is not None
            and poll.stable_end is not None
            and poll.stable_end < poll.high_watermark
        )
        if not is_open:
            self._stalled_s = None
        elif self._stalled_s is None or poll.stable_end != self._poll.stable_end:
            self._stalled_s = at.monotonic_s

    def _apply_heartbeats(self) -> None:
        end = self._poll.high_watermark
        if end is None or self.position < end:
            return
        # Asked after a heartbeat came, the broker had everything that was sent before it.
        settled_s = self._heard_s - _OVERTAKEN_WITHIN_S
        while self._heartbeats and self._heartbeats[0][1] < settled_s:
            self.told(self._heartbeats.popleft()[0])
