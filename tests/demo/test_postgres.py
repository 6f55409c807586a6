"""The database of the demonstration, as the sidecar finds it."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from demo.dimension import DIMENSIONS
from demo.postgres import READER, Postgres, query_log, running_postgres

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server of its own, started twice: the second time finds the first one's folder."""
    folder = tmp_path_factory.mktemp("demo") / "postgres"
    with running_postgres(folder):
        pass
    with running_postgres(folder) as running:
        yield running


def test_tables_hold_all_rows(postgres: Postgres) -> None:
    """The four tables hold what their files hold."""
    with psycopg.connect(postgres.reader_dsn) as connection:
        rows = [
            connection.execute(f"SELECT count(*) FROM {dimension.name}").fetchone()
            for dimension in DIMENSIONS
        ]

    assert rows == [(3_322,), (1_458,), (16,), (26_115,)]


def test_missing_values_are_null(postgres: Postgres) -> None:
    """What the files spell NA is NULL, and numbers are numbers."""
    question = "SELECT year, speed, engine FROM planes WHERE tailnum = 'N10156'"
    with psycopg.connect(postgres.reader_dsn) as connection:
        assert connection.execute(question).fetchall() == [(2004, None, "Turbo-fan")]


def test_reader_may_only_read(postgres: Postgres) -> None:
    """The sidecar's role can change nothing."""
    with (
        psycopg.connect(postgres.reader_dsn) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("DELETE FROM planes")


def test_each_lookup_is_in_the_log(postgres: Postgres) -> None:
    """PostgreSQL itself counts the lookups, prepared or not."""
    log = query_log(postgres.log)
    lookup = """SELECT t.* FROM unnest(%s::text[]) WITH ORDINALITY AS k(k1, ordinal)
        JOIN public.airlines AS t ON t.carrier = k.k1"""

    with psycopg.connect(postgres.reader_dsn) as connection:
        for _ in range(3):
            connection.execute(lookup, [["UA"]], prepare=True)
        connection.execute(lookup, [["UA"]], prepare=False)

    counts = {"planes": 0, "airports": 0, "airlines": 4, "weather": 0}
    assert log.count(READER, list(counts)) == counts


def test_changes_can_be_followed(tmp_path: Path) -> None:
    """Where it is asked for, the server writes down what logical decoding needs."""
    with (
        running_postgres(tmp_path / "postgres", tells_changes=True) as running,
        psycopg.connect(running.admin_dsn) as connection,
    ):
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
        assert Path(running.socket).is_socket()
