"""Tables of the fleet page: on the terminal, and between the markers of docs/fleet.md."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.fleet.cases import Case, StreamFigures, TableLoadFigures
from tools.fleet.simulation import DIMENSION

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"
BEGIN = "<!-- written by python -m tools.fleet --write -->"
END = "<!-- end of the written part -->"
StreamRow = tuple[Case, StreamFigures]
LoadRow = tuple[Case, TableLoadFigures]

_COLD = [
    "executors",
    "server",
    "allowed",
    "paper",
    "open",
    "refused",
    "queries/s",
    "later",
    "keys/s",
]
_COLD += ["busy", "p99", "failed"]
_RESTART = ["executors", "server", "warm after", "caches kept", "failed", "empty caches", "failed"]
_FAILOVER = ["executors", "server", "connects/s", "failed during", "failed after", "failing for"]
_FAILOVER += ["slowest", "retries"]
_LOAD = ["executors", "server", "spread", "open", "refused", "failed loads", "half", "all"]


def page_tables(streams: Sequence[StreamRow], loads: Sequence[LoadRow]) -> str:
    """The headings with their tables, as Markdown."""
    parts = {
        "Cold start": _markdown(_COLD, map(cold_cells, streams)),
        "Restart of the driver": _markdown(_RESTART, map(restart_cells, streams)),
        "Failover of 30 s": _markdown(_FAILOVER, map(failover_cells, streams)),
        "Full mode: the first load": _markdown(_LOAD, map(load_cells, loads)),
    }
    return "\n\n".join(f"### {name}\n\n" + "\n".join(lines) for name, lines in parts.items())


def written_page(page: str, tables: str) -> str:
    """The page with these tables between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def cold_cells(row: StreamRow) -> list[str]:
    """The connections and the load of a cold start."""
    case, (load, lookups) = row[0], row[1].cold
    batch = case.settings.dimensions[DIMENSION].batch
    return [
        *_names(case),
        f"{case.executors * case.settings.limits.database_connections:,}",
        f"{case.executors * batch.max_in_flight:,}",
        f"{load.connections:,}",
        f"{load.refused:,}",
        f"{load.peak_queries:,}",
        f"{load.steady_queries:,}",
        f"{load.peak_keys:,}",
        f"{load.busy:.0%}",
        f"{load.p99_ms:.0f} ms",
        _share(lookups.failed_share),
    ]


def restart_cells(row: StreamRow) -> list[str]:
    """The time to warm, and the first micro-batch after a restart with kept and empty caches."""
    case, figures = row
    kept, empty = figures.warm_restart[1], figures.empty_restart[1]
    return [
        *_names(case),
        _seconds(figures.cold[1].warm_s),
        _seconds(kept.first_batch_s),
        _share(kept.failed_share),
        _seconds(empty.first_batch_s),
        _share(empty.failed_share),
    ]


def failover_cells(row: StreamRow) -> list[str]:
    """The outage, and the 45 seconds after it."""
    case, figures = row
    after = figures.recovery[1]
    return [
        *_names(case),
        f"{figures.connects_per_s:,}",
        _share(figures.outage.failed_share),
        _share(after.failed_share),
        _seconds(after.last_failure_s or 0.0),
        _seconds(after.longest_batch_s),
        f"{figures.retries:,}",
    ]


def load_cells(row: LoadRow) -> list[str]:
    """The first loads of a fleet in mode full."""
    case, figures = row
    spread_s = case.settings.dimensions[DIMENSION].cache.load_spread_s
    return [
        *_names(case),
        f"{spread_s:.0f} s",
        f"{figures.connections:,}",
        f"{figures.refused:,}",
        f"{figures.failed_loads:,}",
        _seconds(figures.median_s),
        _seconds(figures.last_s) if figures.loaded == case.executors else "not all",
    ]


def markdown_line(cells: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def _names(case: Case) -> list[str]:
    return [f"{case.executors:,}", case.server]


def _seconds(value: float | None) -> str:
    return "later" if value is None else f"{value:.1f} s"


def _share(value: float) -> str:
    return f"{value:.1%}" if value else "0"


def _markdown(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield markdown_line(head)
    yield markdown_line(["---"] * 2 + ["--:"] * (len(head) - 2))
    yield from map(markdown_line, rows)
