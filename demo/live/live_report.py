"""Report of the live run: delay from commit to the first record that shows it."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from demo.dimension import AIRPORTS, PLANES
from demo.live.changes import ABSENT, ARRIVED, Commit, PlannedChange

Key = tuple[str, str]  # a dimension and one of its keys
COLUMNS = ("tailnum", "plane_seats", "dest", "dest_name")


@dataclass(frozen=True, slots=True)
class Sighting:
    """The versions of the rows that are watched, in the records of one micro-batch."""

    emitted_s: float  # since the epoch; when all records had come out
    records: int
    versions: Mapping[Key, Mapping[int, int]]  # {which row: {version: records that show it}}


def watched_keys(changes: Iterable[PlannedChange]) -> frozenset[Key]:
    """The rows that are changed."""
    return frozenset((change.dimension, key) for change in changes for key in change.keys)


def sight(enriched: pa.Table, watched: frozenset[Key], *, emitted_s: float) -> Sighting:
    """What the records show of the rows."""
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


MAX_DELAY_S = 2.0  # of 99 of 100 changes


@dataclass(frozen=True, slots=True)
class ChangeDelays:
    """What became of the changes, row by row."""

    seconds: Mapping[str, Sequence[float]]  # {dimension: from each row's commit until it showed}
    unseen: Sequence[Key]  # what never showed


def change_delays(commits: Iterable[Commit], sightings: Iterable[Sighting]) -> ChangeDelays:
    """Each row's delay until the first micro-batch with a record of its version or a newer one."""
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


def live_faults(commits: Sequence[Commit], sightings: Sequence[Sighting]) -> list[str]:
    """All that a live run did not do as it should, in words."""
    if not sightings:
        return ["no flight came out"]
    delays = change_delays(commits, sightings)
    return [
        *_never_seen(delays),
        *_too_slow(delays),
        *_old_at_rest(commits, sightings[-1]),
        *_never_missing(commits, sightings[0]),
    ]


def _rises(sightings: Iterable[Sighting]) -> dict[Key, list[tuple[int, float]]]:
    """When each row showed a version that was greater than all before it; ascending."""
    rises: dict[Key, list[tuple[int, float]]] = {}
    for sighting in sightings:
        for key, versions in sighting.versions.items():
            risen = rises.setdefault(key, [])
            newest = max(versions)
            if not risen or newest > risen[-1][0]:
                risen.append((newest, sighting.emitted_s))
    return rises


def _never_seen(delays: ChangeDelays) -> Iterator[str]:
    if delays.unseen:
        name, key = delays.unseen[0]
        yield f"{len(delays.unseen)} changes were never seen, such as that of {key} in {name}"


def _too_slow(delays: ChangeDelays) -> Iterator[str]:
    every = [delay for each in delays.seconds.values() for delay in each]
    slow_s = float(np.quantile(every, 0.99)) if every else 0.0
    if slow_s > MAX_DELAY_S:
        yield f"changes took up to {slow_s:.1f} s to show (p99), which is above {MAX_DELAY_S:.0f} s"


def _old_at_rest(commits: Iterable[Commit], last: Sighting) -> Iterator[str]:
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
            f"{len(old)} rows are old in the end, such as {first[1]} in {first[0]}: "
            f"it shows {shown[first]}, but {newest[first]} was committed"
        )


def _never_missing(commits: Iterable[Commit], first: Sighting) -> Iterator[str]:
    for commit in commits:
        if commit.change.dimension == AIRPORTS.name:
            for key in commit.change.keys:
                if ABSENT not in first.versions.get((AIRPORTS.name, key), {}):
                    yield f"{AIRPORTS.name}: {key} was not missing before it was inserted"


REPORT_COLUMNS = ("rows changed", "seen", "median ms", "p99 ms", "max ms")


def live_report(console: Console, delays: ChangeDelays, sightings: Sequence[Sighting]) -> None:
    """Print the delays of each dimension, and the flights to airports that were missing."""
    console.print()
    console.print(_delays(delays))
    console.print()
    missing, found = (_flights_to_airports(sightings, version) for version in (ABSENT, ARRIVED))
    names = ", ".join(sorted({key for name, key in _keys(sightings) if name == AIRPORTS.name}))
    console.print(
        f"flights to {names}: {missing:,} without an airport before its row came, "
        f"{found:,} with it afterwards"
    )


def _delays(delays: ChangeDelays) -> Table:
    table = Table(
        title="From the commit of a change to the first flight with it",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        show_footer=True,
        padding=(0, 1, 0, 0),
    )
    every = [delay for each in delays.seconds.values() for delay in each]
    table.add_column("dimension", "all", no_wrap=True)
    for title, value in zip(REPORT_COLUMNS, _row(every, len(delays.unseen)), strict=True):
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


def _flights_to_airports(sightings: Sequence[Sighting], version: int) -> int:
    return sum(
        versions.get(version, 0)
        for sighting in sightings
        for (name, _), versions in sighting.versions.items()
        if name == AIRPORTS.name
    )


def _keys(sightings: Sequence[Sighting]) -> set[tuple[str, str]]:
    return {key for sighting in sightings for key in sighting.versions}
