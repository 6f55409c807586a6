"""Query plans of lookups: the index on the key is used (D22)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.queries import blocks_query, lookup_query, scanning_query
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.table import PostgresTable
from tests.integration.lookups.tables import PATIENCE_S, described
from tools.processes.postgres_server import Database, PostgresServer

ROWS = 100_000
INHERITED = "(id int8 PRIMARY KEY, name text); CREATE TABLE part () INHERITS (small)"
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
    """The same tables without planner statistics."""
    database = postgres_server.new_database()
    put_tables(database)
    return database


def put_tables(database: Database) -> None:
    """Create the tables; autovacuum does not analyze them."""
    for name, (key, columns) in TABLES.items():
        rows = f"SELECT {columns}, 'row ' || g AS name FROM generate_series(1, {ROWS}) AS g"
        database.execute(
            f"CREATE TABLE {name} WITH (autovacuum_enabled = off) AS {rows}",
            f"ALTER TABLE {name} ADD PRIMARY KEY ({key})",
        )


def nodes_of(plan: dict[str, Any]) -> list[str]:
    """The node types of a plan, with their relations."""
    kind = " ".join(filter(None, [plan["Node Type"], plan.get("Relation Name")]))
    return [kind, *(node for child in plan.get("Plans", ()) for node in nodes_of(child))]


def as_sent(keys: tuple[Any, ...]) -> list[Any] | str:
    """The values of one key column in the form that the backend sends."""
    return f"{{{str([*keys])[1:-1]}}}" if type(keys[0]) is int else [*keys]


async def plans_of(
    settings: PostgresSettings,
    queries_of: Callable[[PostgresTable], list[str]],
    *,
    mode: str,
    keys: Sequence[tuple[Any, ...]],
) -> list[list[str]]:
    """The plans of queries with these columns of keys."""
    connection = await asyncpg.connect(settings.dsn)
    try:
        found = await read_table(lambda query, values: connection.fetch(query, *values), settings)
        await connection.execute(f"SET plan_cache_mode = {mode}")
        statements = [await connection.prepare(query) for query in queries_of(found)]
        plans = [await statement.explain(*map(as_sent, keys)) for statement in statements]
    finally:
        await connection.close()
    return [nodes_of(plan[0]["Plan"]) for plan in plans]


async def plan_of(
    database: Database, table: str, *, mode: str, key_count: int, has_index: bool = True
) -> list[str]:
    """The plan of a lookup of `key_count` keys; from 1,000 keys on, rows arrive in blocks."""
    key = tuple(TABLES.get(table, ("id",))[0].split(","))
    texts = ", ".join(f"{part}::text" for part in key) if len(key) > 1 else key[0]
    rows = database.query(f"SELECT {texts} FROM {table} LIMIT {key_count}")
    settings = PostgresSettings(database.dsn(), table, key)

    def query_of(found: PostgresTable) -> list[str]:
        query = (lookup_query if has_index else scanning_query)(found)
        return [query if key_count < 1000 else blocks_query(found, query)]

    (plan,) = await plans_of(settings, query_of, mode=mode, keys=list(zip(*rows, strict=True)))
    return plan


@pytest.mark.parametrize("key_count", [500, 20_000])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("table", TABLES)
async def test_each_key_is_an_index_scan(
    big_tables: Database, table: str, mode: str, key_count: int
) -> None:
    """Each key costs one index scan, for any number of keys and any plan mode."""
    nodes = await plan_of(big_tables, table, mode=mode, key_count=key_count)

    lookup = ["Nested Loop", "Function Scan", f"Index Scan {table}"]
    assert nodes == (lookup if key_count < 1000 else ["Aggregate", *lookup])


@pytest.mark.parametrize("table", TABLES)
async def test_index_needs_no_statistics(fresh_tables: Database, table: str) -> None:
    """A table that was never analyzed is read by its index."""
    nodes = await plan_of(fresh_tables, table, mode="force_custom_plan", key_count=500)

    scans = {node for node in nodes if node.endswith(table)}
    assert scans <= {f"Index Scan {table}", f"Bitmap Heap Scan {table}"}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_table_without_index_is_read_once(big_tables: Database, mode: str) -> None:
    """Without an index, a batch costs one sequential scan, for any number of keys."""
    big_tables.execute("DROP TABLE IF EXISTS bare", "CREATE TABLE bare AS TABLE by_number")

    for key_count in (500, 20_000):
        nodes = await plan_of(big_tables, "bare", mode=mode, key_count=key_count, has_index=False)

        assert nodes.count("Seq Scan bare") == 1
        assert "Nested Loop" not in nodes


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("(id int8 PRIMARY KEY, name text)", True),
        ("(id int8 UNIQUE, name text)", True),
        ("(id varchar(9), name text); CREATE INDEX ON small (id)", True),
        ("(id numeric(9, 2), name text); CREATE INDEX ON small (id, name)", True),
        ("(id int8, name text); CREATE INDEX ON small USING hash (id)", True),
        ("(id int8, name text)", False),
        ("(id int8, name text PRIMARY KEY)", False),
        ("(id int8, name text); CREATE INDEX ON small (id) WHERE id > 0", False),
        ("(id int8, name text); CREATE INDEX ON small ((id + 0))", False),
        ("(id text, name text); CREATE INDEX ON small (id text_pattern_ops) WHERE true", True),
        (INHERITED, False),
        (f"{INHERITED}; CREATE INDEX ON part (id)", True),
    ],
)
async def test_index_is_recognised(database: Database, definition: str, *, expected: bool) -> None:
    """A usable index is found even if the table is too small for the planner to use it."""
    database.execute(*f"CREATE TABLE small {definition}".split(";"))
    database.execute("INSERT INTO small VALUES (1, 'one')", "ANALYZE small")

    async with PostgresBackend(PostgresSettings(database.dsn(), "small", ("id",))) as backend:
        before = backend.uses_index
        await backend.describe(timeout_s=PATIENCE_S)

        assert (before, backend.uses_index) == (None, expected)


@pytest.mark.parametrize("row_count", [1, 500])
@pytest.mark.parametrize(
    ("statements", "table", "expected"),
    [
        ([], "t", False),
        (["CREATE INDEX ON t (region)", "CREATE INDEX ON t (id, n, region)"], "t", True),
        (["CREATE INDEX ON t (id, region, n)", "CREATE INDEX ON t USING hash (region)"], "t", True),
        (["CREATE INDEX ON t (n, region)"], "view", True),
        (["CREATE INDEX ON t (n, id, region)"], "view", False),
        (["CREATE INDEX ON t (n, region)"], "later", False),
        (["CREATE INDEX ON t (lower(region), n)"], "lowered", True),
        (["CREATE INDEX ON t (n, lower(region))"], "lowered", False),
        (["CREATE INDEX ON t ((id + n), region)"], "sums", True),
        (["CREATE INDEX ON part USING brin (id, region)"], "parted", True),
        (["CREATE INDEX ON parted (id, region)"], "parted", False),
        (["CREATE INDEX ON part (region)"], "parted", True),
    ],
)
async def test_index_starts_with_the_key(
    database: Database, statements: list[str], table: str, *, expected: bool, row_count: int
) -> None:
    """An index counts if conditions compare its first columns, up to one of the key."""
    columns = "(id int, region varchar(9), n int, name text)"
    database.execute(
        f"CREATE TABLE t {columns}",
        "ALTER TABLE t ADD PRIMARY KEY (id, region)",
        f"CREATE TABLE parted {columns} PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted DEFAULT",
        "CREATE VIEW view AS SELECT * FROM t WHERE n = 5",
        "CREATE VIEW later AS SELECT * FROM t WHERE n > 5",
        "CREATE VIEW lowered AS SELECT lower(region) AS region, name FROM t",
        "CREATE VIEW sums AS SELECT * FROM t WHERE id + n = 10",
        *statements,
        f"INSERT INTO t SELECT i, 'r' || i, i % 9, 'n' FROM generate_series(1, {row_count}) AS i",
        "INSERT INTO parted TABLE t",
        "VACUUM ANALYZE t, parted",
    )
    settings = PostgresSettings(database.dsn(), table, ("region",), ("name",))

    async with described(settings) as backend:
        assert backend.uses_index is expected


PAIRS = "CREATE INDEX ON t (id, region)"


@pytest.mark.parametrize(
    ("query", "statement", "expected"),
    [
        ("SELECT b AS id, name FROM t AS x (a, b)", "CREATE INDEX ON t (region)", True),
        ("SELECT b AS id, name FROM t AS x (a, b)", "CREATE INDEX ON t (n)", False),
        ("SELECT a AS id, region, name FROM t AS x (a)", PAIRS, True),
        ("SELECT plus(id) AS id, name FROM t", "CREATE INDEX ON t (plus(id))", True),
        ("SELECT id, name FROM t UNION ALL SELECT 0, 'unknown'", PAIRS, True),
        ("SELECT 0 AS id, 'unknown' AS name UNION SELECT id, name FROM t", PAIRS, True),
        ("SELECT id, name FROM t UNION ALL VALUES (0, 'unknown'), (-1, '')", PAIRS, True),
        ("SELECT 0 AS id, '' AS name WHERE false UNION ALL SELECT id, name FROM t", PAIRS, True),
        ("SELECT id, name FROM t UNION ALL SELECT n, name FROM t", PAIRS, False),
        ("SELECT 0 AS id, '' AS name UNION ALL SELECT 1, ''", PAIRS, False),
    ],
)
async def test_index_below_a_query_counts(
    database: Database, query: str, statement: str, *, expected: bool
) -> None:
    """An index counts under other names and simplified expressions, and next to constant rows."""
    database.execute(
        "CREATE TABLE t (id int, region int, n int, name text)",
        "CREATE FUNCTION plus(int) RETURNS int IMMUTABLE LANGUAGE sql RETURN $1 + 1",
        statement,
    )
    key = ("id", "region") if "region," in query else ("id",)

    async with described(PostgresSettings(database.dsn(), "q", key, query=query)) as backend:
        assert backend.uses_index is expected


async def test_missing_index_has_a_remedy(database: Database) -> None:
    """A missing index is logged once, or refused; so is the index that the remedy creates."""
    database.execute("CREATE TABLE small (id int8, name text)")
    settings = PostgresSettings(database.dsn(), "small", ("id",))
    async with PostgresBackend(replace(settings, require_index=True)) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=PATIENCE_S)
    with capture_logs() as logged:
        async with described(settings) as backend:
            await backend.describe(timeout_s=PATIENCE_S)
            (line,) = logged
            database.execute(line["create_index"])
            for _ in range(2):
                await backend.describe(timeout_s=PATIENCE_S)
            uses_index = backend.uses_index

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert line["create_index"] in caught.value.detail
    assert [(each["event"], each["table"]) for each in logged] == [
        ("dimension.lookup_without_index", "small"),
        ("dimension.lookup_with_index", "small"),
    ]
    assert uses_index


async def test_rows_come_without_an_index(database: Database) -> None:
    """Without an index, rows are the same: several for one key, none for another."""
    database.execute(
        "CREATE TABLE small (id int8, name text)",
        "INSERT INTO small VALUES (1, 'a'), (2, 'b'), (2, 'c'), (NULL, 'd')",
    )
    async with described(PostgresSettings(database.dsn(), "small", ("id",))) as backend:
        keys = pa.record_batch({"id": [2, 3, 1]})
        fetched = await backend.fetch(keys, timeout_s=PATIENCE_S)

    names = fetched.rows["name"].to_pylist()
    found = sorted(zip(fetched.ordinals.tolist(), names, strict=True))
    assert found == [(0, "b"), (0, "c"), (2, "a")]
