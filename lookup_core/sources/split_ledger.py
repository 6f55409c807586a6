"""Which splits of a source there are, who has them, and how far they are read.

After the assignment state of Flink's FLIP-27 enumerators, which forget no split either. Reads
nothing and opens nothing: it is told.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from lookup_core.backoff import Backoff
from lookup_core.errors import BackendError
from lookup_core.sources.splits import Split, SplitProgress, SplitState


@dataclass(frozen=True, slots=True)
class Assignment:
    """Read this split from there on; None: from where the source begins."""

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
    backoff: Backoff = field(default_factory=Backoff)  # the failures in a row


class SplitLedger:
    """All splits, each in exactly one state.

    With `most_failures`, a split that fails so often without getting on in between, or as it
    always will, has failed for good; without, splits are tried for ever.
    """

    def __init__(self, most_failures: int | None) -> None:
        self._most_failures = most_failures
        self._entries: dict[str, _Entry] = {}  # {split id: its entry}, in the order of discovery
        self._unassigned: deque[str] = deque()
        self._waiting: list[tuple[float, str]] = []  # a heap of (when to try again, split id)
        self._unfinished: set[str] = set()
        self._behind: set[str] = set()  # neither caught up nor finished

    @property
    def split_ids(self) -> Collection[str]:
        """All splits."""
        return self._entries.keys()

    @property
    def is_finished(self) -> bool:
        """Whether no split is left to read; also if there is none at all."""
        return not self._unfinished

    @property
    def is_caught_up(self) -> bool:
        """Whether each split is read up to where it ended when its reader was given it."""
        return not self._behind

    def on_discovered(self, splits: Iterable[Split]) -> list[Split]:
        """There are these; returns those that were not known. Nobody is forgotten for absence."""
        new = {split.id: split for split in splits if split.id not in self._entries}
        self._entries |= {split_id: _Entry(split) for split_id, split in new.items()}
        self._unassigned.extend(new)
        self._unfinished.update(new)
        self._behind.update(new)
        return list(new.values())

    def assign_next(self, now: float) -> Assignment | None:
        """The next split that a reader may have now, which then has it; None if there is none."""
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
        """When the next split that failed may be tried again."""
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
        """All of an assigned split before this position was taken.

        It goes back only where it may, because what was told before counts no more; else what
        comes twice is not news, and the position stays.
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
        """Nothing of an assigned split is left."""
        self._assigned(split_id).state = SplitState.FINISHED
        self._unfinished.discard(split_id)
        self._behind.discard(split_id)

    def on_failure(
        self, split_id: str, error: BackendError, *, now: float, jitter: float
    ) -> float | None:
        """An assigned split could not be read on: seconds until it may be; None: never again."""
        entry = self._assigned(split_id)
        entry.failures_total += 1
        entry.last_error = str(error)
        entry.is_caught_up = False
        self._behind.add(split_id)
        pause_s = entry.backoff.on_failure(jitter)
        if self._is_hopeless(entry, error):
            entry.state = SplitState.FAILED
            return None
        entry.state = SplitState.WAITING
        heappush(self._waiting, (now + pause_s, split_id))
        return pause_s

    def progress(self) -> Sequence[SplitProgress]:
        """All splits in the order of their discovery, without what only their watermarks tell."""
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
        """For tests: each split stands where its state says, and nowhere else."""
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

    def _is_hopeless(self, entry: _Entry, error: BackendError) -> bool:
        if self._most_failures is None:
            return False
        return not error.is_retryable or entry.backoff.failures >= self._most_failures


def _in_state(states: dict[str, SplitState], wanted: SplitState) -> list[str]:
    return sorted(split_id for split_id, state in states.items() if state is wanted)
