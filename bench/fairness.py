"""Fairness between channels: latency of a quiet channel alone and next to a busy one.

The phases take turns, so that changes of the machine's speed affect all of them. Every lookup
queries a real PostgreSQL, because a cache hit does not wait for other channels.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.lookup_load import LookupClient, endless_lookups, timed_lookups
from bench.section import FigureTable, Section, Target
from bench.workload import customers_postgres
from demo.sidecar import running_sidecar

ROWS = 200_000
QUIET_KEYS = 100
INTERVAL_S = 0.02
MOST_RATIO = 2.0  # p99 next to a busy channel against p99 alone
BUSY = "next to ten times the records"
NEIGHBOURS = {  # {phase: keys per lookup of the neighbour, its interval in seconds}
    "alone": (0, INTERVAL_S),
    BUSY: (10 * QUIET_KEYS, INTERVAL_S),
    "next to a channel without pauses": (20_000, 0.0),
}
_REMARK = (
    f"A client looks up {QUIET_KEYS} keys every {INTERVAL_S * 1000:.0f} ms, alone and next to"
    " another channel; each lookup queries PostgreSQL. The channel without pauses looks up 20,000"
    " keys at a time, so that the database is always busy; that phase has no target."
)
FULL = (400, 5)  # lookups per phase, rounds
QUICK = (100, 2)


@dataclass(slots=True)
class Phase:
    """Latencies of the quiet channel next to one neighbour."""

    name: str
    seconds: list[float] = field(default_factory=list)

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the latencies."""
        return float(np.percentile(self.seconds, percent)) * 1000


def fairness(folder: Path, *, is_quick: bool) -> Section:
    """Measure the phases in turn."""
    lookups, rounds = QUICK if is_quick else FULL
    phases = {name: Phase(name) for name in NEIGHBOURS}
    with customers_postgres(folder / "postgres", rows=ROWS) as dsn:
        customers = {
            "source": {"kind": "postgres", "dsn": dsn, "table": "public.customers"},
            "key": ["id"],
            "cache": {"mode": "none"},
            "timeout": "30s",
        }
        with running_sidecar({"dimensions": {"customers": customers}}, folder) as sidecar:
            _run_round(sidecar.endpoint, lookups, seed=0)  # warms up
            for number in range(1, rounds + 1):
                for name, seconds in _run_round(sidecar.endpoint, lookups, seed=number).items():
                    phases[name].seconds += seconds
    what = f"quiet channel {BUSY}: p99 against alone"
    return Section(
        name="fairness",
        title="Latency of a quiet channel next to a busy one",
        remarks=[f"{_REMARK} {rounds} rounds in turn."],
        tables=[_table(phases)],
        targets=[Target(what, phase_ratio(phases, BUSY), MOST_RATIO, is_at_least=False)],
    )


def phase_ratio(phases: Mapping[str, Phase], name: str) -> float:
    """Return the p99 of a phase against that of the channel alone."""
    return phases[name].percentile_ms(99) / phases["alone"].percentile_ms(99)


def _run_round(endpoint: str, lookups: int, *, seed: int) -> dict[str, list[float]]:
    """Measure the phases one after the other; return {phase: latencies in seconds}."""
    found = {}
    for name, (keys, interval_s) in NEIGHBOURS.items():
        quiet = LookupClient(endpoint, "customers", ROWS, QUIET_KEYS, seed=seed)
        busy = LookupClient(endpoint, "customers", ROWS, keys, seed=1000 + seed)
        with _neighbour(busy, interval_s):
            seconds = timed_lookups(quiet, lookups=lookups, interval_s=INTERVAL_S)
        found[name] = seconds.tolist()
    return found


@contextmanager
def _neighbour(client: LookupClient, interval_s: float) -> Iterator[None]:
    if not client.batch_keys:
        yield
        return
    process = get_context("spawn").Process(
        target=endless_lookups, args=(client,), kwargs={"interval_s": interval_s}, daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _table(phases: Mapping[str, Phase]) -> FigureTable:
    headings = ("a quiet channel", "median ms", "p99 ms", "p99 to alone", "lookups")
    rows = []
    for name, phase in phases.items():
        median, tail = (f"{phase.percentile_ms(percent):.1f}" for percent in (50, 99))
        rows.append(
            (name, median, tail, f"{phase_ratio(phases, name):.2f}", f"{len(phase.seconds):,}")
        )
    return FigureTable(f"Lookups of {QUIET_KEYS} keys, none cached", headings, rows)
