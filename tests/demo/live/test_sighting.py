"""What a micro-batch shows of the rows that change."""

import pyarrow as pa

from demo.live.changes import PlannedChange
from demo.live.live_report import Sighting, sight, watched_keys

ENRICHED = pa.table(
    {
        "tailnum": ["N1", "N1", "N2", "N3", None],
        "plane_seats": pa.array([7, 8, None, 9, 10], pa.int32()),
        "dest": ["BQN", "BQN", "SJU", "IAH", "IAH"],
        "dest_name": ["Aguadilla", None, None, "Houston", "Houston"],
    }
)


def test_versions_of_watched_rows_count() -> None:
    """The records of each version of each row that is watched; of the others nothing."""
    watched = frozenset({("planes", "N1"), ("airports", "BQN"), ("airports", "SJU")})

    sighting = sight(ENRICHED, watched, emitted_s=3.5)

    versions = {
        ("planes", "N1"): {7: 1, 8: 1},
        ("airports", "BQN"): {0: 1, 1: 1},
        ("airports", "SJU"): {0: 1},
    }
    assert sighting == Sighting(3.5, 5, versions)


def test_unknown_seats_are_older_than_all() -> None:
    """A plane without seats shows version 0."""
    sighting = sight(ENRICHED, frozenset({("planes", "N2")}), emitted_s=0.0)

    assert sighting.versions == {("planes", "N2"): {0: 1}}


def test_rows_of_changes_are_watched() -> None:
    """Each row once, however often it is changed."""
    changes = [
        PlannedChange("planes", ("N1", "N2"), 1),
        PlannedChange("airports", ("BQN",), 1),
        PlannedChange("planes", ("N2",), 2),
    ]

    watched = watched_keys(changes)

    assert watched == {("planes", "N1"), ("planes", "N2"), ("airports", "BQN")}
