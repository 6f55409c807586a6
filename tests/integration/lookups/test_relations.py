"""Lookups in partitioned tables, views, materialized views and queries, and with a filter."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.answer import Outcome
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.type_texts import parsed_type
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.lookups.tables import (
    PATIENCE_S,
    create_reader,
    described,
    refusal_of,
    schema_of,
    serving,
)
from tools.processes.postgres_server import Database

PARTED = (
    "CREATE TABLE parted (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high (name text, id int NOT NULL)",  # its columns have another order
    "INSERT INTO high VALUES ('ten', 10)",
    "ALTER TABLE parted ATTACH PARTITION high FOR VALUES FROM (10) TO (20)",
    "INSERT INTO parted VALUES (1, 'one'), (2, 'two')",
)
STATEMENTS = (
    *PARTED,
    "CREATE TABLE plain (id int PRIMARY KEY, name text, is_open bool, ordinal int)",
    "INSERT INTO plain SELECT i, 'name ' || i, i % 2 = 0, i FROM generate_series(1, 9) AS i",
    "CREATE TABLE bare AS TABLE plain",
    "CREATE VIEW shown AS SELECT p.id, p.name || '!' AS name FROM plain AS p",
    "CREATE VIEW by_bare AS SELECT b.id, p.name FROM bare b JOIN plain p ON p.id = b.ordinal",
    "CREATE VIEW twice AS SELECT id, name FROM plain UNION ALL SELECT id, 'b' FROM plain",
    "CREATE MATERIALIZED VIEW kept AS TABLE plain",
    "CREATE UNIQUE INDEX ON kept (id)",
)
JOIN = "SELECT p.id, p.name, k.is_open FROM plain p JOIN kept k USING (id) -- joined"


@pytest.fixture
def relations(database: Database) -> Database:
    """A database with relations of all kinds that need no extension."""
    database.execute(*STATEMENTS)
    return database


def settings_of(database: Database, table: str, **more: Any) -> PostgresSettings:  # noqa: ANN401  of the settings
    """The relation by its key `id`."""
    return PostgresSettings(database.dsn(), table, ("id",), **more)


async def rows_of(settings: PostgresSettings, *ids: int, key_count: int = 0) -> list[Any]:
    """The position of each key with its row; more keys without a row if there are fewer."""
    keys = [*ids, *range(-key_count, 0)]
    async with described(settings) as backend:
        batch = pa.record_batch({"id": pa.array(keys, pa.int32())})
        fetched = await backend.fetch(batch, timeout_s=PATIENCE_S)
    rows = [tuple(row.values()) for row in fetched.rows.to_pylist()]
    return list(zip(fetched.ordinals.tolist(), rows, strict=True))


@pytest.mark.parametrize("key_count", [0, 1000])
@pytest.mark.parametrize(
    ("table", "more", "expected", "uses_index"),
    [
        ("parted", {}, [(0, ("two",)), (1, ("ten",))], True),
        ("shown", {}, [(0, ("name 2!",))], True),
        ("kept", {"columns": ("name",)}, [(0, ("name 2",))], True),
        ("by_bare", {}, [(0, ("name 2",))], False),
        ("plain", {"columns": ("name",), "where": "ordinal = 2"}, [(0, ("name 2",))], True),
        ("plain", {"columns": ("name",), "where": "NOT is_open -- or"}, [], True),
        ("bare", {"columns": ("name",), "where": "ordinal < 3"}, [(0, ("name 2",))], False),
        ("parted", {"where": "parted.name <> 'two'"}, [(1, ("ten",))], True),
        ("q", {"query": JOIN}, [(0, ("name 2", True))], True),
        ("q", {"query": JOIN, "where": "NOT is_open"}, [], True),
        ("q", {"query": "VALUES (2, 'b')", "key": ("column1",)}, [(0, ("b",))], False),
    ],
)
async def test_each_relation_is_looked_up(
    relations: Database,
    *,
    key_count: int,
    table: str,
    more: dict[str, Any],
    expected: list[Any],
    uses_index: bool,
) -> None:
    """Each kind of relation returns the rows of the keys, by an index if there is one."""
    settings = replace(settings_of(relations, table), **more)

    assert await rows_of(settings, 2, 10, key_count=key_count) == expected
    async with described(settings) as backend:
        assert backend.uses_index is uses_index


@pytest.mark.real_path
async def test_attached_partition_is_looked_up(relations: Database) -> None:
    """Rows of partitions appear when they are attached, and not after they are detached."""
    settings = settings_of(relations, "parted")
    relations.execute("CREATE TABLE more AS SELECT 30 AS id, 'thirty' AS name")
    before = await rows_of(settings, 10, 30)
    relations.execute(
        "ALTER TABLE more ALTER id SET NOT NULL",
        "ALTER TABLE parted ATTACH PARTITION more FOR VALUES FROM (30) TO (40)",
        "ALTER TABLE parted DETACH PARTITION high",
    )

    assert (before, await rows_of(settings, 10, 30)) == ([(0, ("ten",))], [(1, ("thirty",))])


async def test_partitions_without_index_are_searched_once(database: Database) -> None:
    """A partition without an index is found, and the remedy for all partitions creates it."""
    database.execute(
        "CREATE TABLE parted (id int, name text) PARTITION BY LIST (id)",
        "CREATE TABLE one PARTITION OF parted FOR VALUES IN (1)",
        "CREATE TABLE rest PARTITION OF parted DEFAULT",
        "CREATE INDEX ON one (id)",
        "INSERT INTO parted VALUES (1, 'one'), (2, 'two')",
    )
    settings = settings_of(database, "parted", require_index=True)
    refusal = await refusal_of(settings)
    found = await rows_of(replace(settings, require_index=False), 1, 2)
    database.execute(refusal.detail.rpartition("; ")[2])

    assert found == [(0, ("one",)), (1, ("two",))]
    assert await rows_of(settings, 1, 2) == found


async def test_empty_partitioned_table_is_accepted(database: Database) -> None:
    """A partitioned table without partitions has no rows, and no index that could be missing."""
    database.execute("CREATE TABLE parted (id int, name text) PARTITION BY LIST (id)")
    settings = settings_of(database, "parted", require_index=True)

    assert await rows_of(settings, 1) == []


@pytest.mark.parametrize("table", ["twice", "parted", "kept"])
async def test_several_rows_have_a_stable_order(relations: Database, table: str) -> None:
    """Rows of one key have the same order in each query, also without a primary key."""
    relations.execute("ALTER TABLE parted DROP CONSTRAINT parted_pkey")
    relations.execute("INSERT INTO parted VALUES (2, 'b'), (2, 'a')")
    settings = settings_of(relations, table, columns=("name",), has_several_rows=True)

    first = await rows_of(settings, 2)

    assert [await rows_of(settings, 2) for _ in range(2)] == [first, first]
    assert sorted(first) == first or table == "parted"


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("SELECT 1 AS id, 'x' AS a, NULL AS b", {"a": pa.utf8(), "b": pa.utf8()}),
        (
            "SELECT 1 AS id, 1.5 AS n, now() AS at",
            {"n": pa.utf8(), "at": pa.timestamp("us", "UTC")},
        ),
        ("SELECT 1 AS id, p AS price FROM prices", {"price": pa.decimal128(9, 2)}),
        ("WITH a AS (SELECT 1 AS id) SELECT id, true AS b FROM a", {"b": pa.bool_()}),
    ],
)
async def test_query_is_described_by_the_server(
    database: Database, query: str, types: dict[str, pa.DataType]
) -> None:
    """Columns of a query have the server's types; only domains have their modifiers."""
    database.execute("CREATE DOMAIN price AS numeric(9, 2)", "CREATE TABLE prices (p price)")
    settings = settings_of(database, "source.query", query=query)
    schema = await schema_of(settings)

    assert (schema.columns, schema.origin) == (pa.schema(types), None)


