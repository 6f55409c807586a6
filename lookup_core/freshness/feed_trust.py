"""Trust in a change feed: suspect rows, contradictions, and the probation after one.

A row that differs from a read of its table is suspect: the event of its change may follow. It is a
contradiction if the feed reports no change although it claims to have reported all of that time.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import Hashes
from lookup_core.statistics import DistrustStatistics

PROBATION_S = 300.0  # the first one; twice as long after each relapse
_LONGEST_S = 86_400.0  # a longer time without contradiction makes the next probation the first
_REFUSED_S = 86_400.0  # rows of events: a lost change may look like an altered value
LEAST_AGREED = 20  # copies that agree with reads before the feed is trusted again


class Suspects:
    """Keys, by hash, whose rows differ from a read; `now` is monotonic seconds."""

    def __init__(self, grace_s: float) -> None:
        """`grace_s` is for the feed's claim: clocks differ, and connectors lag."""
        self._grace_s = grace_s
        self._found_at: dict[int, float] = {}

    def add(self, hashes: Hashes, now: float) -> None:
        """Suspect these keys, from the first difference on."""
        for each in hashes.tolist():
            self._found_at.setdefault(each, now)

    def clear(self, hashes: Hashes | None) -> None:
        """Keys, or all for None, have changed: their difference is explained."""
        if hashes is None:
            self._found_at.clear()
        elif self._found_at:
            changed = self._found_at.keys() & set(hashes.tolist())
            for each in changed:
                del self._found_at[each]

    def are_among(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of these keys are suspect."""
        return np.array([each in self._found_at for each in hashes.tolist()], np.bool_)

    def take_contradictions(self, reported_until: float) -> int:
        """Remove and count the suspects whose changes would be reported by now."""
        due = [
            each
            for each, found_at in self._found_at.items()
            if found_at + self._grace_s <= reported_until
        ]
        for each in due:
            del self._found_at[each]
        return len(due)


class Probation:
    """Whether a feed is trusted; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._relapses = 0
        self._until: float | None = None  # None: trusted
        self._contradicted_at = 0.0
        self._agreed = 0

    @property
    def is_on(self) -> bool:
        """Whether the feed is distrusted."""
        return self._until is not None

    def statistics(self, now: float) -> DistrustStatistics | None:
        """When the contradiction was found, and what is missing; None while the feed is trusted."""
        if self._until is None:
            return None
        return DistrustStatistics(
            found_ago_s=now - self._contradicted_at,
            least_s=max(self._until - now, 0.0),
            agreed=min(self._agreed, LEAST_AGREED),
            needed=LEAST_AGREED,
        )

    def begin(self, now: float) -> None:
        """A contradiction: distrust the feed, for twice as long as before."""
        has_long_agreed = now - self._contradicted_at > _LONGEST_S
        self._relapses = 0 if has_long_agreed else self._relapses
        self._until = now + min(PROBATION_S * 2**self._relapses, _LONGEST_S)
        self._relapses += 1
        self._contradicted_at = now
        self._agreed = 0

    def on_agreement(self, copies: int) -> None:
        """Copies of rows agree with their reads, or have changed with an event."""
        self._agreed += copies

    def end_if_over(self, now: float) -> bool:
        """Trust the feed again if enough copies have agreed for long enough."""
        is_over = self._until is not None and now >= self._until and self._agreed >= LEAST_AGREED
        if is_over:
            self._until = None
        return is_over


class Refusal:
    """Whether rows of events are refused for a day; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._until: float | None = None  # None: they are not

    @property
    def is_on(self) -> bool:
        """Whether they are refused."""
        return self._until is not None

    def begin(self, now: float) -> None:
        """A row of an event differs from the table."""
        self._until = now + _REFUSED_S

    def end_if_over(self, now: float) -> bool:
        """Whether the refusal ends now."""
        is_over = self._until is not None and now >= self._until
        if is_over:
            self._until = None
        return is_over


@dataclass(frozen=True, slots=True)
class FeedTrust:
    """What audits have found out about a feed; descriptions of its table do not change it."""

    probation: Probation = field(default_factory=Probation)
    refusal: Refusal = field(default_factory=Refusal)
