"""Fairness between channels: latency of a quiet channel alone and next to a busy one.

The phases take turns, so that changes of the machine's speed affect all of them. Every lookup
queries a real PostgreSQL, because a cache hit does not wait for other channels.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    " keys at a time and keeps the database busy; it has no target."
)
FULL = (400, 5)  # lookups per phase, rounds
QUICK = (100, 2)


Latencies = Mapping[str, list[float]]  # {phase: latencies in seconds}


def fairness(folder: Path, *, is_quick: bool) -> Section:
    """Measure the phases in turn."""
    lookups, rounds = QUICK if is_quick else FULL
    latencies: Latencies = {name: [] for name in NEIGHBOURS}
    with customers_postgres(rows=ROWS) as dsn:
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
                    latencies[name].extend(seconds)
    what = f"quiet channel {BUSY}: p99 against alone"
    return Section(
        name="fairness",
        title="Latency of a quiet channel next to a busy one",
        remarks=[f"{_REMARK} {rounds} rounds in turn."],
        tables=[_table(latencies)],
        targets=[Target(what, p99_ratio(latencies, BUSY), MOST_RATIO, is_at_least=False)],
    )


def p99_ratio(latencies: Latencies, phase: str) -> float:
    """Return the p99 of a phase against that of the channel alone."""
    return float(np.percentile(latencies[phase], 99) / np.percentile(latencies["alone"], 99))


def _run_round(endpoint: str, lookups: int, *, seed: int) -> Latencies:
    """Measure the phases one after the other."""
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


def _table(latencies: Latencies) -> FigureTable:
    headings = ("a quiet channel", "median ms", "p99 ms", "p99 to alone", "lookups")
    rows = []
    for phase, seconds in latencies.items():
        median, tail = (f"{each * 1000:.1f}" for each in np.percentile(seconds, (50, 99)))
        rows.append(
            (phase, median, tail, f"{p99_ratio(latencies, phase):.2f}", f"{len(seconds):,}")
        )
    return FigureTable(f"Lookups of {QUIET_KEYS} keys, none cached", headings, rows)
