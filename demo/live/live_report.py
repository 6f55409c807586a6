"""Report of the live run: delay from commit to the first record with the change, and faults."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from demo.dimension import AIRPORTS, PLANES
from demo.live.changes import ABSENT, ARRIVED, Commit, PlannedChange
from demo.report import plain_table

Key = tuple[str, str]  # a dimension and one of its keys
COLUMNS = ("tailnum", "plane_seats", "dest", "dest_name")  # that `sight` needs
MAX_DELAY_S = 2.0  # p99
REPORT_COLUMNS = ("rows changed", "seen", "median ms", "p99 ms", "max ms")


@dataclass(frozen=True, slots=True)
class Sighting:
    """Versions of the watched rows in the records of one micro-batch."""

    emitted_s: float  # since the epoch, after all records were emitted
    records: int
    versions: Mapping[Key, Mapping[int, int]]  # {row: {version: records with it}}


@dataclass(frozen=True, slots=True)
class ChangeDelays:
    """Delays of the changes, row by row."""

    seconds: Mapping[str, Sequence[float]]  # {dimension: delay of each seen row}
    unseen: Sequence[Key]  # rows whose change was never seen

    @property
    def all_seconds(self) -> list[float]:
        """Delays of all dimensions."""
        return [delay for each in self.seconds.values() for delay in each]


def watched_keys(changes: Iterable[PlannedChange]) -> frozenset[Key]:
    """Return the rows that change."""
    return frozenset((change.dimension, key) for change in changes for key in change.keys)


def sight(enriched: pa.Table, watched: frozenset[Key], *, emitted_s: float) -> Sighting:
    """Count the versions of the watched rows in the records."""
    seats = pc.fill_null(enriched["plane_seats"].cast(pa.int64()), 0)
    has_airport = pc.is_valid(enriched["dest_name"]).cast(pa.int64())
    versions: dict[Key, dict[int, int]] = {}
    for dimension, keys, shown in (
        (PLANES.name, enriched["tailnum"], seats),
        (AIRPORTS.name, enriched["dest"], has_airport),
    ):
        wanted = pa.array([key for name, key in watched if name == dimension], pa.string())
        records = pa.table({"key": keys, "version": shown}).filter(pc.is_in(keys, wanted))
        counted = records.group_by(["key", "version"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            versions.setdefault((dimension, row["key"]), {})[row["version"]] = row["count_all"]
    return Sighting(emitted_s, enriched.num_rows, versions)


def change_delays(commits: Iterable[Commit], sightings: Iterable[Sighting]) -> ChangeDelays:
    """Measure the delay of each row until the first micro-batch with its version or a newer one."""
    rises = _rises(sightings)
    seconds: dict[str, list[float]] = {}
    unseen: list[Key] = []
    for commit in commits:
        change = commit.change
        delays = seconds.setdefault(change.dimension, [])
        for key in change.keys:
            risen = rises.get((change.dimension, key), [])
            place = bisect_left(risen, (change.version, 0.0))
            if place < len(risen):
                delays.append(risen[place][1] - commit.committed_s)
            else:
                unseen.append((change.dimension, key))
    return ChangeDelays(seconds, unseen)


def _rises(sightings: Iterable[Sighting]) -> dict[Key, list[tuple[int, float]]]:
    """Return for each row its new highest versions and when they were emitted, ascending."""
    rises: dict[Key, list[tuple[int, float]]] = {}
    for sighting in sightings:
        for key, versions in sighting.versions.items():
            risen = rises.setdefault(key, [])
            newest = max(versions)
            if not risen or newest > risen[-1][0]:
                risen.append((newest, sighting.emitted_s))
    return rises


def live_faults(commits: Sequence[Commit], sightings: Sequence[Sighting]) -> list[str]:
    """Return all faults of a live run."""
    if not sightings:
        return ["no flight was emitted"]
    delays = change_delays(commits, sightings)
    return [
        *_late(delays),
        *_old_at_end(commits, sightings[-1]),
        *_never_missing(commits, sightings[0]),
    ]


def _late(delays: ChangeDelays) -> Iterator[str]:
    if delays.unseen:
        name, key = delays.unseen[0]
        yield f"{len(delays.unseen)} changes were never seen, for example {key} in {name}"
    every = delays.all_seconds
    p99_s = float(np.quantile(every, 0.99)) if every else 0.0
    if p99_s > MAX_DELAY_S:
        yield f"the p99 delay of changes is {p99_s:.1f} s, above {MAX_DELAY_S:.0f} s"


def _old_at_end(commits: Iterable[Commit], last: Sighting) -> Iterator[str]:
    newest = {
        (commit.change.dimension, key): commit.change.version
        for commit in commits
        for key in commit.change.keys
    }
    shown = {key: sorted(last.versions.get(key, {})) for key in newest}
    old = [key for key, version in newest.items() if shown[key] != [version]]
    if old:
        first = old[0]
        yield (
            f"{len(old)} rows are old at the end, for example {first[1]} in {first[0]}: "
            f"it shows {shown[first]}, but {newest[first]} was committed"
        )


def _never_missing(commits: Iterable[Commit], first: Sighting) -> Iterator[str]:
    for commit in commits:
        if commit.change.dimension == AIRPORTS.name:
            for key in commit.change.keys:
                if ABSENT not in first.versions.get((AIRPORTS.name, key), {}):
                    yield f"{AIRPORTS.name}: {key} was not missing before its insertion"


def live_report(console: Console, delays: ChangeDelays, sightings: Sequence[Sighting]) -> None:
    """Print the delays of each dimension and the flights to airports that were missing."""
    console.print()
    console.print(_delay_table(delays))
    console.print()
    airports: set[str] = set()
    flights: Counter[int] = Counter()  # by version of the airport
    for sighting in sightings:
        for (name, key), versions in sighting.versions.items():
            if name == AIRPORTS.name:
                airports.add(key)
                flights.update(versions)
    console.print(
        f"flights to {', '.join(sorted(airports))}: {flights[ABSENT]:,} without an airport before "
        f"the insertion of its row, {flights[ARRIVED]:,} with it afterwards"
    )


def _delay_table(delays: ChangeDelays) -> Table:
    table = plain_table("Delay from the commit of a change to the first flight with it")
    table.show_footer = True
    table.add_column("dimension", "all", no_wrap=True)
    every = _row(delays.all_seconds, len(delays.unseen))
    for title, value in zip(REPORT_COLUMNS, every, strict=True):
        table.add_column(title, value, justify="right")
    for name, seconds in delays.seconds.items():
        unseen = sum(dimension == name for dimension, _ in delays.unseen)
        table.add_row(name, *_row(seconds, unseen))
    return table


def _row(seconds: Sequence[float], unseen: int) -> list[str]:
    counts = [f"{len(seconds) + unseen:,}", f"{len(seconds):,}"]
    if not seconds:
        return [*counts, "-", "-", "-"]
    quantiles = np.quantile(seconds, [0.5, 0.99, 1.0]) * 1_000
    return [*counts, *(f"{milliseconds:,.0f}" for milliseconds in quantiles)]
