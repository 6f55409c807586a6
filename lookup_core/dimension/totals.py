"""Counters of one dimension since its start. Levels are read from the state instead."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from lookup_core.answer import Answer, Outcome
from lookup_core.statistics import InvalidationOrigin

_Found = TypeVar("_Found")


class Totals:
    """Monotonic counters."""

    def __init__(self) -> None:
        self.coalesced_keys = 0
        self.retries = 0
        self.fenced_keys = 0
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._single_hits = 0  # separate: numpy takes ten times as long to add one
        self._invalidations = dict.fromkeys(InvalidationOrigin, 0)

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """The number of keys with each outcome."""
        counts = {outcome: int(self._outcomes[outcome]) for outcome in Outcome}
        counts[Outcome.HIT] += self._single_hits
        return counts

    @property
    def invalidations(self) -> dict[InvalidationOrigin, int]:
        """The number of keys named, or of rows removed with the whole cache."""
        return dict(self._invalidations)

    def count_answers(self, answers: Iterable[Answer]) -> None:
        """Count the outcomes of answers."""
        for answer in answers:
            self._outcomes += np.bincount(answer.outcomes, minlength=len(Outcome))

    def count_hit(self, found: _Found | None) -> _Found | None:
        """Count a hit of one key if there is one; returns the argument."""
        if found is not None:
            self._single_hits += 1
        return found

    def count_timed_out(self, keys: int) -> None:
        """Count keys that timed out before they were looked up."""
        self._outcomes[Outcome.TIMEOUT] += keys

    def count_invalidations(self, origin: InvalidationOrigin, keys: int) -> None:
        """Count keys that may have changed."""
        self._invalidations[origin] += keys
