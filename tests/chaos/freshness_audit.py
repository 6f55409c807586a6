"""The auditor of freshness: whether anything stays stale, whatever dies meanwhile.

Rows change, keys are looked up, faults strike; now and then all falls quiet, and then every answer
must be what is in the table. `python -m tests.chaos.freshness_audit --feed changelog` prints it.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from tests.chaos.freshness_answers import HttpConnection, LookupConnection, Told
from tests.chaos.freshness_asker import BULK_KEYS, LATE_S
from tests.chaos.freshness_faults import Fault, shuffled_rounds
from tests.chaos.freshness_stream import StreamConnection
from tests.chaos.freshness_table import KEYS, Versions, versions_in
from tests.chaos.freshness_world import AuditPlan, FreshnessWorld, freshness_world
from tests.end_to_end.until import until

_ROUND = 8  # faults between two moments of rest
_WARM_HITS = 20_000  # after the last fault of a round, so that there is something to be stale
_WARM_WITHIN_S = 180.0  # seconds at rest; neighbours and a feed that is not back yet make it long
_SINGLES = 500  # keys that are asked one by one at rest, twice
_TOLD_ENTRIES = 10  # stale ones that are printed


@dataclass(frozen=True, slots=True)
class StaleEntry:
    """An answer that is not in the table any more, though its change is long told."""

    dimension: str
    key: int
    outcome: str
    version: int
    table_version: int


@dataclass(slots=True)
class AuditReport:
    """What an audit showed."""

    plan: AuditPlan
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    failed_requests: int = 0
    late_hits: int = 0
    longest_lag_s: float = 0.0
    commits: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)  # outcomes at rest
    stale: list[StaleEntry] = field(default_factory=list)

    @property
    def lookups(self) -> int:
        """Keys that were answered."""
        return self.outcomes.total() + self.checked.total()

    def lines(self) -> Iterator[str]:
        """It as text."""
        plan, figures = self.plan, self.figures
        twin = f", twin {plan.twin}" if plan.twin else ""
        standby = ", synchronous standby" if plan.has_standby else ""
        yield f"{plan.feed}, {plan.mode}{standby}{twin}: {self.seconds:.0f} s, seed {plan.seed}"
        yield f"lookups = {self.lookups:,}: {_told(self.outcomes)}; {self.failed_requests} failed"
        events = int(figures["sidelook_invalidations_total"])
        fenced = int(figures["sidelook_fenced_keys_total"])
        yield f"commits = {self.commits:,}, events = {events:,}, fenced keys = {fenced:,}"
        yield f"faults that struck = {self.struck.total()}: {_told(self.struck)}"
        if self.missed:
            yield f"faults without effect = {self.missed.total()}: {_told(self.missed)}"
        late = f"{self.late_hits} hits were replaced more than {LATE_S:.0f} s before"
        yield f"under way: {late}, the oldest {self.longest_lag_s:.1f} s"
        yield f"at rest: {_told(self.checked)}"
        yield from (str(each) for each in self.stale[:_TOLD_ENTRIES])
        yield f"stale = {len(self.stale)}"


def audit(plan: AuditPlan, *, lookups: int, faults: int) -> AuditReport:
    """Run until so many keys were looked up, and so many faults have struck."""
    report = AuditReport(plan)
    began_s = time.monotonic()
    with freshness_world(plan) as world:
        chance = random.Random(plan.seed)  # noqa: S311 -- a seed is the point
        for script in shuffled_rounds(plan, chance, size=min(_ROUND, faults)):
            _run_round(world, script, report, chance=chance)
            _count(world, report)
            _show(f"{report.lookups:,} lookups, {report.struck.total()} faults, {report.stale}")
            if report.lookups >= lookups and report.struck.total() >= faults:
                break
    report.seconds = time.monotonic() - began_s
    return report


def audit_faults(plan: AuditPlan, script: Sequence[Fault]) -> AuditReport:
    """Run these faults, and look once."""
    report = AuditReport(plan)
    began_s = time.monotonic()
    with freshness_world(plan) as world:
        chance = random.Random(plan.seed)  # noqa: S311 -- as above
        _run_round(world, script, report, chance=chance)
        _count(world, report)
    report.seconds = time.monotonic() - began_s
    return report


def _run_round(
    world: FreshnessWorld, script: Sequence[Fault], report: AuditReport, *, chance: random.Random
) -> None:
    for writer in world.writers:
        writer.go_on()
    for asker in world.askers:
        asker.go_on()
    for fault in script:
        time.sleep(chance.uniform(0.2, 1.0))  # changes and lookups as they are without faults
        began_s = time.monotonic()
        has_struck = fault(world, chance)
        (report.struck if has_struck else report.missed)[fault.__name__] += 1
        took_s = time.monotonic() - began_s
        _show(f"{fault.__name__}: {'struck' if has_struck else 'missed'}, {took_s:.1f} s")
    hits = world.hits
    until(lambda: world.hits > hits + _WARM_HITS, within_s=_WARM_WITHIN_S)
    for writer in world.writers:
        writer.pause()
    for name in world.dimensions:
        world.feed.wait_until_told(world.sidecar, name)
    for asker in world.askers:
        asker.pause()
    _check(world, report)


def _check(world: FreshnessWorld, report: AuditReport) -> None:
    table = versions_in(world.database)
    for name in world.dimensions:
        with closing(StreamConnection(world.sidecar, name)) as stream:
            _check_all(stream, report, name, table=table)
        with closing(HttpConnection(world.sidecar, name)) as http:
            _check_all(http, report, name, table=table)
            for key in [*range(_SINGLES), *range(_SINGLES)]:
                keys = np.array([key])
                _compare(report, name, keys, told=http.single(key), table=table)


def _check_all(
    connection: LookupConnection, report: AuditReport, dimension: str, *, table: Versions
) -> None:
    for first in range(0, KEYS, BULK_KEYS):
        keys = np.arange(first, min(first + BULK_KEYS, KEYS))
        _compare(report, dimension, keys, told=connection.bulk(keys), table=table)


def _compare(
    report: AuditReport,
    dimension: str,
    keys: "np.typing.NDArray[np.int64]",
    *,
    told: Told,
    table: Versions,
) -> None:
    report.checked += told.counts
    for place in np.flatnonzero(told.versions != table[keys]).tolist():
        key, outcome = int(keys[place]), str(told.outcomes[place])
        versions = (int(told.versions[place]), int(table[key]))
        report.stale.append(StaleEntry(dimension, key, outcome, *versions))


def _count(world: FreshnessWorld, report: AuditReport) -> None:
    asked = [each.asked for each in world.askers]
    report.outcomes = sum((each.outcomes for each in asked), Counter())
    report.failed_requests = sum(each.failed_requests for each in asked)
    report.late_hits = sum(each.late_hits for each in asked)
    report.longest_lag_s = max(each.longest_lag_s for each in asked)
    report.commits = world.commits
    report.figures = world.figures()


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 -- how far it is


def main() -> int:
    """Audit as the command line says, and print what it showed; 1 for stale entries."""
    parser = argparse.ArgumentParser(description="Whether anything stays stale.")
    parser.add_argument("--feed", choices=["changelog", "notifications"], required=True)
    parser.add_argument("--mode", choices=["partial", "full", "mixed"], default="partial")
    parser.add_argument("--lookups", type=int, default=1_000_000)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--standby", action="store_true", help="commits wait for a standby")
    parser.add_argument("--twin", choices=["unfenced", "naive"])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    asked = parser.parse_args()
    plan = AuditPlan(asked.feed, asked.mode, asked.standby, asked.twin, asked.seed)
    report = audit(plan, lookups=asked.lookups, faults=asked.faults)
    print("\n".join(report.lines()))  # noqa: T201 -- this is what it is for
    return int(bool(report.stale))


if __name__ == "__main__":
    sys.exit(main())
