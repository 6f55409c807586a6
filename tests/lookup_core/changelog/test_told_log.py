"""How far a log was told, and what is told once more."""

import pytest

from lookup_core.changelog.change_decoder import (
    LogPosition,
    ReplayFilter,
    level,
    log_position,
    snapshot_position,
)

TOLD_MS = 100_000
LATER_MS = TOLD_MS + 60_001


def told(*positions: LogPosition | None) -> ReplayFilter:
    """A log of which these were told, at one moment."""
    log = ReplayFilter()
    for position in positions:
        log.note(position, TOLD_MS)
    return log


@pytest.mark.parametrize("position", [None, (0, 1), (9, 9)])
def test_first_change_is_news(position: LogPosition | None) -> None:
    """As long as nothing was told with a position, all is news."""
    assert told().is_news(position)
    assert told(None).is_news(position)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ((20, 25), True),  # of the same record
        ((20, 26), True),  # of the same transaction
        ((30, 5), True),  # of a later one that wrote it earlier
        ((20, 24), False),
        ((19, 99), False),
        (None, False),
    ],
)
def test_former_places_are_no_news(position: LogPosition | None, *, expected: bool) -> None:
    """What stands before the newest was told already; so may have been what stands nowhere."""
    log = told((10, 15), (20, 25))

    assert log.is_news(position) is expected


def test_replay_leaves_the_log_where_it_is() -> None:
    """What is told once more is no news, up to the newest of all."""
    log = told((10, 15), (20, 25), (10, 15), (15, 18))

    assert not log.is_news((15, 30))
    assert log.is_news((20, 25))


@pytest.mark.parametrize("position", [(5, 5), None])
def test_restored_database_begins_a_new_log(position: LogPosition | None) -> None:
    """A former place at a time that was not told yet: from there on, later places are news."""
    log = told((10, 15))
    assert log.begins_anew(position, LATER_MS)

    log.note(position, LATER_MS)

    assert log.is_news(position)
    assert log.is_news((6, 6))
    assert not log.begins_anew(position, LATER_MS + 60_001)


@pytest.mark.parametrize(
    ("position", "time_ms"), [((5, 5), LATER_MS - 1), ((5, 5), 0), ((10, 15), LATER_MS)]
)
def test_replays_and_news_begin_no_log(position: LogPosition, time_ms: int) -> None:
    """A replay tells of former times, give or take a minute; and time goes on with the log."""
    assert not told((10, 15)).begins_anew(position, time_ms)


def test_replay_of_another_log_is_no_news_for_long() -> None:
    """On a busy table, too: what is no news does not put the time forward."""
    log = told((10, 15))

    flushes = [log.begins_anew((5, 5), TOLD_MS + 15_000 * step) for step in range(6)]
    for step in range(4):
        log.note((5, 5), TOLD_MS + 15_000 * step)

    assert flushes == [False] * 5 + [True]
    assert log.begins_anew((5, 5), LATER_MS)


@pytest.mark.parametrize("order", [1, -1])
def test_later_log_takes_the_place_of_others(order: int) -> None:
    """Where one partition is told of another log already, that one goes on in all."""
    restored = told((100, 101))
    restored.note((50, 51), LATER_MS)
    logs = [told((100, 101)), restored][::order]

    level(logs)

    assert [log.is_news((50, 51)) for log in logs] == [True] * 2
    assert [log.is_news((50, 50)) for log in logs] == [False] * 2


@pytest.mark.parametrize(
    ("before", "is_first", "expected"),
    [
        ("nothing", False, True),
        ("change", False, True),
        ("row", False, False),
        ("row", True, True),
    ],
)
def test_rows_after_changes_begin_a_snapshot(
    before: str, *, is_first: bool, expected: bool
) -> None:
    """Rows that follow rows are of one snapshot, but for the first of another."""
    log = ReplayFilter()
    if before == "row":
        log.note_snapshot(is_first=True)
    if before == "change":
        log.note((1, 1), TOLD_MS)

    assert log.note_snapshot(is_first=is_first) is expected


def test_all_partitions_are_as_far_as_one() -> None:
    """Keys that are told elsewhere from now on are not taken back by a replay there."""
    logs = [told(), told((10, 15)), told((5, 5))]

    level(logs)

    assert [log.is_news((10, 14)) for log in logs] == [False] * 3
    assert [log.is_news((10, 15)) for log in logs] == [True] * 3
    assert [log.begins_anew((1, 1), LATER_MS) for log in logs] == [True] * 3


def test_partitions_without_positions_stay_so() -> None:
    """Where no database tells a position, nothing is noted."""
    logs = [told(), told(None)]

    level(logs)

    assert [log.is_news(None) for log in logs] == [True] * 2


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ('["24381176","24381232"]', (24381176, 24381232)),
        ('[ "1", "2" ]', (1, 2)),
        ('[null,"24380632"]', (0, 24380632)),
        ('["1",null]', None),
        ('["1"]', None),
        ('["1","-2"]', None),
        (None, None),
        (7, None),
    ],
)
def test_positions_are_those_of_debezium(sequence: object, expected: LogPosition | None) -> None:
    """Both numbers, the first of which may not be known yet; anything else is none."""
    assert log_position(sequence) == expected


@pytest.mark.parametrize(
    ("sequence", "expected"), [('[null,"30"]', (30, 30)), ('["20","30"]', (30, 30)), ("", None)]
)
def test_rows_read_stand_behind_all_before(sequence: object, expected: LogPosition | None) -> None:
    """What was read there shows all transactions that had ended by then."""
    assert snapshot_position(sequence) == expected
