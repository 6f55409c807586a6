"""The workload's dimension in PostgreSQL."""

from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from bench.workload import Workload, load_customers, workload_postgres

pytestmark = pytest.mark.full


def test_table_holds_the_file_s_rows(tmp_path: Path) -> None:
    """The table has the rows of the Parquet file; it is loaded anew for another file only."""
    workload = Workload(tmp_path, 100, 5_000)
    workload.write()

    with workload_postgres(tmp_path / "postgres", workload) as dsn:
        assert not load_customers(dsn, workload.dimension)
        with psycopg.connect(dsn) as connection:
            rows = connection.execute("SELECT * FROM customers ORDER BY id").fetchall()
        other = Workload(tmp_path, 100, 10)
        other.write()
        assert load_customers(dsn, other.dimension)

    table = pq.read_table(workload.dimension)
    assert rows == list(zip(*(column.to_pylist() for column in table.columns), strict=True))