DELETE = "DELETE FROM plain RETURNING id"
TWO = "SELECT 2 AS id, 'b' AS name"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"query": "SELECT 1 AS id, 2 AS a FROM nowhere"}, 'relation "nowhere" does not exist'),
        ({"query": "SELECT 1 AS id, 2 AS a WHERE"}, "syntax error"),
        ({"query": "SELECT 1 AS id, 2 AS a, 3 AS a"}, "several columns a; rename them with AS"),
        ({"query": "SELECT 1 AS id, 2 AS a INTO b"}, "the server refuses it"),
        ({"query": "DELETE FROM plain RETURNING id"}, "the server refuses it"),
        ({"query": f"WITH gone AS ({DELETE}) SELECT * FROM gone"}, "must be at the top level"),
        ({"query": "TABLE plain; DROP TABLE plain"}, 'syntax error at or near ";"'),
        ({"query": f"TABLE plain) AS a ON false LEFT JOIN ({TWO}"}, 'syntax error at or near ")"'),
        ({"query": "SELECT $1::int AS id, 2 AS a"}, "it has a parameter, such as $1"),
        ({"where": "true; DROP TABLE plain"}, "source.where: the server refuses it: syntax error"),
        ({"where": "true) OR (true"}, "source.where: the server refuses it: syntax error"),
        ({"where": "true ORDER BY id"}, "source.where: the server refuses it: syntax error"),
        ({"where": "-- a"}, "source.where: the server refuses it: syntax error"),
        ({"where": f"EXISTS ({DELETE})"}, "source.where: the server refuses it: syntax error"),
        ({"where": "id = $1"}, "source.where: the server refuses it: it has a parameter"),
        ({"query": "SELECT 1.5 AS id, 2 AS a"}, "numeric cannot be a key"),
        ({"query": "SELECT 1 AS ident, 2 AS a"}, "no column id"),
        ({"where": "nam = 'a'"}, 'source.where: the server refuses it: column "nam" does not'),
        ({"where": "name"}, "argument of WHERE must be type boolean"),
        ({"where": "id > 1/0"}, "division by zero"),
        ({"where": "at(name) > now()", "is_followed": True}, "source.where calls at, now"),
        ({"where": "plain.is_new", "is_followed": True}, "source.where calls is_new"),
    ],
)
async def test_wrong_sql_is_refused(relations: Database, more: dict[str, Any], reason: str) -> None:
    """SQL of the configuration that the server refuses is a fault with the server's message."""
    relations.execute(
        "CREATE FUNCTION at(text) RETURNS timestamptz LANGUAGE sql RETURN now()",
        "CREATE FUNCTION is_new(plain) RETURNS bool STABLE LANGUAGE sql RETURN $1.id > 1",
    )

    refusal = await refusal_of(settings_of(relations, "plain", **more))

    assert refusal.code is ErrorCode.TABLE_UNAVAILABLE
    assert reason in refusal.detail


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("shown", "is a view"),
        ("kept", "is a materialized view"),
        ("parted", "publish_via_partition_root"),
        ("low", "no publication reports its changes under its name"),
    ],
)
async def test_feeds_are_refused_with_a_remedy(
    relations: Database, table: str, reason: str
) -> None:
    """A feed that cannot report all changes is refused with the remedy for that kind."""
    settings = settings_of(
        relations, table, columns=("name",), is_followed=True, needs_publication=True
    )
    refusal = await refusal_of(settings)
    async with described(replace(settings, is_followed=False)):
        pass

    assert (refusal.code, reason in refusal.detail) == (ErrorCode.TABLE_UNAVAILABLE, True)


