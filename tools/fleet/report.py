"""Tables of the fleet page: fleets of four sizes, before servers of different limits."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from service.config.settings import Settings
from tools.fleet.database import DatabaseModel
from tools.fleet.simulation import DIMENSION, FleetRun, Plan, settings_with, simulate
from tools.fleet.workload import WARM_SHARE, MicroBatch

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "fleet.md"
COLD_S = 45.0
RESTART = (45.0, 55.0)  # of the driver alone
OUTAGE = (75.0, 105.0)
STREAM_S = 150.0
BACKLOG_S = 40.0  # of a driver that starts again with empty caches
LOAD_ROWS = 1_000_000
_REPLAY_S, _LOAD_LIMIT_S = 15.0, 400.0
_SETTLED_S = 20  # at the end of a phase, whose rates count as steady
_SAMPLE = 8  # executors for which a simulated one stands, in the largest fleet
_TEXT = Path(__file__).with_name("page.md")

Cells = Mapping[str, Sequence[str]]  # {table of the page: cells of one line}


@dataclass(frozen=True, slots=True)
class Case:
    """A fleet before a server."""

    executors: int
    server: str  # for the tables
    database: DatabaseModel
    settings: Settings = field(default_factory=settings_with)

    @property
    def plan(self) -> Plan:
        """A plan without events."""
        return Plan(
            executors=self.executors,
            seconds=STREAM_S,
            weight=_SAMPLE if self.executors > 100 else 1,
            database=self.database,
            settings=self.settings,
        )


def _full(executors: int, spread: str, connections: int) -> Case:
    settings = settings_with(cache={"mode": "full", "load_spread": spread})
    server = f"{connections:,} connections"
    return Case(executors, server, DatabaseModel(max_connections=connections), settings)


_DEFAULT = DatabaseModel()
_POOLER = DatabaseModel(pooler_connections=64)
_CAPPED = settings_with(batch={"max_queries_per_second": 2})
STREAMS = [
    Case(1, "97 connections", _DEFAULT),
    Case(10, "97 connections", _DEFAULT),
    Case(100, "97 connections", _DEFAULT),
    Case(100, "500 connections", DatabaseModel(max_connections=500)),
    Case(1000, "4,200 connections", DatabaseModel(max_connections=4200)),
    Case(1000, "PgBouncer, 64", _POOLER),
    Case(1000, "PgBouncer, 64; 2 queries/s", _POOLER, _CAPPED),
]
LOADS = [
    _full(10, "0s", 97),
    _full(100, "0s", 97),
    _full(100, "1m", 97),
    _full(1000, "0s", 5200),
    _full(1000, "5m", 5200),
]


class Phase:
    """The part of a run from `begins_s` to `ends_s`, in seconds since the first micro-batch.

    All counts are those of the whole fleet.
    """

    def __init__(self, run: FleetRun, begins_s: float, ends_s: float) -> None:
        self._run = run
        self._weight = run.plan.weight
        self._begins_at, self._ends_at = run.began_at + begins_s, run.began_at + ends_s
        self._batches = [
            each for each in run.batches if self._begins_at <= each.began_at < self._ends_at
        ]

    def per_second(self, counts: Mapping[int, float]) -> list[float]:
        """What the database has logged in each second."""
        seconds = range(int(self._begins_at), int(self._ends_at))
        return [counts.get(at, 0) * self._weight for at in seconds]

    def busy(self) -> list[float]:
        """The share of processor time in each second."""
        cores = self._run.plan.database.cores
        return [value / cores for value in self.per_second(self._run.log.busy_s)]

    def connections(self) -> int:
        """The largest number, also if it was reached before the phase."""
        levels = self._run.log.connections
        first, last = np.searchsorted([at for at, _ in levels], [self._begins_at, self._ends_at])
        most = max((number for _, number in levels[max(first - 1, 0) : last]), default=0)
        return most * self._weight

    def p99_ms(self) -> float:
        """The latency of queries."""
        ends = [at for at, _ in self._run.log.latencies_s]
        first, last = np.searchsorted(ends, [self._begins_at, self._ends_at])
        latencies = [seconds for _, seconds in self._run.log.latencies_s[first:last]]
        return 1000 * float(np.quantile(latencies, 0.99)) if latencies else math.nan

    def failed_share(self) -> float:
        """The share of lookups without an answer."""
        failed = sum(each.failed for each in self._batches)
        return failed / max(sum(each.submitted for each in self._batches), 1)

    def warm_s(self) -> float | None:
        """The end of the first micro-batch whose records were cached; None if there is none."""
        return self._first(self._batches, lambda each: each.hit_share >= WARM_SHARE)

    def last_failure_s(self) -> float:
        """The end of the last micro-batch with a failed lookup; 0 if there is none."""
        return self._first(self._batches[::-1], lambda each: each.failed > 0) or 0.0

    def durations_s(self) -> list[float]:
        """The duration of each micro-batch."""
        return [each.ended_at - each.began_at for each in self._batches]

    def _first(
        self, batches: Sequence[MicroBatch], is_it: Callable[[MicroBatch], bool]
    ) -> float | None:
        found = (each.ended_at - self._begins_at for each in batches if is_it(each))
        return next(found, None)


def stream_cells(case: Case) -> Cells:
    """Run the streams of a case: one with a restart and a failover, and one with a backlog."""
    run = simulate(replace(case.plan, restart=RESTART, outage=OUTAGE))
    replayed = simulate(replace(case.plan, seconds=_REPLAY_S, backlog_s=BACKLOG_S))
    cold, kept = Phase(run, 0.0, COLD_S), Phase(run, RESTART[1], OUTAGE[0])
    empty = Phase(replayed, 0.0, _REPLAY_S)
    batch = case.settings.dimensions[DIMENSION].batch
    allowed = case.executors * case.settings.limits.database_connections
    return {
        "connections": [
            f"{allowed:,}",
            f"{case.executors * batch.max_in_flight:,}",
            f"{cold.connections():,}",
            f"{round(sum(cold.per_second(run.log.refused))):,}",
        ],
        "queries": _query_cells(run, cold),
        "restart": [
            _seconds(cold.warm_s()),
            *(_seconds(kept.durations_s()[0]), _share(kept.failed_share())),
            *(_seconds(empty.durations_s()[0]), _share(empty.failed_share())),
        ],
        "failover": _failover_cells(run),
    }


def _query_cells(run: FleetRun, cold: Phase) -> list[str]:
    queries = cold.per_second(run.log.queries)
    return [
        f"{round(max(queries)):,}",
        f"{round(sum(queries[-_SETTLED_S:]) / _SETTLED_S):,}",
        f"{round(max(cold.per_second(run.log.keys))):,}",
        f"{max(cold.busy()):.0%}",
        f"{cold.p99_ms():.0f} ms",
        _share(cold.failed_share()),
    ]


def _failover_cells(run: FleetRun) -> list[str]:
    outage, after = Phase(run, *OUTAGE), Phase(run, OUTAGE[1], STREAM_S)
    connects = outage.per_second(run.log.connects)[-10:]
    return [
        f"{round(sum(connects) / len(connects)):,}",
        _share(outage.failed_share()),
        _share(after.failed_share()),
        _seconds(after.last_failure_s()),
        _seconds(max(after.durations_s())),
        f"{run.retries * run.plan.weight:,}",
    ]


def load_cells(case: Case) -> Cells:
    """Run the first loads of a case in mode full."""
    run = simulate(replace(case.plan, seconds=_LOAD_LIMIT_S, load_rows=LOAD_ROWS))
    load = Phase(run, -run.plan.start_s, _LOAD_LIMIT_S)
    times, weight = sorted(run.loaded_at), run.plan.weight
    are_loaded = len(times) * weight == case.executors
    cells = [
        f"{case.settings.dimensions[DIMENSION].cache.load_spread_s:.0f} s",
        f"{load.connections():,}",
        f"{round(sum(load.per_second(run.log.refused))):,}",
        f"{run.failed_loads * weight:,}",
        _seconds(times[len(times) // 2]),
        _seconds(times[-1]) if are_loaded else "not all",
    ]
    return {"load": cells}


def line_of(case: Case, cells: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join([f'{case.executors:,}', case.server, *cells])} |"


def fleet_page(rows: Sequence[tuple[Case, Cells]]) -> str:
    """The page with these cases."""
    lines: dict[str, list[str]] = {}
    for case, tables in rows:
        for name, cells in tables.items():
            lines.setdefault(name, []).append(line_of(case, cells))
    return _TEXT.read_text().format_map({name: "\n".join(each) for name, each in lines.items()})


def _seconds(value: float | None) -> str:
    return "later" if value is None else f"{value:.1f} s"


def _share(value: float) -> str:
    return f"{value:.1%}" if value else "0"
