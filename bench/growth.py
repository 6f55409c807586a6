"""Growth: rate of cached lookups as channels, dimensions, rows, batches or columns grow."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.growth_cases import (
    ALIKE,
    BATCH_KEYS,
    CACHED_ROWS,
    CHANNELS,
    COLUMNS,
    PROCESS_EACH,
    ROWS,
    WIDE,
    WIDE_ROWS,
    CaseFigures,
    Growth,
    LoadCase,
    LoadRound,
    cached_rows,
    column_names,
    rows_name,
    small_growths,
)
from bench.lookup_load import IN_FLIGHT_KEYS, ClientProcesses, LookupClient
from bench.section import FigureTable, Plot, Section, Target
from bench.timing import cpu_s, listener
from bench.workload import SEED, customers
from demo.sidecar import running_sidecar

FULL = (1_920_000, 3, CACHED_ROWS[-1])  # keys per case, rounds, most cached rows
QUICK = (640_000, 2, 1_000_000)
LEAST_RATE = 0.95  # total rate of the most channels against that of one
MOST_BATCH_US = 120.0  # CPU of a batch of the smallest size
_LARGE_MEMORY = "16GiB"  # for millions of rows
_FILL_KEYS = 10_000
# Cache bytes per row, enough that nothing is evicted.
_ROW_BYTES = 200
_WIDE_ROW_BYTES = 2_000
_HEADINGS = ("lookups/s", "to the first", "MB/s of rows", "client ns", "sidecar ns")
_METHOD = (
    f"Clients without Spark look up cached rows in shared memory. A dimension has {ROWS:,} rows"
    f" with three columns; in the case of columns, {WIDE_ROWS:,}. A channel has a thread,"
    f" sends batches of {BATCH_KEYS:,} keys, and keeps {IN_FLIGHT_KEYS:,} keys in flight, as a"
    " lookup join does. Clients and sidecar share the cores."
)
_FIGURES = (
    "Cases take turns for {rounds} rounds; figures are medians. `client ns` and `sidecar ns` are"
    " processor time per lookup, of all clients and of the sidecar. `to the first` is the ratio to"
    " the first line of the same clients."
)
_PROCESSES = (
    "Spark runs each task in a Python worker with a connection of its own: the target is for"
    f" {CHANNELS[-1]} processes with a channel each. Channels of one process share its connection"
    " and its interpreter lock."
)
_EXPLANATION = (
    "Small batches are expensive because each batch has a cost of its own. Rows of larger caches"
    " cost more, because they do not fit into the processor's caches."
)
_BATCH_REASON = (
    "about a hundred calls of numpy and Arrow, 0.5 µs to 5 µs each; the largest part, 20 µs, copies"
    " the rows"
)
_REASON = "many processes on few cores replace each other's data in the processor's caches"


@dataclass(frozen=True, slots=True)
class MeasuredGrowth:
    """A growth and the figures of its cases."""

    growth: Growth
    figures: Sequence[CaseFigures]

    def plot(self, name: str, y_label: str, value: Callable[[CaseFigures], float]) -> Plot:
        """Return a chart with one line per series."""
        series: dict[str, list[tuple[float | str, float]]] = {}
        for each in self.figures:
            series.setdefault(each.case.series, []).append((each.case.x, value(each)))
        growth = self.growth
        title = f"{y_label}, by {growth.x_label}"
        return Plot(f"growth-{name}", title, growth.x_label, y_label, series, growth.is_log_x)


def growth(folder: Path, *, is_quick: bool) -> Section:
    """Measure each growth; lookups that the cache does not answer are a fault."""
    keys, rounds, largest = QUICK if is_quick else FULL
    own = folder / "growth"
    own.mkdir(parents=True, exist_ok=True)
    small = {**dict.fromkeys(ALIKE, ROWS), WIDE: WIDE_ROWS}
    large = {rows_name(rows): rows for rows in CACHED_ROWS if rows <= largest}
    measured = [
        *_measured(
            {"dimensions": _small_dimensions(own)},
            small,
            lambda endpoint: small_growths(endpoint, keys),
            rounds=rounds,
            folder=own,
        ),
        *_measured(
            {"limits": {"memory": _LARGE_MEMORY}, "dimensions": _large_dimensions(own, large)},
            large,
            lambda endpoint: [cached_rows(endpoint, keys, largest=largest)],
            rounds=rounds,
            folder=own,
        ),
    ]
    return growth_report(measured, rounds=rounds)


def _small_dimensions(folder: Path) -> dict[str, Any]:
    """Return settings of several similar dimensions and one with many columns."""
    path = _customers_file(folder, ROWS)
    wide = folder / "wide.parquet"
    pq.write_table(_wide(WIDE_ROWS, max(COLUMNS)), wide)
    alike = {name: _dimension(path, ROWS * _ROW_BYTES) for name in ALIKE}
    return {**alike, WIDE: _dimension(wide, WIDE_ROWS * _WIDE_ROW_BYTES)}


def _large_dimensions(folder: Path, rows_of: Mapping[str, int]) -> dict[str, Any]:
    return {
        name: _dimension(_customers_file(folder, rows), rows * _ROW_BYTES)
        for name, rows in rows_of.items()
    }


def _customers_file(folder: Path, rows: int) -> Path:
    path = folder / f"customers-{rows}.parquet"
    if not path.exists():
        pq.write_table(customers(rows, np.random.default_rng(SEED)), path)
    return path


def _wide(rows: int, columns: int) -> pa.Table:
    """Return a table whose columns are integers, floats and short texts in turn."""
    random = np.random.default_rng(SEED)
    numbers = [random.integers(0, 10_000, rows) for _ in range(columns)]
    kinds = (pa.int64(), pa.float64(), pa.utf8())
    arrays = [pa.array(each).cast(kinds[index % 3]) for index, each in enumerate(numbers)]
    return pa.table([np.arange(rows), *arrays], names=["id", *column_names(columns)])


def _dimension(path: Path, cache_bytes: int) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(path)},
        "key": ["id"],
        "cache": {"max_bytes": f"{cache_bytes}B", "ttl": "1d"},
        "batch": {"max_keys": 5000},
        "timeout": "60s",
    }


def _measured(
    settings: Mapping[str, Any],
    rows_of: Mapping[str, int],
    growths: Callable[[str], Iterable[Growth]],
    *,
    rounds: int,
    folder: Path,
) -> list[MeasuredGrowth]:
    """Start a sidecar, fill the caches of its dimensions, and measure the growths."""
    with running_sidecar(settings, folder) as sidecar, closing(ClientProcesses()) as clients:
        for dimension, rows in rows_of.items():
            clients.fill(LookupClient(sidecar.endpoint, dimension, rows, _FILL_KEYS, 0, None))
        process = listener(sidecar.socket)
        return [
            MeasuredGrowth(each, _figures(each.cases, process, clients, rounds=rounds))
            for each in growths(sidecar.endpoint)
        ]


def _figures(
    cases: Sequence[LoadCase], process: psutil.Process, clients: ClientProcesses, *, rounds: int
) -> list[CaseFigures]:
    """Measure the cases in turn, after a round that warms up."""
    measured: list[list[LoadRound]] = [[] for _ in cases]
    for _ in range(rounds + 1):
        for case, done in zip(cases, measured, strict=True):
            begun_s = cpu_s(process)
            spans = clients.run(case.loads)
            done.append(LoadRound(tuple(spans), cpu_s(process) - begun_s))
    return [CaseFigures(case, done[1:]) for case, done in zip(cases, measured, strict=True)]


def growth_report(measured: Sequence[MeasuredGrowth], *, rounds: int) -> Section:
    """Return the section; keys that the cache did not answer are a fault."""
    by_name = {each.growth.name: each for each in measured}
    rate = attrgetter("lookups_per_second")
    return Section(
        name="growth",
        title="Growth",
        remarks=[
            *(_METHOD, _FIGURES.format(rounds=rounds), _PROCESSES, _EXPLANATION),
            _batch_costs(by_name["batches"]),
        ],
        tables=[_table(each) for each in measured],
        plots=[
            *(each.plot(each.growth.name, "lookups/s", rate) for each in measured),
            by_name["columns"].plot("bytes", "MB/s of rows", lambda f: f.bytes_per_second / 1e6),
        ],
        targets=[_rate_target(by_name["channels"]), _batch_target(by_name["batches"])],
        faults=list(_faults(measured)),
    )


def _rate_target(channels: MeasuredGrowth) -> Target:
    separate = [each for each in channels.figures if each.case.series == PROCESS_EACH]
    ratio = separate[-1].lookups_per_second / separate[0].lookups_per_second
    name = f"{CHANNELS[-1]} processes, a channel each: rate against one"
    return Target(name, ratio, LEAST_RATE, miss_reason=_REASON)


def _batch_target(batches: MeasuredGrowth) -> Target:
    small = batches.figures[0]
    batch_us = (small.client_ns + small.sidecar_ns) * small.case.x / 1000
    name = f"batch of {small.case.x} keys: worker and sidecar, µs"
    return Target(name, batch_us, MOST_BATCH_US, is_at_least=False, miss_reason=_BATCH_REASON)


def _batch_costs(batches: MeasuredGrowth) -> str:
    """Describe the processor time per batch and per key, from two sizes of a batch."""
    small, large = batches.figures[0], batches.figures[-2]  # the largest takes several frames
    apart = 1 / small.case.x - 1 / large.case.x
    costs = []
    for name in ("client", "sidecar"):
        ns = attrgetter(f"{name}_ns")
        batch_ns = (ns(small) - ns(large)) / apart
        key_ns = ns(large) - batch_ns / large.case.x
        # Below the resolution of processor times, the difference may be negative.
        costs.append(
            f"the {name} {max(batch_ns, 0.0) / 1000:,.0f} µs, and each of its keys {key_ns:,.0f} ns"
        )
    return (
        f"By batches of {small.case.x:,} and of {large.case.x:,} keys, a batch costs"
        f" {'; it costs '.join(costs)}."
    )


def _table(measured: MeasuredGrowth) -> FigureTable:
    first: dict[str, float] = {}
    rows = []
    for each in measured.figures:
        rate = each.lookups_per_second
        ratio = rate / first.setdefault(each.case.series, rate)
        figures = (f"{rate:,.0f}", f"{ratio:.2f}", f"{each.bytes_per_second / 1e6:,.0f}")
        times = (f"{each.client_ns:,.0f}", f"{each.sidecar_ns:,.0f}")
        rows.append((each.case.series, f"{each.case.x:,}", *figures, *times))
    headings = ("clients", measured.growth.x_label, *_HEADINGS)
    return FigureTable(measured.growth.title, headings, rows)


def _faults(measured: Sequence[MeasuredGrowth]) -> Iterator[str]:
    for each in measured:
        for figures in each.figures:
            uncached = sum(each.uncached_keys for each in figures.rounds)
            if uncached:
                case = f"{figures.case.x} {each.growth.x_label}"
                yield f"{case}: the cache did not answer {uncached:,} keys"
