"""Server identity: which answers come from another server, and whose ids may be compared."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lookup_core.freshness.server_identity import ServerEpochs, ServerIdentity
from lookup_core.freshness.table_snapshot import IdRelation

PRIMARY = ServerIdentity("7", 5, is_standby=False, timeline=2, started_at=100)
STANDBY = ServerIdentity("7", 5, is_standby=True, timeline=2, started_at=101)
SECOND = replace(STANDBY, timeline=1, started_at=102)  # lags
PROMOTED = replace(STANDBY, is_standby=False, timeline=3)
UNKNOWN = ServerIdentity()
# As Aurora: its functions of the control file and of the log fail.
WRITER = ServerIdentity(database_id=5, is_standby=False, started_at=100)
READER = ServerIdentity(database_id=5, is_standby=True, started_at=101)


def epochs(answers: Sequence[ServerIdentity]) -> list[int]:
    """The epoch of each answer."""
    history = ServerEpochs()
    return [history.note(found).number for found in answers]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([PRIMARY, PROMOTED, PRIMARY, PROMOTED], [0, 1, 2, 3]),
        ([PRIMARY, replace(PRIMARY, started_at=103)], [0, 1]),
        ([PRIMARY, replace(PRIMARY, timeline=3)], [0, 1]),
        ([PRIMARY, replace(PRIMARY, system="8"), PRIMARY], [0, 1, 2]),
        ([PRIMARY, replace(PRIMARY, database_id=6)], [0, 1]),
        ([STANDBY, SECOND, PROMOTED, PROMOTED, SECOND], [0, 0, 1, 1, 1]),
        ([PRIMARY, STANDBY, PROMOTED], [0, 0, 1]),
        ([SECOND, replace(SECOND, timeline=3), SECOND], [0, 1, 1]),
        ([WRITER, READER, replace(READER, is_standby=False)], [0, 0, 1]),
        ([WRITER, UNKNOWN, replace(WRITER, started_at=103)], [0, 0, 1]),
        ([WRITER, PRIMARY, replace(PRIMARY, system="8")], [0, 0, 1]),
    ],
    ids=[
        *("switch back", "restart or copy", "promoted copy", "other cluster", "other database"),
        *("promoted standby", "promotion next to a primary", "later timeline of a standby"),
        *("promoted reader", "unknown between", "parts that come later"),
    ],
)
def test_other_server_begins_an_epoch(
    answers: Sequence[ServerIdentity], expected: Sequence[int]
) -> None:
    """Each known part that differs begins the next epoch, also if a former server is back."""
    assert epochs(answers) == expected


@pytest.mark.parametrize(
    ("loaded", "reads", "expected"),
    [
        (PRIMARY, PRIMARY, False),
        (replace(PRIMARY, system="8"), PRIMARY, True),
        (replace(PRIMARY, database_id=6), PRIMARY, True),
        (replace(PRIMARY, started_at=103), PRIMARY, True),
        (PRIMARY, PROMOTED, True),
        (PRIMARY, replace(STANDBY, timeline=3), True),
        (PROMOTED, SECOND, False),
        (SECOND, PRIMARY, False),
        (SECOND, STANDBY, False),
        (READER, WRITER, False),
        (UNKNOWN, PRIMARY, False),
    ],
)
def test_load_may_be_of_another_history(
    loaded: ServerIdentity, reads: ServerIdentity, *, expected: bool
) -> None:
    """A load belongs to the reads' history, unless a known and exact part differs."""
    assert loaded.is_other_than(reads) is expected


@pytest.mark.parametrize(
    "servers",
    [
        [STANDBY, SECOND, replace(SECOND, started_at=103)],
        [PRIMARY, STANDBY, SECOND],
        [WRITER, READER, replace(READER, started_at=103)],
        [UNKNOWN, PRIMARY, UNKNOWN],
        [PRIMARY, replace(PRIMARY, system=None), replace(PRIMARY, timeline=None)],
        [ServerIdentity(started_at=1), ServerIdentity(started_at=2)],
    ],
    ids=["standbys", "primary and standbys", "readers", "unknown", "partly known", "no role"],
)
def test_balanced_reads_stay_in_an_epoch(servers: list[ServerIdentity]) -> None:
    """A primary and its standbys, in any turn, and unknown parts are one epoch."""
    assert set(epochs(servers * 3)) == {0}


@pytest.mark.parametrize("start", [STANDBY, replace(STANDBY, timeline=None, started_at=None)])
def test_promotion_within_a_session_is_a_switch(start: ServerIdentity) -> None:
    """A session whose server ends its recovery begins an epoch, whatever else is known."""
    history = ServerEpochs()
    history.note(PRIMARY)
    before = history.note(start).identity

    assert history.note(replace(before, is_standby=False), before).number == 1


@pytest.mark.parametrize(
    ("feed", "reads", "relation"),
    [
        (PRIMARY, PRIMARY, IdRelation.COMPARABLE),
        (PRIMARY, STANDBY, IdRelation.COMPARABLE),
        (PRIMARY, SECOND, IdRelation.COMPARABLE),  # its timeline lags
        (PRIMARY, replace(STANDBY, timeline=3), IdRelation.FOREIGN),
        (PRIMARY, replace(STANDBY, system="8"), IdRelation.FOREIGN),
        (PRIMARY, replace(PRIMARY, system="8", started_at=100), IdRelation.FOREIGN),
        (PRIMARY, replace(PRIMARY, started_at=103), IdRelation.FOREIGN),
        (WRITER, WRITER, IdRelation.COMPARABLE),
        (WRITER, READER, IdRelation.UNKNOWN),
        (WRITER, replace(WRITER, started_at=103), IdRelation.FOREIGN),
        (PRIMARY, UNKNOWN, IdRelation.UNKNOWN),
        (UNKNOWN, UNKNOWN, IdRelation.UNKNOWN),
    ],
)
def test_ids_of_one_system_are_comparable(
    feed: ServerIdentity, reads: ServerIdentity, relation: IdRelation
) -> None:
    """The same system, or the same start, makes ids comparable; known others are foreign."""
    assert feed.ids_in(reads) is relation
