"""Requests per second over HTTP: a sidecar with its rows cached, against a bare aiohttp handler.

Both are processes of their own on loopback and get the same load in turn, so that a machine whose
speed drifts does so for both.
"""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.http_cases import ONE, HttpCase, bare_handler, http_cases
from bench.section import Bar, FigureTable, Section
from bench.workload import Workload
from bench.wrk import CONNECTIONS, WrkFigures, installed_wrk, wrk_figures
from demo.sidecar import running_sidecar

ROWS = 10_000
FULL = (5, 5)  # rounds, seconds of each run
QUICK = (3, 1)
LEAST_RATE = 0.70  # of the bare handler's
MOST_TAIL = 1.5  # times the bare handler's
_RATE_SHORTFALL = (
    "what stands around each request (slots, room, access, deadlines), asking the cache for the "
    "row and counting the hit is Python's calls, which lose more than the bare handler's few when "
    "other processes use the same caches"
)
_TAIL_SHORTFALL = "with servers that are always busy the tail follows the rate"
_REMARKS = (
    (
        f"`wrk` with one thread and {CONNECTIONS} connections that ask without a pause, so that "
        "both servers are always busy; medians of runs in turn."
    ),
    (
        "The sidecar has its default settings. The bare handler runs on the same loop, without an "
        "access log either; it has routes of the same form, reads nothing of the request, and "
        "writes a JSON text of the sidecar's own answer with the same library. With posted keys "
        "that spares it the most: the body, the types of the keys, and the search for many rows, "
        "in some 150 calls into numpy and Arrow, whatever the number of keys."
    ),
)


@dataclass(frozen=True, slots=True)
class Duel:
    """What the runs of one case found, in order."""

    name: str
    sidecar: list[WrkFigures] = field(default_factory=list)
    bare: list[WrkFigures] = field(default_factory=list)

    @property
    def rate_ratio(self) -> float:
        """The sidecar's rate against the bare handler's."""
        return _rate(self.sidecar) / _rate(self.bare)

    @property
    def tail_ratio(self) -> float:
        """The sidecar's p99 against the bare handler's."""
        return _p99_us(self.sidecar) / _p99_us(self.bare)


def http_load(folder: Path, *, is_quick: bool) -> Section:
    """Measure all cases; a wrong answer, or one that did not come, is a fault."""
    wrk = installed_wrk()
    rounds, seconds = QUICK if is_quick else FULL
    workload = Workload(folder, events=ROWS, rows=ROWS)
    workload.write()
    cases = http_cases(pq.read_table(workload.dimension))
    with ExitStack() as stack:
        sidecar = stack.enter_context(running_sidecar(_settings(workload.dimension), folder))
        for case in cases:
            case.answer(sidecar.url)  # from here on its rows are cached
        answers = {
            f"{case.request.method} /{at}{case.route}": case.answer(sidecar.url)
            for at, case in enumerate(cases)
        }
        bare = stack.enter_context(bare_handler(answers, folder))
        arena = _Arena(wrk, sidecar.url, bare, folder)
        faults = arena.faults(cases)
        duels = arena.duels(cases, rounds=rounds, seconds=seconds)
        faults += arena.faults(cases) + [fault for duel in duels for fault in _lost(duel)]
    return section(duels, faults)


def section(duels: Sequence[Duel], faults: Sequence[str]) -> Section:
    """The figures in print, with the bars for one key that is asked for by its own address."""
    headings = ("case", "requests/s", "bare requests/s", "ratio", "p99 ms", "bare p99 ms", "ratio")
    return Section(
        "http",
        "HTTP: cached rows against a bare handler",
        _REMARKS,
        tables=[FigureTable("Requests per second", headings, [_row(duel) for duel in duels])],
        bars=[bar for duel in duels if duel.name == ONE for bar in _bars(duel)],
        faults=faults,
    )


@dataclass(frozen=True, slots=True)
class _Arena:
    wrk: str
    sidecar: str  # where each is
    bare: str
    folder: Path

    def faults(self, cases: Sequence[HttpCase]) -> list[str]:
        """Which answers are wrong."""
        found = []
        for at, case in enumerate(cases):
            found += [case.fault(self.sidecar), case.fault(f"{self.bare}/{at}")]
        return [fault for fault in found if fault is not None]

    def duels(self, cases: Sequence[HttpCase], *, rounds: int, seconds: int) -> list[Duel]:
        """One after the other in each round; the first one only warms up."""
        for at, case in enumerate(cases):
            self._run(case, at, Duel(case.name), seconds=1)
        duels = [Duel(case.name) for case in cases]
        for number in range(rounds):
            print(f"HTTP, round {number + 1} of {rounds}")
            for at, case in enumerate(cases):
                self._run(case, at, duels[at], seconds=seconds)
        return duels

    def _run(self, case: HttpCase, at: int, duel: Duel, *, seconds: int) -> None:
        script = self.folder / f"wrk-{at}.lua"
        script.write_text(case.request.script)
        path = case.request.path
        for url, found in ((f"{self.bare}/{at}", duel.bare), (self.sidecar, duel.sidecar)):
            found.append(wrk_figures(self.wrk, url + path, script, seconds=seconds))


def _bars(duel: Duel) -> tuple[Bar, Bar]:
    return (
        Bar(
            "HTTP, one cached key: rate against a bare handler",
            duel.rate_ratio,
            LEAST_RATE,
            shortfall=_RATE_SHORTFALL,
        ),
        Bar(
            "HTTP, one cached key: p99 against a bare handler",
            duel.tail_ratio,
            MOST_TAIL,
            is_at_least=False,
            shortfall=_TAIL_SHORTFALL,
        ),
    )


def _row(duel: Duel) -> list[str]:
    rates = [_rate(duel.sidecar), _rate(duel.bare)]
    tails = [_p99_us(duel.sidecar) / 1000, _p99_us(duel.bare) / 1000]
    return [
        duel.name,
        *(f"{rate:,.0f}" for rate in rates),
        f"{duel.rate_ratio:.2f}",
        *(f"{tail:.2f}" for tail in tails),
        f"{duel.tail_ratio:.2f}",
    ]


def _lost(duel: Duel) -> list[str]:
    sides = {"sidecar": duel.sidecar, "bare handler": duel.bare}
    return [
        f"{duel.name}: {run.refused} answers of the {side} were not 2xx, {run.broken} never came"
        for side, runs in sides.items()
        for run in runs
        if run.refused or run.broken
    ]


def _rate(runs: Sequence[WrkFigures]) -> float:
    return statistics.median(run.requests_per_second for run in runs)


def _p99_us(runs: Sequence[WrkFigures]) -> float:
    return statistics.median(run.p99_us for run in runs)


def _settings(dimension: Path) -> dict[str, Any]:
    customers = {
        "source": {"kind": "parquet", "path": str(dimension)},
        "key": ["id"],
        "cache": {"ttl": "1h"},  # longer than the run; all else is as it comes
    }
    return {"dimensions": {"customers": customers}}
