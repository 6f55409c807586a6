"""Freshness audit: `python -m tools.freshness.audit --feed changelog`.

Workers change rows and look them up while faults strike. After each round the workers pause, and
every answer must equal the table.
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

from tools.freshness.connections import (
    HttpConnection,
    LookupAnswers,
    LookupConnection,
    StreamConnection,
)
from tools.freshness.faults import Fault, shuffled_rounds
from tools.freshness.naive_reader import READER_TWINS
from tools.freshness.table import KEYS, StaleEntry, Versions, versions_in
from tools.freshness.workers import BULK_KEYS, LATE_S
from tools.freshness.world import AuditPlan, FreshnessWorld, freshness_world
from tools.processes.until import until

_ROUND = 8  # faults between two checks
_WARM_HITS = 20_000  # after the last fault of a round, so that the caches are filled
_WARM_WITHIN_S = 180.0  # a feed may be down, and the machine loaded
_SINGLES = 500  # keys that are looked up one by one in a check, twice
_PRINTED_STALE_ENTRIES = 10


@dataclass(slots=True)
class AuditReport:
    """The result of an audit."""

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
    checked: Counter[str] = field(default_factory=Counter)  # outcomes of the checks
    stale: list[StaleEntry] = field(default_factory=list)

    @property
    def lookups(self) -> int:
        """Keys with an answer."""
        return self.outcomes.total() + self.checked.total()

    @property
    def shared(self) -> int:
        """Keys that were looked up in shared memory."""
        return int(self.figures["sidelook_shared_lookups_total"])

    def lines(self) -> Iterator[str]:
        """The lines of the report."""
        plan, figures = self.plan, self.figures
        twin = f", twin {plan.twin}" if plan.twin else ""
        standby = ", synchronous standby" if plan.has_standby else ""
        standby += f", share {plan.share}"
        yield f"{plan.feed}, {plan.mode}{standby}{twin}: {self.seconds:.0f} s, seed {plan.seed}"
        yield f"lookups = {self.lookups:,}: {_listed(self.outcomes)}; {self.failed_requests} failed"
        yield f"looked up in shared memory = {self.shared:,}"
        events = int(figures["sidelook_invalidations_total"])
        fenced = int(figures["sidelook_fenced_keys_total"])
        yield f"commits = {self.commits:,}, events = {events:,}, fenced keys = {fenced:,}"
        yield f"effective faults = {self.struck.total()}: {_listed(self.struck)}"
        if self.missed:
            yield f"ineffective faults = {self.missed.total()}: {_listed(self.missed)}"
        late = f"{self.late_hits} hits were replaced more than {LATE_S:.0f} s before"
        yield f"under way: {late}, the oldest {self.longest_lag_s:.1f} s"
        yield f"at rest: {_listed(self.checked)}"
        yield from (str(each) for each in self.stale[:_PRINTED_STALE_ENTRIES])
        yield f"stale = {len(self.stale)}"


def audit(plan: AuditPlan, *, lookups: int, faults: int) -> AuditReport:
    """Run rounds until these numbers of lookups and of effective faults are reached."""
    report = AuditReport(plan)
    began_s = time.monotonic()
    with freshness_world(plan) as world:
        chance = random.Random(plan.seed)
        for script in shuffled_rounds(plan, chance, size=min(_ROUND, faults)):
            _run_round(world, script, report, chance=chance)
            _count(world, report)
            _show(f"{report.lookups:,} lookups, {report.struck.total()} faults, {report.stale}")
            if report.lookups >= lookups and report.struck.total() >= faults:
                break
    report.seconds = time.monotonic() - began_s
    return report


def audit_faults(plan: AuditPlan, script: Sequence[Fault]) -> AuditReport:
    """Run one round of these faults, with one check."""
    report = AuditReport(plan)
    began_s = time.monotonic()
    with freshness_world(plan) as world:
        chance = random.Random(plan.seed)
        _run_round(world, script, report, chance=chance)
        _count(world, report)
    report.seconds = time.monotonic() - began_s
    return report


def _run_round(
    world: FreshnessWorld, script: Sequence[Fault], report: AuditReport, *, chance: random.Random
) -> None:
    for worker in (*world.writers, *world.readers):
        worker.resume()
    for fault in script:
        time.sleep(chance.uniform(0.2, 1.0))  # changes and lookups without a fault
        began_s = time.monotonic()
        has_struck = fault(world, chance)
        (report.struck if has_struck else report.missed)[fault.__name__] += 1
        took_s = time.monotonic() - began_s
        _show(f"{fault.__name__}: {'struck' if has_struck else 'missed'}, {took_s:.1f} s")
    report.stale += world.outlived
    world.outlived.clear()
    hits = world.hits
    until(lambda: world.hits > hits + _WARM_HITS, within_s=_WARM_WITHIN_S)
    for writer in world.writers:
        writer.pause()
    for name in world.dimensions:
        world.feed.wait_until_applied(world.sidecar, name)
    for reader in world.readers:
        reader.pause()
    _check(world, report)


def _check(world: FreshnessWorld, report: AuditReport) -> None:
    table = versions_in(world.database)
    for name in world.dimensions:
        with closing(StreamConnection(world.connection, name)) as stream:
            _check_all(stream, report, name, table=table)
        with closing(HttpConnection(world.sidecar, name)) as http:
            _check_all(http, report, name, table=table)
            for key in [*range(_SINGLES), *range(_SINGLES)]:
                keys = np.array([key])
                _compare(report, name, keys, answers=http.single(key), table=table)


def _check_all(
    connection: LookupConnection, report: AuditReport, dimension: str, *, table: Versions
) -> None:
    for first in range(0, KEYS, BULK_KEYS):
        keys = np.arange(first, min(first + BULK_KEYS, KEYS))
        _compare(report, dimension, keys, answers=connection.bulk(keys), table=table)


def _compare(
    report: AuditReport,
    dimension: str,
    keys: "np.typing.NDArray[np.int64]",
    *,
    answers: LookupAnswers,
    table: Versions,
) -> None:
    report.checked += answers.counts
    for place in np.flatnonzero(answers.versions != table[keys]).tolist():
        key, outcome = int(keys[place]), str(answers.outcomes[place])
        versions = (int(answers.versions[place]), int(table[key]))
        report.stale.append(StaleEntry(dimension, key, outcome, *versions))


def _count(world: FreshnessWorld, report: AuditReport) -> None:
    counts = [each.counts for each in world.readers]
    report.outcomes = sum((each.outcomes for each in counts), Counter())
    report.failed_requests = sum(each.failed_requests for each in counts)
    report.late_hits = sum(each.late_hits for each in counts)
    report.longest_lag_s = max(each.longest_lag_s for each in counts)
    report.commits = world.commits
    report.figures = world.figures()


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Run the audit of the command line and print its report; 1 for stale entries."""
    parser = argparse.ArgumentParser(description="Check whether cached rows stay stale.")
    parser.add_argument("--feed", choices=["changelog", "notifications"], required=True)
    parser.add_argument("--mode", choices=["partial", "full", "mixed"], default="partial")
    parser.add_argument("--lookups", type=int, default=1_000_000)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--standby", action="store_true", help="commits wait for a standby")
    parser.add_argument("--share", choices=["auto", "off"], default="auto")
    parser.add_argument("--twin", choices=["unfenced", "naive", *READER_TWINS])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    plan = AuditPlan(
        options.feed,
        options.mode,
        options.standby,
        twin=options.twin,
        share=options.share,
        seed=options.seed,
    )
    report = audit(plan, lookups=options.lookups, faults=options.faults)
    print("\n".join(report.lines()))
    return int(bool(report.stale))


if __name__ == "__main__":
    sys.exit(main())
