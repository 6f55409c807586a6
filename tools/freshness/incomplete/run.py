"""Run of the audit of incomplete feeds: a complete feed, a fault, a check at rest, a repair."""

import http.client
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import numpy as np

from tools.freshness.connections import HttpConnection, LookupAnswers, StreamConnection
from tools.freshness.feeds import PATIENCE_S, feed_of
from tools.freshness.incomplete.feed_faults import Chance, FeedFault
from tools.freshness.table import KEYS, Versions, versions_in
from tools.freshness.workers import BULK_KEYS
from tools.freshness.world import AuditPlan, FreshnessWorld, freshness_world
from tools.processes.until import until

DELAY_S = 5.0  # of the changes of a complete feed, on a loaded machine
_QUIET_S = (2.0, 6.0)  # with a complete feed, before each fault
_WARM_HITS_PER_READER = 1_000

Streams = Mapping[str, StreamConnection]  # {dimension: its channel}


@dataclass(slots=True)
class FaultResult:
    """What one kind of fault has led to."""

    bound_s: float
    struck: int = 0
    longest_s: float = 0.0  # for which a hit was wrong
    wrong: int = 0  # keys that differ from the table after the bound

    @property
    def is_within_bound(self) -> bool:
        """Whether no hit was wrong for longer than the docs state."""
        return self.longest_s <= self.bound_s + DELAY_S and not self.wrong


@dataclass(slots=True)
class IncompleteReport:
    """The result of an audit of incomplete feeds."""

    plan: AuditPlan
    kinds: dict[str, FaultResult]
    outcomes: Counter[str] = field(default_factory=Counter)
    complete: FaultResult = field(default_factory=lambda: FaultResult(0.0))  # between faults
    false_alarms: int = 0

    @property
    def is_within_bounds(self) -> bool:
        """Whether each wrong hit was within its bound, without a false alarm."""
        results = (self.complete, *self.kinds.values())
        return not self.false_alarms and all(each.is_within_bound for each in results)

    def lines(self) -> Iterator[str]:
        """The lines of the report; the last one has the result."""
        yield f"complete feed: longest {self.complete.longest_s:.1f} s"
        for name, each in self.kinds.items():
            found = f"longest {each.longest_s:.1f} s of {each.bound_s:.0f} s + {DELAY_S:.0f} s"
            yield f"{name}: {each.struck} faults, {found}, wrong keys {each.wrong}"
        struck = sum(each.struck for each in self.kinds.values())
        longest = ", ".join(f"{name} {each.longest_s:.1f} s" for name, each in self.kinds.items())
        yield (
            f"lookups {self.outcomes.total():,}, faults {struck}, longest wrong: {longest};"
            f" false alarms {self.false_alarms}, seed {self.plan.seed}"
        )


def audit_incomplete(plan: AuditPlan, faults: Sequence[FeedFault]) -> IncompleteReport:
    """Strike these faults; after one that ends the trust, the feed is not used again."""
    chance = random.Random(plan.seed)
    report = IncompleteReport(plan, {each.name: FaultResult(each.bound_s) for each in faults})
    with freshness_world(plan) as world:
        for fault in faults:
            _run_complete(world, report, chance)
            _run_fault(world, fault, report.kinds[fault.name], chance=chance)
        if not faults[-1].ends_trust:
            _run_complete(world, report, chance)
        report.outcomes = sum((each.counts.outcomes for each in world.readers), Counter())
    return report


def _run_complete(world: FreshnessWorld, report: IncompleteReport, chance: Chance) -> None:
    """Change and look up rows with a complete feed, which no audit may contradict."""
    for worker in (*world.writers, *world.readers):
        worker.resume()
    _wait_for_hits(world)  # a table that was refused is accepted again, and its feed has started
    until(world.are_live, within_s=PATIENCE_S)
    _take_longest_s(world)
    contradicted = _contradicted(world)
    time.sleep(chance.uniform(*_QUIET_S))  # changes and lookups
    _wait_for_hits(world)
    report.false_alarms += _contradicted(world) - contradicted
    report.complete.longest_s = max(report.complete.longest_s, _take_longest_s(world))


def _run_fault(
    world: FreshnessWorld, fault: FeedFault, result: FaultResult, *, chance: Chance
) -> None:
    commits = world.commits
    streams = {name: StreamConnection(world.connection, name) for name in world.dimensions}
    for stream in streams.values():
        stream.bulk(np.arange(BULK_KEYS))  # it is open before its dimension may be refused
    fault.strike(world, chance)
    time.sleep(chance.uniform(0.0, 2 * DELAY_S))  # the fault itself
    result.struck += int(world.commits > commits)
    for writer in world.writers:
        writer.pause()
    time.sleep(fault.bound_s + DELAY_S)  # the bound, after which no answer may be wrong
    wrong, longest_s = _wrong_keys(world, streams), _take_longest_s(world)
    result.wrong += wrong
    result.longest_s = max(result.longest_s, longest_s)
    _show(f"{fault.name}: longest {longest_s:.1f} s, wrong keys {wrong}")
    for stream in streams.values():
        stream.close()
    fault.repair(world)


def _wait_for_hits(world: FreshnessWorld) -> None:
    wanted = [each.counts.outcomes["hit"] + _WARM_HITS_PER_READER for each in world.readers]

    def are_warm() -> bool:
        found = [each.counts.outcomes["hit"] for each in world.readers]
        return all(hits > least for hits, least in zip(found, wanted, strict=True))

    until(are_warm, within_s=PATIENCE_S)


def _contradicted(world: FreshnessWorld) -> int:
    """How many rows differ from the table without an event, as the sidecar's audit finds."""
    feeds = (feed_of(world.sidecar, name) for name in world.dimensions)
    return sum(feed["audited_keys"]["contradicted"] for feed in feeds)


def _take_longest_s(world: FreshnessWorld) -> float:
    """The longest time for which a hit was wrong since the last call."""
    longest_s = 0.0
    for reader in world.readers:
        reader.pause()
        longest_s = max(longest_s, reader.counts.longest_lag_s)
        reader.counts.longest_lag_s = 0.0
        reader.resume()
    return longest_s


def _wrong_keys(world: FreshnessWorld, streams: Streams) -> int:
    """How many cached answers differ from the table, in which nothing changes."""
    if world.replica is not None:
        world.replica.wait_until_applied()
    table = versions_in(world.database)
    wrong = 0
    for name, stream in streams.items():
        with closing(HttpConnection(world.sidecar, name)) as direct:
            wrong += _wrong_in(stream, direct, table)
    return wrong


def _wrong_in(stream: StreamConnection, direct: HttpConnection, table: Versions) -> int:
    wrong = 0
    for first in range(0, KEYS, BULK_KEYS):
        keys = np.arange(first, min(first + BULK_KEYS, KEYS))
        wrong += _wrong_of(stream.without_sidecar(keys), table[keys])
        with suppress(http.client.HTTPException):  # the table is refused
            wrong += _wrong_of(direct.bulk(keys), table[keys])
    return wrong


def _wrong_of(answers: LookupAnswers, table: Versions) -> int:
    is_cached = (answers.outcomes == "hit") | (answers.outcomes == "missing")
    return int((is_cached & (answers.versions != table)).sum())


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
