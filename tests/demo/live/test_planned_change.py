"""What a live run changes, and in which order."""

from demo.dimension import AIRPORTS, PLANES
from demo.live.changes import (
    ARRIVED,
    FIRST_VERSION,
    MISSING_AIRPORTS,
    PLANES_OF_A_CHANGE,
    PlannedChange,
    planned_changes,
)


def test_planes_are_changed_in_turn() -> None:
    """Each change takes the next planes, and the first ones follow the last."""
    changes = planned_changes(["A", "B", "C", "D"], count=2)

    assert [change for change in changes if change.dimension == PLANES.name] == [
        PlannedChange("planes", ("A", "B", "C"), FIRST_VERSION),
        PlannedChange("planes", ("D", "A", "B"), FIRST_VERSION + 1),
    ]


def test_airports_come_evenly_between() -> None:
    """Each missing airport is inserted once, with as many updates before as after each."""
    changes = planned_changes(["A", "B", "C"], count=10)

    inserted = {n: each for n, each in enumerate(changes) if each.dimension == AIRPORTS.name}
    assert list(inserted) == [2, 5, 8, 11]
    assert [each.keys for each in inserted.values()] == [(key,) for key in MISSING_AIRPORTS]
    assert {each.version for each in inserted.values()} == {ARRIVED}
    assert len(changes) == 14


def test_versions_of_a_plane_rise() -> None:
    """A later change of a plane has a greater version, and no real plane has so many seats."""
    planes = [f"N{number}" for number in range(7)]

    changes = [change for change in planned_changes(planes, 100) if change.dimension == PLANES.name]

    versions = [change.version for change in changes]
    assert versions == sorted(set(versions))
    assert min(versions) >= FIRST_VERSION
    assert {len(set(change.keys)) for change in changes} == {PLANES_OF_A_CHANGE}
