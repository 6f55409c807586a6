"""HTTP rate: a sidecar with cached rows against a bare aiohttp handler.

Both are processes on loopback and get the same load in turn, so that changes of the machine's speed
affect both.
"""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from bench.http_cases import ONE, HttpCase, bare_handler, http_cases
from bench.section import FigureTable, Section, Target
from bench.workload import Workload
from bench.wrk import CONNECTIONS, WrkFigures, installed_wrk, wrk_figures, wrk_script
from demo.sidecar import running_sidecar

ROWS = 10_000
FULL = (5, 5)  # rounds, seconds of each run
QUICK = (3, 1)
LEAST_RATE = 0.70  # against the bare handler
MOST_TAIL = 1.5  # against the bare handler
_RATE_REASON = (
    "finding the row and writing its JSON in Python takes over half of the difference; admission, "
    "access, deadlines and delivery take the rest"
)
_TAIL_REASON = "with servers that are always busy the tail follows the rate"
_REMARKS = (
    (
        f"`wrk` sends requests without a pause with one thread and {CONNECTIONS} connections. "
        "Figures are medians of runs in turn."
    ),
    (
        "The bare handler uses the same event loop, routes and JSON library, and returns the "
        "sidecar's answer without reading the request. It saves most with posted keys: the sidecar "
        "reads the body, checks types and finds many rows."
    ),
)


@dataclass(frozen=True, slots=True)
class Duel:
    """Runs of one case, in order."""

    name: str
    sidecar: list[WrkFigures] = field(default_factory=list)
    bare: list[WrkFigures] = field(default_factory=list)


def http_load(folder: Path, *, is_quick: bool) -> Section:
    """Measure all cases; a wrong or missing answer is a fault."""
    wrk = installed_wrk()
    rounds, seconds = QUICK if is_quick else FULL
    workload = Workload(folder, events=ROWS, rows=ROWS)
    workload.write()
    cases = http_cases(pq.read_table(workload.dimension))
    customers = {
        "source": {"kind": "parquet", "path": str(workload.dimension)},
        "key": ["id"],
        "cache": {"ttl": "1h"},  # longer than the run
    }
    with ExitStack() as stack:
        settings = {"dimensions": {"customers": customers}}
        sidecar = stack.enter_context(running_sidecar(settings, folder))
        for case in cases:
            case.answer(sidecar.url)  # fills the cache
        answers = {
            f"{case.method} /{at}{case.route}": case.answer(sidecar.url)
            for at, case in enumerate(cases)
        }
        bare = stack.enter_context(bare_handler(answers, folder))
        arena = _Arena(wrk, sidecar.url, bare, folder)
        faults = arena.faults(cases)
        duels = arena.duels(cases, rounds=rounds, seconds=seconds)
        faults += arena.faults(cases) + [fault for duel in duels for fault in _lost(duel)]
    return section(duels, faults)


@dataclass(frozen=True, slots=True)
class _Arena:
    wrk: str
    sidecar: str  # URL
    bare: str  # URL
    folder: Path

    def faults(self, cases: Sequence[HttpCase]) -> list[str]:
        """Return a text for each wrong answer."""
        found = []
        for at, case in enumerate(cases):
            found += [case.fault(self.sidecar), case.fault(f"{self.bare}/{at}")]
        return [fault for fault in found if fault is not None]

    def duels(self, cases: Sequence[HttpCase], *, rounds: int, seconds: int) -> list[Duel]:
        """Run all cases in turn in each round, after a round that warms up."""
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
        script.write_text(wrk_script(case.method, case.body))
        for url, found in ((f"{self.bare}/{at}", duel.bare), (self.sidecar, duel.sidecar)):
            found.append(wrk_figures(self.wrk, url + case.path, script, seconds=seconds))


def _lost(duel: Duel) -> list[str]:
    sides = {"sidecar": duel.sidecar, "bare handler": duel.bare}
    return [
        f"{duel.name}: {run.refused} answers of the {side} were not 2xx, {run.broken} were missing"
        for side, runs in sides.items()
        for run in runs
        if run.refused or run.broken
    ]


def section(duels: Sequence[Duel], faults: Sequence[str]) -> Section:
    """Return the section; its targets are for one key requested by its own path."""
    headings = ("case", "requests/s", "bare requests/s", "ratio", "p99 ms", "bare p99 ms", "ratio")
    one = next(duel for duel in duels if duel.name == ONE)
    rate, tail = _rate(one.sidecar) / _rate(one.bare), _p99_ms(one.sidecar) / _p99_ms(one.bare)
    rate_name = "HTTP, one cached key: rate against a bare handler"
    tail_name = "HTTP, one cached key: p99 against a bare handler"
    return Section(
        "http",
        "HTTP: cached rows against a bare handler",
        _REMARKS,
        tables=[FigureTable("Requests per second", headings, [_row(duel) for duel in duels])],
        targets=[
            Target(rate_name, rate, LEAST_RATE, miss_reason=_RATE_REASON),
            Target(tail_name, tail, MOST_TAIL, is_at_least=False, miss_reason=_TAIL_REASON),
        ],
        faults=faults,
    )


def _row(duel: Duel) -> list[str]:
    rate, bare_rate = _rate(duel.sidecar), _rate(duel.bare)
    tail, bare_tail = _p99_ms(duel.sidecar), _p99_ms(duel.bare)
    return [
        *(duel.name, f"{rate:,.0f}", f"{bare_rate:,.0f}", f"{rate / bare_rate:.2f}"),
        *(f"{tail:.2f}", f"{bare_tail:.2f}", f"{tail / bare_tail:.2f}"),
    ]


def _rate(runs: Sequence[WrkFigures]) -> float:
    return statistics.median(run.requests_per_second for run in runs)


def _p99_ms(runs: Sequence[WrkFigures]) -> float:
    return statistics.median(run.p99_us for run in runs) / 1000