async def test_published_partitions_are_followed(relations: Database) -> None:
    """A partitioned table is followed if a publication has the changes under its name."""
    relations.execute("CREATE PUBLICATION p FOR TABLE parted")
    settings = settings_of(relations, "parted", is_followed=True, needs_publication=True)
    refusal = await refusal_of(settings)
    relations.execute("ALTER PUBLICATION p SET (publish_via_partition_root = true)")
    schema = await schema_of(settings)

    assert "publish_via_partition_root" in refusal.detail
    assert schema.origin is not None
    assert (schema.origin.is_partitioned, schema.origin.reports_rows) == (True, False)


async def test_constant_filter_may_be_followed(relations: Database) -> None:
    """A filter by the row's own values may have a feed; rows of events are not used."""
    where = "lower(name) <> 'a' AND coalesce(is_open, true) AND id IN (1, 2)"
    settings = settings_of(relations, "plain", where=where, is_followed=True)
    origins = []
    for each in (settings, replace(settings, where=None)):
        async with PostgresBackend(each) as backend:
            origins.append((await backend.describe(timeout_s=PATIENCE_S)).origin)

    assert [origin and origin.reports_rows for origin in origins] == [False, True]


@pytest.mark.parametrize(
    ("statements", "table", "reason"),
    [
        (("CREATE MATERIALIZED VIEW v AS TABLE plain WITH NO DATA",), "v", "REFRESH"),
        (("CREATE SEQUENCE s",), "s", "is a sequence; name a table"),
        (("CREATE INDEX i ON plain (name)",), "i", "is an index; name a table"),
    ],
)
async def test_unusable_relations_are_refused(
    relations: Database, statements: Sequence[str], table: str, reason: str
) -> None:
    """A relation without rows for lookups is refused with the reason."""
    relations.execute(*statements)

    assert reason in (await refusal_of(settings_of(relations, table))).detail


