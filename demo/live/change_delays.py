"""How long each change took from its commit to the first record that shows it, and what is wrong.

Compares notes that others took; both stand on the clock of one machine.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from demo.dimension import AIRPORTS
from demo.live.change_writer import Commit
from demo.live.planned_change import ABSENT
from demo.live.sighting import Key, Sighting

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
