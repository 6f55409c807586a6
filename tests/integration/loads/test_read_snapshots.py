"""Snapshots of lookups: which transactions a fetch has seen, on a real server (H1)."""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import numpy as np
import psycopg
import pyarrow as pa
import pytest

from lookup_core.dimension.dimension_events import FetchedRows
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.queries import (
    blocks_query,
    blocks_query_with_snapshot,
    lookup_query,
    query_with_snapshot,
    scanning_query,
)
from service.connectors.postgres.settings import PostgresSettings
from tests.integration.lookups.tables import PATIENCE_S, described
from tests.integration.lookups.test_plans import as_sent, nodes_of
from tools.processes.postgres_server import Database

ROWS = 3000
SIZES = [1, 2000]  # keys: rows as records, and in blocks


@pytest.fixture
def table(database: Database) -> Database:
    """A database with a table `small` of 3000 rows."""
    database.execute(
        "CREATE TABLE small (id int8 PRIMARY KEY, name text)",
        f"INSERT INTO small SELECT g, 'old' FROM generate_series(1, {ROWS}) AS g",
        "ANALYZE small",
    )
    return database


async def fetched_of(database: Database, key_count: int, *, first: int = 1) -> FetchedRows:
    """The rows of keys from `first`, with the snapshot of their query."""
    settings = PostgresSettings(database.dsn(), "small", ("id",), is_followed=True)
    async with described(settings) as backend:
        # Only later fetches may arrive in blocks.
        await backend.fetch(pa.record_batch({"id": [1]}), timeout_s=PATIENCE_S)
        keys = pa.record_batch({"id": pa.array(range(first, first + key_count))})
        return await backend.fetch(keys, timeout_s=PATIENCE_S)


def sees(fetched: FetchedRows, transaction_id: int) -> bool:
    """Whether the query saw this transaction, by the low 32 bits of its id."""
    assert fetched.snapshot is not None
    ids = np.array([transaction_id % 2**32], np.uint32)
    return bool(fetched.snapshot.sees(ids)[0])


@contextmanager
def update_in_progress(database: Database) -> Iterator[int]:
    """An update of row 1 that commits at the end of the block; yields its transaction id."""
    with psycopg.connect(database.dsn()) as connection:
        connection.execute("UPDATE small SET name = 'new' WHERE id = 1")
        found = connection.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
        assert found is not None
        yield int(found[0])


@pytest.mark.parametrize("key_count", SIZES)
async def test_transaction_in_progress_is_not_seen(table: Database, key_count: int) -> None:
    """A snapshot excludes a transaction until it commits, for found and missing keys."""
    with update_in_progress(table) as transaction_id:
        before = await fetched_of(table, key_count)
        missing = await fetched_of(table, key_count, first=2 * ROWS)
    after = await fetched_of(table, key_count)

    names = [each.rows["name"][0].as_py() for each in (before, after)]
    assert (names, missing.ordinals.tolist()) == (["old", "new"], [])
    assert [sees(each, transaction_id) for each in (before, missing, after)] == [False, False, True]


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_snapshot_keeps_the_plan(table: Database, mode: str, *, has_index: bool) -> None:
    """Returning the snapshot adds one row and leaves the plan of the lookup unchanged."""
    if not has_index:
        table.execute("ALTER TABLE small DROP CONSTRAINT small_pkey")
    connection = await asyncpg.connect(table.dsn())
    plans = []
    try:
        settings = PostgresSettings(table.dsn(), "small", ("id",))
        found = await read_table(lambda query, values: connection.fetch(query, *values), settings)
        await connection.execute(f"SET plan_cache_mode = {mode}")
        query = (lookup_query if has_index else scanning_query)(found, is_ordered=False)
        for text in (
            *(query, query_with_snapshot(found, query)),
            *(blocks_query(found, query), blocks_query_with_snapshot(found, query)),
        ):
            statement = await connection.prepare(text)
            plan = await statement.explain(as_sent(tuple(range(500))))
            plans.append(nodes_of(plan[0]["Plan"]))
    finally:
        await connection.close()

    added = {"Append", "Result", "Subquery Scan"}
    plain, with_snapshot, blocks, blocks_with_snapshot = plans
    assert [node for node in with_snapshot if node not in added] == plain
    assert [node for node in blocks_with_snapshot if node not in added] == blocks