async def test_rights_on_the_view_are_enough(relations: Database) -> None:
    """A role reads a view without rights on its tables, but a query needs them."""
    dsn = create_reader(relations, table="shown")
    settings = replace(settings_of(relations, "shown"), dsn=dsn)

    assert await rows_of(settings, 2) == [(0, ("name 2!",))]
    assert (await refusal_of(replace(settings, query=JOIN))).code is ErrorCode.FORBIDDEN


async def test_filter_needs_rights_on_its_columns_only(relations: Database) -> None:
    """A filtered table is read with rights on the columns that are used."""
    relations.execute("CREATE TABLE small AS TABLE plain", "CREATE INDEX ON small (id)")
    dsn = create_reader(relations, table="shown")
    relations.execute(f"GRANT SELECT (id, name, is_open) ON small TO reader_of_{relations.name}")
    settings = PostgresSettings(dsn, "small", ("id",), ("name",), where="is_open")

    assert await rows_of(settings, 1, 2) == [(1, ("name 2",))]


HIDING = (
    "ALTER TABLE plain ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY later ON plain USING (id > 5)",
    "CREATE VIEW own WITH (security_invoker) AS SELECT id, name FROM plain",
)


@pytest.mark.parametrize("pgbouncer", [False, True])
@pytest.mark.parametrize("more", [{"table": "own"}, {"query": "SELECT id, name FROM plain"}])
async def test_hidden_rows_below_are_refused(
    relations: Database, *, more: dict[str, Any], pgbouncer: bool
) -> None:
    """A role from which row-level security hides rows below a view or query has no lookups."""
    relations.execute(*HIDING)
    dsn = create_reader(relations, table="plain, own")
    settings = settings_of(relations, "q", pgbouncer=pgbouncer)
    refusal = await refusal_of(replace(settings, dsn=dsn, **more))

    assert (refusal.code, "row-level security hides" in refusal.detail) == (
        ErrorCode.FORBIDDEN,
        True,
    )


async def test_unreadable_table_below_is_named(relations: Database) -> None:
    """The refusal of a query names the table that its role may not read; functions are tried."""
    dsn = create_reader(relations, table="plain")
    refusal = await refusal_of(replace(settings_of(relations, "q", query=JOIN), dsn=dsn))
    relations.execute("CREATE SEQUENCE numbers")
    counting = "SELECT id, nextval('numbers') AS number FROM plain"
    uncounted = await refusal_of(replace(settings_of(relations, "q", query=counting), dsn=dsn))

    assert refusal.detail.endswith("permission denied for materialized view kept")
    assert uncounted.code is ErrorCode.FORBIDDEN


WRITING = (
    "CREATE SEQUENCE numbers",
    "CREATE TABLE written (id int)",
    """CREATE FUNCTION write(id int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
        IF id = 2 THEN INSERT INTO written VALUES (id); END IF; RETURN true; END $$""",
    "CREATE VIEW locking AS SELECT id, name FROM plain FOR SHARE",
    "CREATE VIEW counting AS SELECT id, nextval('numbers') AS name FROM plain",
)


