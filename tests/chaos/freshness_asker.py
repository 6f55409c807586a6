"""Somebody who looks keys up, many at once and single ones, and notes what is answered.

Judges nothing but age: what is wrong shows when nothing is written any more.
"""

import http.client
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from lookup_core.errors import SidelookError
from tests.chaos.freshness_answers import LookupConnection, Told
from tests.chaos.freshness_table import KEYS, ReplacedVersions
from tests.chaos.resting_worker import RestingWorker

BULK_KEYS = 1_000
LATE_S = 13.0  # a hit that was replaced so long ago is noted; feeds are believed for 12 s
_SINGLES = 20  # after each bulk lookup
_PAUSE_S = 0.01
_ZIPF = 1.1


@dataclass(slots=True)
class Asked:
    """What one who asks has seen so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failed_requests: int = 0
    late_hits: int = 0
    longest_lag_s: float = 0.0

    @property
    def lookups(self) -> int:
        """Keys that were answered, whatever the outcome."""
        return self.outcomes.total()


class FreshnessAsker(RestingWorker):
    """One thread that asks one dimension, some keys far more often than others."""

    def __init__(
        self, connection: LookupConnection, replaced: ReplacedVersions, *, seed: int
    ) -> None:
        super().__init__(f"asker {seed}")
        self.asked = Asked()
        self.is_waiting = False  # for an answer
        self._connection = connection
        self._replaced = replaced
        self._chance = np.random.default_rng(seed)

    def work(self) -> None:
        """Ask, many keys and single ones, until the end."""
        while self.gate.pass_through():
            try:
                self._ask_once()
            except (OSError, http.client.HTTPException, SidelookError):
                self.asked.failed_requests += 1
            time.sleep(_PAUSE_S)
        self._connection.close()

    def _ask_once(self) -> None:
        keys = self._keys(BULK_KEYS)
        self._note(partial(self._connection.bulk, keys))
        for key in keys[:_SINGLES].tolist():
            self._note(partial(self._connection.single, key))

    def _note(self, ask: Callable[[], Told]) -> None:
        asked_at = time.monotonic()
        self.is_waiting = True
        try:
            told = ask()
        finally:
            self.is_waiting = False
        self.asked.outcomes += told.counts
        hits = told.versions[told.outcomes == "hit"]
        if hits.size:
            lags_s = self._replaced.lags_s(hits, asked_at)
            self.asked.late_hits += int((lags_s > LATE_S).sum())
            self.asked.longest_lag_s = max(self.asked.longest_lag_s, float(lags_s.max()))

    def _keys(self, count: int) -> npt.NDArray[np.int64]:
        # Half of them as popularity has it, half evenly: cold keys must be cached, too.
        popular = self._chance.zipf(_ZIPF, count // 2) % KEYS
        return np.concatenate((popular, self._chance.integers(0, KEYS, count - count // 2)))
