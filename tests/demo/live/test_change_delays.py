"""How long changes took, and what a live run may have done wrong."""

from demo.live.changes import ARRIVED, Commit, PlannedChange
from demo.live.live_report import ChangeDelays, Sighting, change_delays, live_faults

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


def test_delay_ends_with_the_first_record() -> None:
    """From the commit to the first batch that shows the version, even if not in all records."""
    delays = change_delays(COMMITS, [BEFORE, BETWEEN, AFTER])

    assert delays == ChangeDelays({"planes": [0.25, 0.5], "airports": [1.0]}, [])


def test_newer_version_shows_the_older() -> None:
    """A change that was followed by another one before anybody looked was not lost."""
    delays = change_delays(COMMITS, [BEFORE, AFTER])

    assert delays == ChangeDelays({"planes": [1.5, 0.5], "airports": [1.0]}, [])


def test_older_row_afterwards_takes_nothing_back() -> None:
    """The first record counts; what comes later is judged at the end."""
    delays = change_delays(COMMITS[:1], [BETWEEN, BEFORE, AFTER])

    assert delays == ChangeDelays({"planes": [0.25]}, [])


def test_change_that_never_shows_is_unseen() -> None:
    """Neither an older version nor another row is the change."""
    delays = change_delays(COMMITS, [BEFORE, BETWEEN])

    assert delays == ChangeDelays({"planes": [0.25], "airports": []}, [AIRPORT, PLANE])


def test_right_run_has_no_faults() -> None:
    """Soon seen, right in the end, and missing before it was inserted."""
    assert live_faults(COMMITS, [BEFORE, BETWEEN, AFTER]) == []


def test_slow_changes_are_a_fault() -> None:
    """99 of 100 changes show within 2 s."""
    late = Sighting(13.25, 2, AFTER.versions)

    faults = live_faults(COMMITS, [BEFORE, BETWEEN, late])

    assert faults == ["changes took up to 2.7 s to show (p99), which is above 2 s"]


def test_unseen_change_is_a_fault() -> None:
    """It is named, and so is what stands there instead."""
    without_airport = Sighting(11.5, 2, {PLANE: {SECOND: 1}, AIRPORT: {0: 1}})

    assert live_faults(COMMITS, [BEFORE, BETWEEN, without_airport]) == [
        "1 changes were never seen, such as that of BQN in airports",
        "1 rows are old in the end, such as BQN in airports: it shows [0], but 1 was committed",
    ]


def test_old_row_in_the_end_is_a_fault() -> None:
    """In the end, all records of a row show what was committed last."""
    mixed = Sighting(12.0, 3, {PLANE: {FIRST: 1, SECOND: 1}, AIRPORT: {1: 1}})

    [fault] = live_faults(COMMITS, [BEFORE, BETWEEN, AFTER, mixed])

    shown = "N1 in planes: it shows [101, 102], but 102 was committed"
    assert fault == f"1 rows are old in the end, such as {shown}"


def test_airport_must_have_been_missing() -> None:
    """An airport that was there before shows nothing."""
    assert live_faults(COMMITS, [AFTER]) == ["airports: BQN was not missing before it was inserted"]


def test_silent_stream_is_a_fault() -> None:
    """A stream that gave nothing out has shown nothing."""
    assert live_faults(COMMITS, []) == ["no flight came out"]
    assert live_faults([], [BEFORE]) == []
