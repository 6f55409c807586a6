"""The index on the key is used, whatever the planner believes about keys and table."""

from typing import Any

import asyncpg
import pytest

from service.backends.postgres_catalog import PostgresCatalog
from service.backends.postgres_settings import PostgresSettings
from tests.integration.postgres_server import Database, PostgresServer

ROWS = 100_000
TABLES = {
    "by_number": ("id", "g::int8 AS id"),
    "by_text": ("id", "'key' || g AS id"),
    "by_pair": (
        "origin,hour",
        "'k' || g % 3 AS origin, timestamptz '2013-01-01' + g * interval '1 minute' AS hour",
    ),
}


@pytest.fixture(scope="module")
def big_tables(postgres_server: PostgresServer) -> Database:
    """A database with a table of 100,000 rows for each kind of key, analyzed."""
    database = postgres_server.new_database()
    put_tables(database)
    database.execute("VACUUM ANALYZE")
    return database


@pytest.fixture(scope="module")
def fresh_tables(postgres_server: PostgresServer) -> Database:
    """The same tables without statistics."""
    database = postgres_server.new_database()
    put_tables(database)
    return database


def put_tables(database: Database) -> None:
    """Make the tables; the server is not to analyze them by itself."""
    for name, (key, columns) in TABLES.items():
        rows = f"SELECT {columns}, 'row ' || g AS name FROM generate_series(1, {ROWS}) AS g"
        database.execute(
            f"CREATE TABLE {name} WITH (autovacuum_enabled = off) AS {rows}",
            f"ALTER TABLE {name} ADD PRIMARY KEY ({key})",
        )


def nodes_of(plan: dict[str, Any]) -> list[str]:
    """The kinds of all nodes of a plan, with their relations."""
    kind = " ".join(filter(None, [plan["Node Type"], plan.get("Relation Name")]))
    return [kind, *(node for child in plan.get("Plans", ()) for node in nodes_of(child))]


async def plan_of(database: Database, table: str, *, mode: str, key_count: int) -> list[str]:
    """The plan of the lookup query for so many keys of the table, as the server would run it."""
    key = tuple(TABLES[table][0].split(","))
    connection = await asyncpg.connect(database.dsn())
    try:
        catalog = PostgresCatalog(lambda query, values: connection.fetch(query, *values))
        found = await catalog.read_table(PostgresSettings(database.dsn(), table, key))
        texts = ", ".join(f"{part}::text" for part in key) if len(key) > 1 else key[0]
        rows = await connection.fetch(f"SELECT {texts} FROM {table} LIMIT {key_count}")
        await connection.execute(f"SET plan_cache_mode = {mode}")
        statement = await connection.prepare(found.lookup_query)
        plan = await statement.explain(*map(list, zip(*rows, strict=True)))
    finally:
        await connection.close()
    return nodes_of(plan[0]["Plan"])


@pytest.mark.parametrize("key_count", [500, 20_000])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("table", TABLES)
async def test_index_is_asked_per_key(
    big_tables: Database, table: str, mode: str, key_count: int
) -> None:
    """Any number of keys of 100,000 rows: one index scan per key; a join would read them all."""
    nodes = await plan_of(big_tables, table, mode=mode, key_count=key_count)

    assert nodes == ["Nested Loop", "Function Scan", f"Index Scan {table}"]


@pytest.mark.parametrize("table", TABLES)
async def test_index_needs_no_statistics(fresh_tables: Database, table: str) -> None:
    """A table that was never analyzed, of which the planner knows nothing, is not read whole."""
    nodes = await plan_of(fresh_tables, table, mode="force_custom_plan", key_count=500)

    scans = {node for node in nodes if node.endswith(table)}
    assert scans <= {f"Index Scan {table}", f"Bitmap Heap Scan {table}"}
