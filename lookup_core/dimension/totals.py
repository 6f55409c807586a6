"""What a dimension has done since its start, counted where it happens.

Levels are not counted: they are looked at when somebody asks.
"""

from collections.abc import Iterable

import numpy as np

from lookup_core.answer import Answer
from lookup_core.cache.row_cache import Hit
from lookup_core.outcome import Outcome
from lookup_core.statistics import InvalidationOrigin


class Totals:
    """Counters of one dimension; they only grow."""

    def __init__(self) -> None:
        self.coalesced_keys = 0
        self.retries = 0
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._invalidations = dict.fromkeys(InvalidationOrigin, 0)

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """How many keys ended so."""
        return {outcome: int(self._outcomes[outcome]) for outcome in Outcome}

    @property
    def invalidations(self) -> dict[InvalidationOrigin, int]:
        """How many keys were named, or rows flushed."""
        return dict(self._invalidations)

    def count_answers(self, answers: Iterable[Answer]) -> None:
        """Note the outcomes of answers that are told."""
        for answer in answers:
            self._outcomes += np.bincount(answer.outcomes, minlength=len(Outcome))

    def counted(self, hit: Hit | None) -> Hit | None:
        """The same, noted if it is one."""
        if hit is not None:
            self._outcomes[Outcome.HIT] += 1
        return hit

    def count_timed_out(self, keys: int) -> None:
        """Note keys that ended without an answer's being made."""
        self._outcomes[Outcome.TIMEOUT] += keys

    def count_invalidations(self, origin: InvalidationOrigin, keys: int) -> None:
        """Note keys that were forgotten because they may have changed."""
        self._invalidations[origin] += keys
