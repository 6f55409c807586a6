"""The program that changes the tables."""

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from demo.live.changes import MISSING_AIRPORTS, ChangeWriter, PlannedChange
from demo.postgres import Postgres, running_postgres

pytestmark = pytest.mark.full
UPDATE = PlannedChange("planes", ("N10156", "N102UW"), 1_000_000)
INSERT = PlannedChange("airports", ("BQN",), 1)
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """The tables of the demonstration."""
    with running_postgres(tmp_path_factory.mktemp("demo") / "postgres") as running:
        yield running


def test_changes_are_committed_as_planned(postgres: Postgres) -> None:
    """All of them, in their order, each with the time of its commit."""
    started_s = time.time()

    with ChangeWriter(postgres.admin_dsn, [UPDATE, INSERT], interval_s=0.0) as writer:
        _wait_for_the_end(writer)

    assert [commit.change for commit in writer.commits] == [UPDATE, INSERT]
    times = [started_s, *(commit.committed_s for commit in writer.commits), time.time()]
    assert times == sorted(times)
    with psycopg.connect(postgres.reader_dsn) as connection:
        changed = connection.execute("SELECT tailnum FROM planes WHERE seats = 1000000 ORDER BY 1")
        assert changed.fetchall() == [("N10156",), ("N102UW",)]
        airport = connection.execute("SELECT * FROM airports WHERE faa = 'BQN'")
        assert airport.fetchall() == [("BQN", *MISSING_AIRPORTS["BQN"])]


def test_leaving_stops_the_writer(postgres: Postgres) -> None:
    """What is left of the plan is not carried out."""
    with ChangeWriter(postgres.admin_dsn, [UPDATE], interval_s=3_600.0) as writer:
        assert not writer.has_ended

    assert (writer.has_ended, writer.commits) == (True, [])


def test_failure_is_raised_when_leaving(postgres: Postgres) -> None:
    """A change that the database refuses ends the writing, and is not forgotten."""
    twice = [PlannedChange("airports", ("SJU",), 1)] * 2
    writer = ChangeWriter(postgres.admin_dsn, twice, interval_s=0.0)

    with pytest.raises(psycopg.errors.UniqueViolation), writer:
        _wait_for_the_end(writer)

    assert len(writer.commits) == 1


def test_failure_of_the_user_comes_first(postgres: Postgres) -> None:
    """What goes wrong in the block is raised, and no thread is left."""
    with pytest.raises(KeyError), ChangeWriter(postgres.admin_dsn, [UPDATE], interval_s=3_600.0):
        raise KeyError

    assert not [each for each in threading.enumerate() if "change-writer" in each.name]


def _wait_for_the_end(writer: ChangeWriter) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not writer.has_ended:
        assert time.monotonic() < deadline
        time.sleep(0.01)
