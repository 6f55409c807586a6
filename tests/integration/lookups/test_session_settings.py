"""Settings of a role, database or DSN: rows and errors are those of a plain session."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.type_texts import parsed_type
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.errors import ISOLATION
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.lookups.tables import PATIENCE_S, create_reader, described, loaded, names_of
from tests.integration.pgbouncer import PgBouncer
from tests.integration.pgbouncer import pgbouncer as running_pooler
from tools.processes.postgres_server import Database, PostgresServer, running_standby

TENANT = """CREATE VIEW own AS SELECT id, name FROM named
    WHERE tenant = current_setting('app.tenant')"""
# Each setting with a value that changes a text, or ends a session.
HOSTILE = {
    "array_nulls": "off",
    "bytea_output": "escape",
    "datestyle": "German, DMY",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "exit_on_error": "on",
    "extra_float_digits": "-3",
    "gin_fuzzy_search_limit": "1",
    "idle_in_transaction_session_timeout": "1s",
    "idle_session_timeout": "1s",
    "intervalstyle": "sql_standard",
    "lock_timeout": "1s",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "timezone": "Asia/Kolkata",
    "transaction_timeout": "1s",
    "transform_null_equals": "on",
    "xmlbinary": "hex",
    "xmloption": "document",
}
PLACES = (
    "CREATE TYPE geo AS (lat float8, lon float8)",
    "CREATE TYPE event AS (at timestamptz, data bytea, lasted interval)",
    """CREATE TABLE places (id int PRIMARY KEY, pos geo, track geo[], d float8, p point, dd float8,
       ts timestamp, r daterange, at timestamptz, period tstzrange, lasted interval,
       events event[], kind regclass, area box, f4 float4[])""",
    """INSERT INTO places SELECT 1, ROW(0.1::float8 + 0.2, 2.1)::geo,
       ARRAY[ROW(0.1::float8 + 0.2, 1)::geo], 0.1::float8 + 0.2, point(0.1::float8 + 0.2, 1),
       0.1::float8 + 0.2, '2026-01-02 03:04:05', '[2026-01-02,2026-03-04)',
       '2026-01-02 03:04:05Z', '[2026-01-02 03:04:05Z,)', '-1 day 02:03:04',
       ARRAY[ROW('2026-01-02 03:04:05Z', '\\x00ff', '1 day')::event], 'places',
       box(point(0.1::float8 + 0.2, 1), point(0, 0)), ARRAY[1.1::float4]""",
)
REQUESTED = {
    "pos": parsed_type("struct<lat double, lon double>"),
    "track": parsed_type("array<struct<lat double, lon double>>"),
    "dd": pa.utf8(),
    "ts": pa.utf8(),
}
ROW = {
    "pos": {"lat": 0.30000000000000004, "lon": 2.1},
    "track": [{"lat": 0.30000000000000004, "lon": 1.0}],
    "d": 0.30000000000000004,
    "p": "(0.30000000000000004,1)",
    "dd": "0.30000000000000004",
    "ts": "2026-01-02 03:04:05",
    "r": "[2026-01-02,2026-03-04)",
    "period": '["2026-01-02 03:04:05+00",)',
    "lasted": "-1 days +02:03:04",
    "kind": "places",
    "area": "(0.30000000000000004,1),(0,0)",
}


@pytest.fixture
def places(database: Database) -> Database:
    """A database with the table `places`, whose settings are hostile to all sessions."""
    database.execute(*PLACES, *hostile(database))
    return database


def hostile(database: Database, role: str = "postgres") -> Iterator[str]:
    """Statements that set for the role what the server has."""
    for name, value in HOSTILE.items():
        if database.query("SELECT FROM pg_settings WHERE lower(name) = %s", [name]):
            yield f"ALTER ROLE {role} IN DATABASE {database.name} SET {name} = '{value}'"


async def loaded_rows(settings: PostgresSettings, schema: DimensionSchema) -> list[dict[str, Any]]:
    """The rows of a load."""
    return [row for page in await loaded(settings, schema) for row in page.rows.to_pylist()]


async def rows_of(settings: PostgresSettings) -> list[dict[str, Any]]:
    """The rows of key 1, by records, by blocks, and by a load."""
    keys = pa.record_batch({"id": pa.array([1], pa.int32())})
    many = pa.record_batch({"id": pa.array(range(1, 1_002), pa.int32())})
    async with PostgresBackend(settings) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        few = await backend.fetch(keys, timeout_s=PATIENCE_S)
        blocks = await backend.fetch(many, timeout_s=PATIENCE_S)
    return [
        *few.rows.to_pylist(),
        *blocks.rows.to_pylist(),
        *await loaded_rows(settings, schema),
    ]


def settings_of(places: Database, **changed: Any) -> PostgresSettings:  # noqa: ANN401  any setting
    """Settings of the table `places`."""
    settings = PostgresSettings(places.dsn(), "places", ("id",), types=REQUESTED)
    return replace(settings, **changed)


async def test_rows_are_those_of_plain_sessions(database: Database, bouncer: PgBouncer) -> None:
    """No setting of a role changes a row of a lookup or a load, direct or behind a pooler."""
    database.execute(*PLACES)
    (plain, *_) = await rows_of(settings_of(database))
    database.execute(*hostile(database))

    direct = await rows_of(settings_of(database))
    pooled = await rows_of(settings_of(database, dsn=bouncer.dsn, pgbouncer=True))
    viewed = await rows_of(settings_of(database, table="q", query="SELECT * FROM places"))

    assert {name: plain[name] for name in ROW} == ROW
    assert direct == pooled == viewed == [plain] * 3


async def test_settings_of_the_dsn_lose(places: Database) -> None:
    """Settings in the DSN, also in its options, change no row."""
    dsn = (
        f"{places.dsn()}&extra_float_digits=0&TimeZone=Asia/Tokyo&options=-c%20bytea_output=escape"
    )

    rows = await rows_of(settings_of(places, dsn=dsn))

    assert [{name: row[name] for name in ROW} for row in rows] == [ROW] * 3


async def test_parsing_settings_are_named_behind_poolers(
    places: Database, bouncer: PgBouncer
) -> None:
    """Behind PgBouncer, settings that change the meaning of configured SQL are refused by name."""
    settings = settings_of(places, table="q", query="SELECT * FROM places")

    with pytest.raises(BackendError) as caught:
        await rows_of(replace(settings, dsn=bouncer.dsn, pgbouncer=True))

    assert caught.value.detail == (
        "q: behind PgBouncer, sessions have array_nulls = off, intervalstyle = sql_standard, "
        "transform_null_equals = on, which changes what SQL means; run "
        "ALTER ROLE … SET array_nulls = on; ALTER ROLE … SET intervalstyle = postgres; "
        "ALTER ROLE … SET transform_null_equals = off"
    )


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("at >= timestamptz '2024-01-01 00:00'", ["one"]),
        ("day = date '01/02/2024'", ["one"]),
        (r"name <> '\one'", ["one", "two"]),
    ],
)
@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_literals_are_those_of_plain_sessions(
    database: Database, bouncer: PgBouncer, *, pgbouncer: bool, where: str, names: list[str]
) -> None:
    """No setting of a role changes a literal of `source.where`, direct or behind a pooler."""
    database.execute(
        "CREATE TABLE named (id int PRIMARY KEY, name text, at timestamptz, day date)",
        "INSERT INTO named VALUES (1, 'one', '2024-01-01 00:30Z', '2024-01-02'),"
        " (2, 'two', '2023-12-31 20:00Z', '2024-02-01')",
        *(
            f"ALTER ROLE postgres IN DATABASE {database.name} SET {setting}"
            for setting in (
                "timezone = 'Asia/Tokyo'",
                "datestyle = 'ISO, DMY'",
                "standard_conforming_strings = off",
            )
        ),
    )
    dsn = bouncer.dsn if pgbouncer else database.dsn()
    settings = PostgresSettings(dsn, "named", ("id",), where=where, pgbouncer=pgbouncer)
    async with described(settings) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        looked_up = await names_of(backend, 1, 2)
        rows = await loaded_rows(settings, schema)

    assert looked_up == [row["name"] for row in rows] == names


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("search_path=tenant", "search_path"),
        ("options=-c%20search_path%3Dtenant", "search_path"),
        ("options=--app.tenant%3Da%5C%20b", "app.tenant"),
    ],
)
@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_ignored_settings_of_the_dsn_are_named(
    database: Database,
    postgres_server: PostgresServer,
    tmp_path: Path,
    *,
    pgbouncer: bool,
    given: str,
    name: str,
) -> None:
    """A pooler that ignores a setting of the DSN leads to no other table, and no other row."""
    database.execute(
        "CREATE TABLE named (id int PRIMARY KEY, name text)",
        "CREATE SCHEMA tenant",
        "CREATE TABLE tenant.named (id int PRIMARY KEY, name text)",
    )
    ignored = "search_path, options, statement_timeout, jit, row_security, app.tenant, " + ISOLATION
    direct = PostgresSettings(f"{database.dsn()}&{given}", "named", ("id",))
    async with described(direct) as backend:
        has_setting = await backend.describe(timeout_s=PATIENCE_S)
    user = postgres_server.system_user
    with (
        running_pooler(tmp_path, database, system_user=user, ignored=ignored) as bouncer,
        pytest.raises(BackendError) as caught,
    ):
        async with described(replace(direct, dsn=f"{bouncer.dsn}&{given}", pgbouncer=pgbouncer)):
            pass

    assert has_setting.origin is not None
    assert caught.value.detail == (
        f"named: sessions lack {name} of the DSN, which a pooler ignores; set it by ALTER ROLE, and"
        " remove it from the DSN"
    )


REPLACED = {
    "operator": (
        "CREATE FUNCTION own.never(int, int) RETURNS bool LANGUAGE sql AS 'SELECT false'",
        "CREATE OPERATOR own.= (leftarg = int, rightarg = int, function = own.never)",
    ),
    "type": ("CREATE DOMAIN own.text AS varchar(1)",),
    "catalog": ("CREATE TABLE own.pg_type (oid oid)",),
    "function": (
        "CREATE FUNCTION own.unnest(int[]) RETURNS SETOF int LANGUAGE sql AS 'SELECT 2'",
        """CREATE FUNCTION own.current_setting(text) RETURNS text LANGUAGE sql
           AS $$SELECT 'on'::text$$""",
        "CREATE FUNCTION own.array_send(int[]) RETURNS bytea LANGUAGE sql AS $$SELECT ''::bytea$$",
        "CREATE FUNCTION own.textsend(text) RETURNS bytea LANGUAGE sql AS $$SELECT 'x'::bytea$$",
    ),
}
PATH = "own, public, pg_catalog"


@pytest.fixture
def numbers(database: Database) -> PostgresSettings:
    """The names of two numbers, where a schema of the role precedes the catalog."""
    database.execute(
        "CREATE SCHEMA own",
        "CREATE TABLE numbers (id int PRIMARY KEY, name text)",
        "INSERT INTO numbers VALUES (1, 'one'), (2, 'two')",
        f"ALTER ROLE postgres IN DATABASE {database.name} SET search_path = {PATH}",
    )
    return PostgresSettings(database.dsn(), "public.numbers", ("id",))


@pytest.mark.parametrize("replaced", REPLACED)
async def test_catalog_precedes_other_schemas(
    database: Database, numbers: PostgresSettings, replaced: str
) -> None:
    """No object of a schema in `search_path` takes the place of one of the server."""
    database.execute(*REPLACED[replaced])

    rows = await rows_of(numbers)

    names = [row["name"] for row in rows]
    assert names == ["one", "one", "two", "one", "two"]


@pytest.mark.parametrize("replaced", ["operator", "type", "catalog"])
async def test_replaced_catalog_is_named_behind_poolers(
    database: Database, bouncer: PgBouncer, numbers: PostgresSettings, replaced: str
) -> None:
    """Behind PgBouncer, a `search_path` that replaces parts of the catalog is refused by name."""
    pooled = replace(numbers, dsn=bouncer.dsn, pgbouncer=True)
    async with described(pooled) as backend:
        before = await names_of(backend, 1)
    database.execute(*REPLACED[replaced])

    with pytest.raises(BackendError) as caught:
        await rows_of(pooled)

    assert before == ["one"]
    assert caught.value.detail == (
        f"public.numbers: behind PgBouncer, sessions have search_path = {PATH}, which changes what"
        f" SQL means; run ALTER ROLE … SET search_path = pg_catalog, {PATH}"
    )


@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_scans_leave_no_row_out(
    database: Database, bouncer: PgBouncer, *, pgbouncer: bool
) -> None:
    """A load and a lookup find all rows, whatever limit the role sets for scans of GIN indexes."""
    database.execute(
        "CREATE TABLE tagged (id int PRIMARY KEY, tags int[])",
        "INSERT INTO tagged SELECT n, ARRAY[n % 100] FROM generate_series(1, 50000) AS n",
        "CREATE INDEX ON tagged USING gin (tags)",
        "VACUUM ANALYZE tagged",
        f"ALTER ROLE postgres IN DATABASE {database.name} SET gin_fuzzy_search_limit = 5",
    )
    query = "SELECT id, id AS twin FROM tagged WHERE tags @> '{1}'"
    dsn = bouncer.dsn if pgbouncer else database.dsn()
    settings = PostgresSettings(dsn, "ones", ("id",), query=query, pgbouncer=pgbouncer)
    wanted = list(range(1, 50_000, 100))
    async with described(settings) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        keys = pa.record_batch({"id": pa.array(wanted, pa.int32())})
        fetched = await backend.fetch(keys, timeout_s=PATIENCE_S)

    assert sorted(row["twin"] for row in fetched.rows.to_pylist()) == wanted
    assert sorted(row["twin"] for row in await loaded_rows(settings, schema)) == wanted


@pytest.mark.parametrize(
    "more",
    [
        {"table": "dimension"},
        {"table": "own"},
        {"table": "of_owner"},
        {"table": "q", "query": "SELECT id, name FROM dimension"},
        {"table": "parts"},
        {"table": "dimension", "where": "name <> 'x'"},
    ],
    ids=["table", "invoker", "definer", "query", "partitioned", "filtered"],
)
@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_new_policy_is_never_missing(
    database: Database, bouncer: PgBouncer, *, pgbouncer: bool, more: dict[str, Any]
) -> None:
    """From the first query after ENABLE ROW LEVEL SECURITY, hidden rows are an error."""
    reader, owner = f"reader_{database.name}", f"owner_{database.name}"
    database.execute(
        f"CREATE ROLE {reader} LOGIN",
        f"CREATE ROLE {owner}",
        "CREATE TABLE dimension (id int PRIMARY KEY, name text)",
        "INSERT INTO dimension VALUES (1, 'one')",
        "CREATE TABLE parts (id int PRIMARY KEY, name text) PARTITION BY LIST (id)",
        "CREATE TABLE part PARTITION OF parts FOR VALUES IN (1)",
        "INSERT INTO parts VALUES (1, 'one')",
        "CREATE VIEW own WITH (security_invoker) AS SELECT id, name FROM dimension",
        "CREATE VIEW of_owner AS SELECT id, name FROM dimension",
        f"ALTER VIEW of_owner OWNER TO {owner}",
        f"GRANT SELECT ON dimension, parts, own, of_owner TO {reader}, {owner}",
    )
    grants = f"ALTER ROLE postgres IN DATABASE {database.name} SET role = {reader}"
    database.execute(grants)
    dsn = bouncer.dsn if pgbouncer else database.dsn()
    settings = replace(PostgresSettings(dsn, "", ("id",), pgbouncer=pgbouncer), **more)
    async with described(settings) as backend:
        before = await names_of(backend, 1)
        await asyncio.to_thread(as_owner, database, "dimension")
        await asyncio.to_thread(as_owner, database, "parts")
        with pytest.raises(BackendError) as caught:
            await names_of(backend, 1)

    assert before == ["one"]
    assert caught.value.code is ErrorCode.FORBIDDEN
    assert "row-level security hides rows from the role of the DSN" in caught.value.detail


def as_owner(database: Database, table: str) -> None:
    """Enable row-level security, without a policy."""
    with psycopg.connect(database.dsn(), autocommit=True) as connection:
        connection.execute(b"SET role = postgres")
        connection.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY".encode())


@pytest.fixture(scope="module")
def standby(postgres_server: PostgresServer) -> Iterator[Database]:
    """A database on a standby, where transactions are serializable by default."""
    database = postgres_server.new_database()
    database.execute(
        "CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL)",
        "INSERT INTO customers VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'serializable'",
    )
    with running_standby(postgres_server) as folder:
        yield replace(database, socket_folder=folder)


async def test_serializable_standby_has_rows(standby: Database) -> None:
    """Lookups and loads of a standby are read committed, whatever the database sets."""
    settings = PostgresSettings(standby.dsn(), "public.customers", ("id",))
    async with described(settings) as backend:
        found = await names_of(backend, 1)
        schema = await backend.describe(timeout_s=PATIENCE_S)

    assert found == ["one"]
    assert [row["name"] for row in await loaded_rows(settings, schema)] == ["one", "two", "three"]


async def test_serializable_pooler_is_named(standby: Database) -> None:
    """Sessions that cannot be fixed name the setting, and not the table."""
    settings = PostgresSettings(standby.dsn(), "public.customers", ("id",), pgbouncer=True)

    with pytest.raises(BackendError) as caught:
        async with described(settings):
            raise AssertionError("it is not described")

    assert caught.value.code is ErrorCode.BACKEND_REJECTED
    assert caught.value.detail == (
        "public.customers: a standby refuses serializable transactions; run "
        "ALTER ROLE … SET default_transaction_isolation = 'read committed'"
    )


# A session of the sidecar that has done nothing, or waited for a lock, for longer than HOSTILE.
OVERDUE = """EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'sidelook'
    AND datname = current_database() AND state = '{state}'
    AND clock_timestamp() - state_change > interval '1200 ms')"""


async def test_timeouts_of_the_role_end_nothing(database: Database) -> None:
    """An idle session, and a lookup that waits for a lock, outlive the role's timeouts."""
    database.execute(*PLACES)
    reader = f"reader_of_{database.name}"
    dsn = create_reader(database, table="places")
    for statement in hostile(database, reader):
        database.execute(statement)
    settings = settings_of(database, dsn=dsn, statement_timeout_s=PATIENCE_S)
    keys = pa.record_batch({"id": pa.array([1], pa.int32())})
    pids = f"SELECT pid FROM pg_stat_activity WHERE usename = '{reader}'"
    async with described(settings) as backend:
        before = database.query(pids)
        await database.wait_for(OVERDUE.format(state="idle"))
        with database.locked("places"):
            task = asyncio.ensure_future(backend.fetch(keys, timeout_s=PATIENCE_S))
            await database.wait_for(OVERDUE.format(state="active"))
        fetched = await task
        after = database.query(pids)

    assert fetched.rows.num_rows == 1
    assert before == after


