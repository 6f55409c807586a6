"""What a dimension has done since its start, counted where it happens.

Levels are not counted: they are looked at when somebody asks.
"""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension.dimension_events import Delivery
from lookup_core.statistics import InvalidationOrigin

_Found = TypeVar("_Found")


class Totals:
    """Counters of one dimension; they only grow."""

    def __init__(self) -> None:
        self.coalesced_keys = 0
        self.retries = 0
        self.fenced_keys = 0
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._single_hits = 0  # beside: numpy takes ten times as long to add one
        self._invalidations = dict.fromkeys(InvalidationOrigin, 0)

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """How many keys ended so."""
        counts = {outcome: int(self._outcomes[outcome]) for outcome in Outcome}
        counts[Outcome.HIT] += self._single_hits
        return counts

    @property
    def invalidations(self) -> dict[InvalidationOrigin, int]:
        """How many keys were named, or rows flushed."""
        return dict(self._invalidations)

    def count_answers(self, answers: Iterable[Answer]) -> None:
        """Note the outcomes of answers that are told."""
        for answer in answers:
            self._outcomes += np.bincount(answer.outcomes, minlength=len(Outcome))

    def told(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Those of them that somebody asked for, noted by their outcomes."""
        told = [delivery for delivery in deliveries if delivery.lookup_id >= 0]
        self.count_answers(delivery.answer for delivery in told)
        return told

    def counted(self, found: _Found | None) -> _Found | None:
        """The same, noted as a hit of one key if it is one."""
        if found is not None:
            self._single_hits += 1
        return found

    def count_timed_out(self, keys: int) -> None:
        """Note keys that ended without an answer's being made."""
        self._outcomes[Outcome.TIMEOUT] += keys

    def count_invalidations(self, origin: InvalidationOrigin, keys: int) -> None:
        """Note keys that were forgotten because they may have changed."""
        self._invalidations[origin] += keys
