"""Split ledger: discovery, assignment, progress and retries of the splits of one source.

After the assignment state of Flink's FLIP-27 enumerators. Reads nothing: events come in.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from lookup_core.backoff import Backoff
from lookup_core.errors import BackendError
from lookup_core.sources.splits import Split, SplitProgress, SplitState


@dataclass(frozen=True, slots=True)
class Assignment:
    """A split to read from a position on; None: from the start of the source."""

    split: Split
    position: int | None


@dataclass(slots=True)
class _Entry:
    split: Split
    state: SplitState = SplitState.UNASSIGNED
    position: int | None = None
    total: int | None = None
    is_caught_up: bool = False
    failures_total: int = 0
    last_error: str | None = None
    backoff: Backoff = field(default_factory=Backoff)  # consecutive failures


class SplitLedger:
    """All splits, each in exactly one state; `now` is monotonic seconds.

    With `most_failures`, a split fails permanently after this many failures without progress, or
    after an error that is not retryable. Without it, splits are retried for ever.
    """

    def __init__(self, most_failures: int | None) -> None:
        self._most_failures = most_failures
        self._entries: dict[str, _Entry] = {}  # {split id: entry}, in the order of discovery
        self.split_ids = self._entries.keys()  # now
        self._unassigned: deque[str] = deque()
        self._waiting: list[tuple[float, str]] = []  # a heap of (time of the retry, split id)
        self._unfinished: set[str] = set()
        self._behind: set[str] = set()  # neither caught up nor finished

    @property
    def is_finished(self) -> bool:
        """Whether all splits are finished, which includes no splits at all."""
        return not self._unfinished

    @property
    def is_caught_up(self) -> bool:
        """Whether every split is caught up or finished."""
        return not self._behind

    def on_discovered(self, splits: Iterable[Split]) -> list[Split]:
        """Add discovered splits; returns the new ones. An absent split is not removed."""
        new = {split.id: split for split in splits if split.id not in self._entries}
        self._entries.update({split_id: _Entry(split) for split_id, split in new.items()})
        self._unassigned.extend(new)
        self._unfinished.update(new)
        self._behind.update(new)
        return list(new.values())

    def assign_next(self, now: float) -> Assignment | None:
        """Assign the next split; None if none is unassigned or due for a retry."""
        if self._waiting and self._waiting[0][0] <= now:
            _, split_id = heappop(self._waiting)
        elif self._unassigned:
            split_id = self._unassigned.popleft()
        else:
            return None
        entry = self._entries[split_id]
        entry.state = SplitState.ASSIGNED
        return Assignment(entry.split, entry.position)

    def next_due(self) -> float | None:
        """The time of the next retry."""
        return self._waiting[0][0] if self._waiting else None

    def on_progress(
        self,
        split_id: str,
        position: int,
        *,
        total: int | None = None,
        is_caught_up: bool = False,
        may_go_back: bool = False,
    ) -> None:
        """An assigned split was read up to this position.

        A lower position than before is a repetition and ignored, unless it `may_go_back`: then
        everything from there on is read again.
        """
        entry = self._assigned(split_id)
        if entry.position is None or position > entry.position or is_caught_up:
            entry.backoff.on_success()
            entry.last_error = None
        if not may_go_back and entry.position is not None:
            position = max(position, entry.position)
        entry.position, entry.total, entry.is_caught_up = position, total, is_caught_up
        (self._behind.discard if is_caught_up else self._behind.add)(split_id)

    def on_finished(self, split_id: str) -> None:
        """An assigned split was read to its end."""
        self._assigned(split_id).state = SplitState.FINISHED
        self._unfinished.discard(split_id)
        self._behind.discard(split_id)

    def on_failure(
        self, split_id: str, error: BackendError, *, now: float, jitter: float
    ) -> float | None:
        """An assigned split failed; returns the seconds until its retry, None without one."""
        entry = self._assigned(split_id)
        entry.failures_total += 1
        entry.last_error = str(error)
        entry.is_caught_up = False
        self._behind.add(split_id)
        pause_s = entry.backoff.on_failure(jitter)
        if self._is_final(entry, error):
            entry.state = SplitState.FAILED
            return None
        entry.state = SplitState.WAITING
        heappush(self._waiting, (now + pause_s, split_id))
        return pause_s

    def progress(self) -> Sequence[SplitProgress]:
        """All splits in the order of discovery, without watermark, idle and paused."""
        return [
            SplitProgress(
                split_id,
                entry.state,
                position=entry.position,
                total=entry.total,
                is_caught_up=entry.is_caught_up,
                failures_total=entry.failures_total,
                last_error=entry.last_error,
            )
            for split_id, entry in self._entries.items()
        ]

    def check_invariants(self) -> None:
        """For tests: the queues and sets match the states."""
        states = {split_id: entry.state for split_id, entry in self._entries.items()}
        waiting = [split_id for _, split_id in self._waiting]
        assert sorted(self._unassigned) == _in_state(states, SplitState.UNASSIGNED)
        assert sorted(waiting) == _in_state(states, SplitState.WAITING)
        assert self._unfinished == set(states) - set(_in_state(states, SplitState.FINISHED))
        caught_up = {split_id for split_id, entry in self._entries.items() if entry.is_caught_up}
        assert self._behind == self._unfinished - caught_up

    def _assigned(self, split_id: str) -> _Entry:
        entry = self._entries[split_id]
        assert entry.state is SplitState.ASSIGNED, f"{split_id} is {entry.state}"
        return entry

    def _is_final(self, entry: _Entry, error: BackendError) -> bool:
        if self._most_failures is None:
            return False
        return not error.code.is_retryable or entry.backoff.failures >= self._most_failures


def _in_state(states: dict[str, SplitState], wanted: SplitState) -> list[str]:
    return sorted(split_id for split_id, state in states.items() if state is wanted)
