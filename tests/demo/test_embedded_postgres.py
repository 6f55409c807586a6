"""A PostgreSQL out of a wheel."""

from pathlib import Path

import psycopg
import pytest

from demo.postgres import embedded_postgres

pytestmark = pytest.mark.full


def test_server_keeps_what_it_had(tmp_path: Path) -> None:
    """It is stopped at the end; started again in the same folder it has the same tables."""
    with embedded_postgres(tmp_path / "server") as server, psycopg.connect(server.get_uri()) as own:
        own.execute("CREATE TABLE kept AS SELECT 7 AS number")
        dsn = server.get_uri()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)

    with embedded_postgres(tmp_path / "server") as server, psycopg.connect(server.get_uri()) as own:
        found = own.execute("SELECT number FROM kept").fetchone()

    assert found == (7,)
    assert server.log.is_file()
