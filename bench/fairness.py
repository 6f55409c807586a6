"""Whether a quiet channel waits for a busy neighbour: the tail of its latency alone and beside.

The phases take turns, so that a machine whose speed drifts does so for all of them. Every lookup
goes to a real PostgreSQL: what a cache answers waits for nobody.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from bench.lookup_load import Asking, ask_at_pace, ask_without_end
from bench.section import Bar, FigureTable, Section
from bench.workload import customers_postgres
from demo.sidecar import running_sidecar

ROWS = 200_000
QUIET_KEYS = 100
INTERVAL_S = 0.02
BAR = 2.0  # at most so many times the latency that the channel has alone
NEIGHBOURS = {  # keys that the neighbour asks for at a time, and how often
    "alone": (0, INTERVAL_S),
    "beside ten times the records": (10 * QUIET_KEYS, INTERVAL_S),
    "beside one that asks flat out": (20_000, 0.0),
}
_REMARK = (
    f"A client asks for {QUIET_KEYS} keys every {INTERVAL_S * 1000:.0f} ms, alone and beside"
    " others; each lookup goes to PostgreSQL. The one that asks flat out has 20,000 keys at a time,"
    " so that the store is always busy; no bar is held against that."
)
FULL = (400, 5)  # lookups a phase, rounds
QUICK = (100, 2)


@dataclass(slots=True)
class Phase:
    """The latencies of the quiet channel in one company."""

    name: str
    seconds: list[float] = field(default_factory=list)

    def percentile_ms(self, percent: float) -> float:
        """So many percent of the lookups took at most so long."""
        return float(np.percentile(self.seconds, percent)) * 1000


def fairness(folder: Path, *, is_quick: bool) -> Section:
    """Measure each company in turn."""
    lookups, rounds = QUICK if is_quick else FULL
    phases = {name: Phase(name) for name in NEIGHBOURS}
    with (
        customers_postgres(folder / "postgres", rows=ROWS) as dsn,
        running_sidecar(_settings(dsn), folder) as sidecar,
    ):
        _run_round(sidecar.endpoint, lookups, seed=0)  # warms up
        for number in range(1, rounds + 1):
            for name, seconds in _run_round(sidecar.endpoint, lookups, seed=number).items():
                phases[name].seconds += seconds
    return Section(
        name="fairness",
        title="What a quiet channel waits beside a busy one",
        remarks=[f"{_REMARK} {rounds} rounds in turn."],
        tables=[_table(phases)],
        bars=[_bar(phases)],
    )


def phase_ratio(phases: Mapping[str, Phase], name: str) -> float:
    """How many times the tail in this company is that of the channel alone."""
    return phases[name].percentile_ms(99) / phases["alone"].percentile_ms(99)


def _run_round(endpoint: str, lookups: int, *, seed: int) -> dict[str, list[float]]:
    """The latencies in each company, one phase after the other."""
    found = {}
    for name, (keys, interval_s) in NEIGHBOURS.items():
        quiet = Asking(endpoint, "customers", ROWS, QUIET_KEYS, seed=seed)
        noisy = Asking(endpoint, "customers", ROWS, keys, seed=1000 + seed)
        with _neighbour(noisy, interval_s):
            seconds = ask_at_pace(quiet, lookups=lookups, interval_s=INTERVAL_S)
        found[name] = seconds.tolist()
    return found


@contextmanager
def _neighbour(asking: Asking, interval_s: float) -> Iterator[None]:
    if not asking.keys:
        yield
        return
    process = get_context("spawn").Process(
        target=ask_without_end, args=(asking,), kwargs={"interval_s": interval_s}, daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _bar(phases: Mapping[str, Phase]) -> Bar:
    company = "beside ten times the records"
    name = f"quiet channel {company}: p99 against alone"
    return Bar(name, phase_ratio(phases, company), BAR, is_at_least=False)


def _table(phases: Mapping[str, Phase]) -> FigureTable:
    headings = ("a quiet channel", "median ms", "p99 ms", "p99 to alone", "lookups")
    rows = []
    for name, phase in phases.items():
        median, tail = (f"{phase.percentile_ms(percent):.1f}" for percent in (50, 99))
        rows.append(
            (name, median, tail, f"{phase_ratio(phases, name):.2f}", f"{len(phase.seconds):,}")
        )
    return FigureTable(f"Lookups of {QUIET_KEYS} keys, none cached", headings, rows)


def _settings(dsn: str) -> dict[str, Any]:
    customers = {
        "source": {"kind": "postgres", "dsn": dsn, "table": "public.customers"},
        "key": ["id"],
        "cache": {"mode": "none"},
        "timeout": "30s",
    }
    return {"dimensions": {"customers": customers}}