@pytest.mark.parametrize("pgbouncer", [False, True])
@pytest.mark.parametrize(
    ("table", "more", "command"),
    [
        ("locking", {}, "SELECT FOR SHARE"),
        ("counting", {}, "nextval()"),
        ("q", {"query": "SELECT id, name FROM plain WHERE false FOR UPDATE"}, "SELECT FOR UPDATE"),
        ("q", {"query": "SELECT id, setval('numbers', id) FROM plain"}, "setval()"),
        ("plain", {"where": "write(id + 1)"}, "INSERT"),
    ],
)
async def test_writing_sql_is_refused(
    relations: Database, table: str, more: dict[str, Any], command: str, *, pgbouncer: bool
) -> None:
    """A view, query or filter that writes is refused, and writes nothing."""
    relations.execute(*WRITING)

    refusal = await refusal_of(settings_of(relations, table, pgbouncer=pgbouncer, **more))

    assert (refusal.code, refusal.is_permanent) == (ErrorCode.TABLE_UNAVAILABLE, True)
    assert "remove FOR UPDATE and functions that write" in refusal.detail
    assert f"(cannot execute {command} in a read-only transaction)" in refusal.detail
    assert relations.query("SELECT count(*), (SELECT last_value FROM numbers) FROM written") == [
        (0, 1)
    ]


@pytest.mark.parametrize("key_count", [0, 1000])
@pytest.mark.parametrize("pgbouncer", [False, True])
@pytest.mark.parametrize(
    ("more", "others"),
    [
        ({"query": "SELECT id, name, write(id) FROM plain"}, [3]),
        ({"where": "write(id)", "has_several_rows": True}, [3]),
        ({"query": "SELECT id, name FROM bare WHERE write(id)"}, []),  # all rows are read
    ],
)
async def test_lookups_cannot_write(
    relations: Database, *, more: dict[str, Any], others: list[int], pgbouncer: bool, key_count: int
) -> None:
    """A function that writes for some rows fails for them, also if sessions may write."""
    relations.execute(*WRITING)
    settings = settings_of(relations, "plain", pgbouncer=pgbouncer, **more)

    found = [await rows_of(settings, each, key_count=key_count) for each in others]
    with pytest.raises(BackendError) as caught:
        await rows_of(settings, 2, key_count=key_count)

    assert [len(rows) for rows in found] == [1 for _ in others]
    assert caught.value.code is ErrorCode.BACKEND_REJECTED
    assert relations.query("SELECT count(*) FROM written") == [(0,)]


@pytest.mark.parametrize("pgbouncer", [False, True])
@pytest.mark.parametrize("table", ["plain", "bare"])
async def test_conditions_follow_the_guard(
    relations: Database, table: str, *, pgbouncer: bool
) -> None:
    """A function sees a read-only transaction, also if it is called once for all rows."""
    relations.execute(
        "CREATE TABLE written (id int)",
        """CREATE FUNCTION write() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
            IF current_setting('transaction_read_only') = 'off' THEN
                INSERT INTO written VALUES (1); END IF; RETURN true; END $$""",
    )
    query = f"SELECT id, name FROM {table} WHERE (SELECT write())"

    found = await rows_of(settings_of(relations, "q", query=query, pgbouncer=pgbouncer), 2)

    assert found == [(0, ("name 2",))]
    assert relations.query("SELECT count(*) FROM written") == [(0,)]


@pytest.mark.parametrize(
    "failing",
    ["1 / (id - 2)", "raising(id)", "(SELECT g FROM generate_series(id, 2 * (id % 3) - 1) AS g)"],
)
async def test_failing_row_is_a_fault_of_its_key(relations: Database, failing: str) -> None:
    """SQL that fails for a row fails the lookups of its key, and no others."""
    relations.execute(
        """CREATE FUNCTION raising(id int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
            IF id = 2 THEN RAISE 'two'; END IF; RETURN id; END $$"""
    )
    settings = settings_of(relations, "q", query=f"SELECT id, {failing} AS n FROM plain")

    async with serving(PostgresBackend(settings)) as dimension:
        keys = typed_keys_from_json([1, 2, 3], dimension.schema.known())
        answers = await dimension.lookup(keys, columns=["n"], timeout_s=PATIENCE_S)
        found = {
            position: outcome
            for answer in answers
            for position, outcome in zip(answer.positions, answer.outcomes, strict=True)
        }

    assert found == {0: Outcome.FETCHED, 1: Outcome.ERROR, 2: Outcome.FETCHED}


