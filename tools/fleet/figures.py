"""Figures of a run: what the fleet's lookups and the database have seen, for the whole fleet."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tools.fleet.simulation import FleetRun
from tools.fleet.workload import WARM_SHARE, MicroBatch

_SETTLED_S = 20.0  # at the end of a phase, whose rates count as steady


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """The database in a phase; `busy` is the share of processor time in its busiest second."""

    connections: int
    refused: int
    peak_queries: int  # per second
    peak_keys: int
    steady_queries: int
    steady_keys: int
    busy: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Rates:
    """The database in a phase, on average; `busy` is the share of processor time.

    Queries without keys, which descriptions and probes send, are left out.
    """

    queries_per_s: float
    keys_per_s: float
    busy: float


@dataclass(frozen=True, slots=True)
class LookupFigures:
    """The lookups of a phase; a time is None if it did not come."""

    failed: int
    failed_share: float
    warm_s: float | None  # from the start of the phase
    last_failure_s: float | None  # the end of the last micro-batch with a failed lookup
    first_batch_s: float
    longest_batch_s: float


class Phase:
    """The part of a run from `begins_s` to `ends_s`, in seconds since the first micro-batch."""

    def __init__(self, run: FleetRun, begins_s: float, ends_s: float) -> None:
        self._run = run
        self._weight = run.plan.weight
        self._begins_at, self._ends_at = run.began_at + begins_s, run.began_at + ends_s

    def load(self) -> LoadFigures:
        """The load of the database."""
        log, cores = self._run.log, self._run.plan.database.part(self._weight).cores
        ends = [at for at, _ in log.latencies_s]
        first, last = np.searchsorted(ends, [self._begins_at, self._ends_at])
        latencies = [seconds for _, seconds in log.latencies_s[first:last]]
        return LoadFigures(
            connections=self._connections(),
            refused=round(sum(self._seconds(log.refused)) * self._weight),
            peak_queries=self._most(log.queries),
            peak_keys=self._most(log.keys),
            steady_queries=self._steady(log.queries),
            steady_keys=self._steady(log.keys),
            busy=max(self._seconds(log.busy_s), default=0.0) / cores,
            p99_ms=1000 * float(np.quantile(latencies, 0.99)) if latencies else math.nan,
        )

    def rates(self) -> Rates:
        """The mean load of the database."""
        log, cores = self._run.log, self._run.plan.database.part(self._weight).cores
        return Rates(
            queries_per_s=self._mean(log.queries - log.checks) * self._weight,
            keys_per_s=self._mean(log.keys) * self._weight,
            busy=self._mean(log.busy_s) / cores,
        )

    def connects_per_s(self) -> int:
        """The attempts to connect, on average of the last ten seconds."""
        counts = self._seconds(self._run.log.connects)[-10:]
        return round(sum(counts) * self._weight / max(len(counts), 1))

    def lookups(self) -> LookupFigures:
        """The lookups of the micro-batches that began in the phase."""
        batches = [
            each for each in self._run.batches if self._begins_at <= each.began_at < self._ends_at
        ]
        failed = sum(each.failed for each in batches)
        seconds = [each.ended_at - each.began_at for each in batches]
        return LookupFigures(
            failed=failed * self._weight,
            failed_share=failed / max(sum(each.submitted for each in batches), 1),
            warm_s=self._first(batches, lambda each: each.hit_share >= WARM_SHARE),
            last_failure_s=self._first(batches[::-1], lambda each: each.failed > 0),
            first_batch_s=seconds[0],
            longest_batch_s=max(seconds),
        )

    def _connections(self) -> int:
        """The largest number, also if it was reached before the phase."""
        levels = self._run.log.connections
        first, last = np.searchsorted([at for at, _ in levels], [self._begins_at, self._ends_at])
        most = max((number for _, number in levels[max(first - 1, 0) : last]), default=0)
        return most * self._weight

    def _first(
        self, batches: Sequence[MicroBatch], is_it: Callable[[MicroBatch], bool]
    ) -> float | None:
        found = (each.ended_at - self._begins_at for each in batches if is_it(each))
        return next(found, None)

    def _seconds(self, counts: Mapping[int, float]) -> list[float]:
        return [counts.get(at, 0) for at in range(int(self._begins_at), int(self._ends_at))]

    def _mean(self, counts: Mapping[int, float]) -> float:
        values = self._seconds(counts)
        return sum(values) / len(values)

    def _most(self, counts: Mapping[int, float]) -> int:
        return round(max(self._seconds(counts), default=0) * self._weight)

    def _steady(self, counts: Mapping[int, float]) -> int:
        values = self._seconds(counts)[-int(_SETTLED_S) :]
        return round(sum(values) * self._weight / max(len(values), 1))
