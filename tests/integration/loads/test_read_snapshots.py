"""Snapshots of lookups: which transactions a fetch has seen, on a real server (H1)."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension.dimension_events import FetchedRows
from service.connectors.postgres.queries import (
    blocks_query,
    lookup_query,
    scanning_query,
    with_snapshot,
)
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.table import PostgresTable
from tests.integration.lookups.tables import PATIENCE_S, changing, described
from tests.integration.lookups.test_plans import plans_of
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


@pytest.mark.parametrize("key_count", SIZES)
async def test_transaction_in_progress_is_not_seen(table: Database, key_count: int) -> None:
    """A snapshot excludes a transaction until it commits, for found and missing keys."""
    with changing(table, "UPDATE small SET name = 'new' WHERE id = 1") as transaction_id:
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

    def queries_of(found: PostgresTable) -> list[str]:
        query = (lookup_query if has_index else scanning_query)(found)
        blocks = blocks_query(found, query)
        of_blocks = with_snapshot(found, blocks, is_block=True)
        return [query, with_snapshot(found, query), blocks, of_blocks]

    settings = PostgresSettings(table.dsn(), "small", ("id",))
    plans = await plans_of(settings, queries_of, mode=mode, keys=[tuple(range(500))])

    added = {"Append", "Result", "Subquery Scan"}
    plain, marked, blocks, marked_blocks = (
        [node for node in plan if node not in added] for plan in plans
    )
    assert (marked, marked_blocks) == (plain, blocks)