@pytest.mark.parametrize("key_count", [0, 1000])
async def test_renamed_attribute_is_not_null(database: Database, key_count: int) -> None:
    """An attribute that was renamed is an error, not NULL, also in arrays."""
    database.execute(
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE pairs (id int PRIMARY KEY, one pair, more pair[])",
        "INSERT INTO pairs VALUES (1, (1, 'x'), '{}'), (2, NULL, ARRAY[(2, 'y')::pair, NULL])",
    )
    struct = pa.struct([("a", pa.int32())])
    types = {"one": struct, "more": pa.list_(struct)}
    async with described(settings_of(database, "pairs", types=types)) as backend:
        batch = pa.record_batch({"id": pa.array([1, 2, *range(-key_count, 0)], pa.int32())})
        rows = (await backend.fetch(batch, timeout_s=PATIENCE_S)).rows.to_pylist()
        database.execute("ALTER TYPE pair RENAME ATTRIBUTE a TO c")
        (unfit,) = (await backend.fetch(batch, timeout_s=PATIENCE_S)).unfit

    assert rows == [{"one": {"a": 1}, "more": []}, {"one": None, "more": [{"a": 2}, None]}]
    assert unfit.ordinals.tolist() == [0, 1]


NESTED = (
    "CREATE TYPE bare_pair AS (a int, at timestamptz)",
    "CREATE DOMAIN pair AS bare_pair",
    "CREATE TYPE nest AS (pair pair, pairs pair[], bytes bytea, doc jsonb, on_day date, n numeric)",
    "CREATE TABLE nests (id int PRIMARY KEY, one nest)",
)
NEST = "struct<pairs array<struct<at timestamp, a int>>, pair struct<a int>, n decimal(9,2)>"


@pytest.mark.parametrize("key_count", [0, 1000])
async def test_attributes_within_are_checked(database: Database, key_count: int) -> None:
    """Times beyond the calendar and NaN are null within values; renamed attributes are errors."""
    database.execute(
        *NESTED,
        """INSERT INTO nests VALUES (1, ROW((1, NULL), ARRAY[(2, 'infinity'), (3, '10000-01-01'),
            (4, '2024-05-06 07:00+00'), NULL]::pair[], NULL, NULL, '0044-03-15 BC', 'NaN'))""",
    )
    wanted = parsed_type(f"{NEST[:-1]}, on_day date>")
    async with described(settings_of(database, "nests", types={"one": wanted})) as backend:
        batch = pa.record_batch({"id": pa.array([1, *range(-key_count, 0)], pa.int32())})
        rows = (await backend.fetch(batch, timeout_s=PATIENCE_S)).rows.to_pylist()
        database.execute("ALTER TYPE bare_pair RENAME ATTRIBUTE a TO c CASCADE")
        (unfit,) = (await backend.fetch(batch, timeout_s=PATIENCE_S)).unfit
    refusal = await refusal_of(settings_of(database, "nests", types={"one": wanted}))

    assert (unfit.ordinals.tolist(), unfit.detail[:12]) == ([0], "column one: ")
    day = datetime(2024, 5, 6, 7, tzinfo=UTC)
    times = [{"at": None, "a": 2}, {"at": None, "a": 3}, {"at": day, "a": 4}, None]
    assert rows == [{"one": {"pairs": times, "pair": {"a": 1}, "n": None, "on_day": None}}]
    listed = "bytes, doc, n, on_day, pair (at, c), pairs (at, c)"
    assert f"string, struct<…> of {listed} (bytea as string)); correct" in refusal.detail


@pytest.mark.parametrize(
    ("wanted", "is_accepted"),
    [
        (NEST, True),
        ("struct<doc struct<any binary>>", True),
        ("struct<bytes string>", True),
        ("struct<bytes binary>", False),
        ("struct<pairs array<struct<b int>>>", False),
        ("struct<pair struct<a int, b int>>", False),
        ("struct<n struct<a int>>", False),
    ],
)
async def test_attributes_within_must_exist(
    database: Database, wanted: str, *, is_accepted: bool
) -> None:
    """A requested type with attributes that a composite value lacks is refused."""
    database.execute(*NESTED)
    settings = settings_of(database, "nests", types={"one": parsed_type(wanted)})

    if is_accepted:
        assert await rows_of(settings, 1) == []
    else:
        assert "types: column one is not struct<" in (await refusal_of(settings)).detail