@pytest.mark.parametrize("whose", ["ROLE {role}", "DATABASE {database}"])
async def test_own_settings_are_another_version(database: Database, whose: str) -> None:
    """If a setting that SQL may read changes, the version differs, and sessions are renewed."""
    role = f"reader_of_{database.name}"
    whose = whose.format(role=role, database=database.name)
    database.execute(
        "CREATE TABLE named (id int PRIMARY KEY, tenant text, name text)",
        "INSERT INTO named VALUES (1, 'a', 'one'), (2, 'b', 'two')",
        TENANT,
    )
    reader = create_reader(database, table="own")
    database.execute(f"ALTER {whose} SET app.tenant = 'a'")
    settings = PostgresSettings(reader, "own", ("id",), max_connections=1)
    async with PostgresBackend(settings) as backend:
        schemas = [await backend.describe(timeout_s=PATIENCE_S)]
        names = [await names_of(backend, 1, 2)]
        for setting in ("work_mem = '5MB'", "app.tenant = 'b'"):
            database.execute(f"ALTER {whose} SET {setting}")
            schemas.append(await backend.describe(timeout_s=PATIENCE_S))
            names.append(await names_of(backend, 1, 2))

    assert names == [["one"], ["one"], ["two"]]
    assert [each.has_rows_of(schemas[0]) for each in schemas] == [True, True, False]
