"""Live run of the demonstration: delays of changes, and faults."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from demo.live.changes import ARRIVED, Commit, PlannedChange
from demo.live.live_report import (
    ChangeDelays,
    Sighting,
    change_delays,
    live_faults,
    sight,
    watched_keys,
)

PLANE, AIRPORT = ("planes", "N1"), ("airports", "BQN")
FIRST, SECOND = 101, 102  # versions
COMMITS = [
    Commit(PlannedChange("planes", ("N1",), FIRST), 10.0),
    Commit(PlannedChange("airports", ("BQN",), ARRIVED), 10.5),
    Commit(PlannedChange("planes", ("N1",), SECOND), 11.0),
]
BEFORE = Sighting(9.0, 2, {PLANE: {7: 1}, AIRPORT: {0: 1}})
BETWEEN = Sighting(10.25, 3, {PLANE: {7: 1, FIRST: 1}, AIRPORT: {0: 1}})
AFTER = Sighting(11.5, 2, {PLANE: {SECOND: 1}, AIRPORT: {1: 1}})
LATE = Sighting(13.25, 2, AFTER.versions)
WITHOUT_AIRPORT = Sighting(11.5, 2, {PLANE: {SECOND: 1}, AIRPORT: {0: 1}})
MIXED = Sighting(12.0, 3, {PLANE: {FIRST: 1, SECOND: 1}, AIRPORT: {1: 1}})


@pytest.mark.parametrize(
    ("commits", "sightings", "delays"),
    [
        pytest.param(
            COMMITS,
            [BEFORE, BETWEEN, AFTER],
            ChangeDelays({"planes": [0.25, 0.5], "airports": [1.0]}, []),
            id="a delay ends with the first record of the version",
        ),
        pytest.param(
            COMMITS,
            [BEFORE, AFTER],
            ChangeDelays({"planes": [1.5, 0.5], "airports": [1.0]}, []),
            id="a newer version shows the older one",
        ),
        pytest.param(
            COMMITS[:1],
            [BETWEEN, BEFORE, AFTER],
            ChangeDelays({"planes": [0.25]}, []),
            id="an older row afterwards changes no delay",
        ),
        pytest.param(
            COMMITS,
            [BEFORE, BETWEEN],
            ChangeDelays({"planes": [0.25], "airports": []}, [AIRPORT, PLANE]),
            id="a change that never shows is unseen",
        ),
    ],
)
def test_delays_are_measured(
    commits: Sequence[Commit], sightings: Sequence[Sighting], delays: ChangeDelays
) -> None:
    """A delay is the time from a commit to the first batch that shows its version."""
    assert change_delays(commits, sightings) == delays


@pytest.mark.parametrize(
    ("commits", "sightings", "faults"),
    [
        (COMMITS, [BEFORE, BETWEEN, AFTER], []),
        (
            COMMITS,
            [BEFORE, BETWEEN, LATE],
            ["the p99 delay of changes is 2.7 s, above 2 s"],
        ),
        (
            COMMITS,
            [BEFORE, BETWEEN, WITHOUT_AIRPORT],
            [
                "1 changes were never seen, for example BQN in airports",
                (
                    "1 rows are old at the end, for example BQN in airports: it shows [0], but 1 "
                    "was committed"
                ),
            ],
        ),
        (
            COMMITS,
            [BEFORE, BETWEEN, AFTER, MIXED],
            [
                (
                    "1 rows are old at the end, for example N1 in planes: it shows [101, 102], "
                    "but 102 was committed"
                )
            ],
        ),
        (COMMITS, [AFTER], ["airports: BQN was not missing before its insertion"]),
        (COMMITS, [], ["no flight was emitted"]),
        ([], [BEFORE], []),
    ],
)
def test_wrong_runs_have_faults(
    commits: Sequence[Commit], sightings: Sequence[Sighting], faults: list[str]
) -> None:
    """Slow, unseen and old rows are faults, and so is an airport that was never missing."""
    assert live_faults(commits, sightings) == faults


def test_versions_of_watched_rows_are_counted() -> None:
    """A batch shows how many records have each version of a watched row."""
    enriched = pa.table(
        {
            "tailnum": ["N1", "N1", "N2", "N3", None],
            "plane_seats": pa.array([7, 8, None, 9, 10], pa.int32()),
            "dest": ["BQN", "BQN", "SJU", "IAH", "IAH"],
            "dest_name": ["Aguadilla", None, None, "Houston", "Houston"],
        }
    )
    changes = [
        PlannedChange("planes", ("N1", "N2"), 1),
        PlannedChange("airports", ("BQN",), 1),
        PlannedChange("planes", ("N2",), 2),
    ]

    watched = watched_keys(changes)

    assert sight(enriched, watched, emitted_s=3.5) == Sighting(
        3.5,
        5,
        {
            ("planes", "N1"): {7: 1, 8: 1},
            ("planes", "N2"): {0: 1},
            ("airports", "BQN"): {0: 1, 1: 1},
        },
    )
