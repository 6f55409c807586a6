"""Tables whose changelog rows are used, as the real catalog decides."""

from dataclasses import replace

import pytest

from lookup_core.dimension_schema import TableOrigin
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.lookups.tables import PATIENCE_S, create_reader
from tools.processes.postgres_server import Database, PostgresServer

PLAIN = "CREATE TABLE things (id int4 PRIMARY KEY, other int4, name text)"
FLOATS = "CREATE TABLE things (id int4 PRIMARY KEY, f float8)"
BYTES = "CREATE TABLE things (id int4 PRIMARY KEY, b bytea)"
WITH_ROWS = TableOrigin("public", "things", reports_rows=True)
FULL_IDENTITY = "ALTER TABLE things REPLICA IDENTITY FULL"


async def origin(
    database: Database, *statements: str, key: tuple[str, ...] = ("id",), user: str = "postgres"
) -> TableOrigin | None:
    """The origin of the table `things` after the statements, without its id."""
    database.execute(*statements)
    settings = PostgresSettings(database.dsn(user=user), "things", key)
    async with PostgresBackend(settings) as backend:
        return without_id((await backend.describe(timeout_s=PATIENCE_S)).origin)


def without_id(origin: TableOrigin | None) -> TableOrigin | None:
    """The origin without table id and database, which differ for each table."""
    assert origin is not None
    assert origin.table_id > 0
    assert origin.database is not None
    return replace(origin, table_id=0, database=None)


@pytest.mark.parametrize(
    "statements",
    [
        (PLAIN,),
        (PLAIN, "ALTER TABLE things ADD COLUMN n numeric(37, 2) NOT NULL DEFAULT 1"),
        (PLAIN, "CREATE TYPE mood AS ENUM ('happy')", "ALTER TABLE things ADD COLUMN m mood"),
        ("CREATE TABLE things (id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)",),
        ("CREATE TABLE things (id serial PRIMARY KEY, name text)",),
        ("CREATE TABLE things (id int4, name text, PRIMARY KEY (id) INCLUDE (name))",),
    ],
)
async def test_exact_tables_use_rows(database: Database, statements: tuple[str, ...]) -> None:
    """Rows of events are used if all types are exact and the key is the primary key."""
    assert await origin(database, *statements) == WITH_ROWS


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE things (id int4 NOT NULL UNIQUE, name text)",),
        ("CREATE TABLE things (id int4 PRIMARY KEY DEFERRABLE, name text)",),
        ("CREATE TABLE things (id int4, other int4, PRIMARY KEY (id, other))",),
        (PLAIN, "CREATE TABLE heirs () INHERITS (things)"),
        (PLAIN, "ALTER TABLE things ALTER name SET DEFAULT 'x'"),
        (PLAIN, "ALTER TABLE things ADD COLUMN g int4 GENERATED ALWAYS AS (id + 1) STORED"),
        (PLAIN, "CREATE DOMAIN small AS int4", "ALTER TABLE things ADD COLUMN d small"),
        (PLAIN, "ALTER TABLE things ADD COLUMN b bytea"),
        (PLAIN, "ALTER TABLE things ADD COLUMN n numeric(38, 1)"),
        (PLAIN, "ALTER TABLE things ADD COLUMN j jsonb"),
        (PLAIN, "ALTER TABLE things ADD CONSTRAINT c NOT NULL name NOT VALID"),
        (FLOATS, "ALTER DATABASE {database} SET extra_float_digits = 0"),
        (FLOATS, "ALTER ROLE postgres IN DATABASE {database} SET extra_float_digits = -1"),
        (BYTES, FULL_IDENTITY, "ALTER DATABASE {database} SET bytea_output = 'escape'"),
    ],
)
async def test_inexact_tables_use_keys(database: Database, statements: tuple[str, ...]) -> None:
    """Only keys are used if rows of events might differ from queried rows (E12)."""
    named = [statement.format(database=database.name) for statement in statements]

    found = await origin(database, *named)

    assert found is not None
    assert not found.reports_rows


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER DATABASE {database} SET extra_float_digits = 2",
        "ALTER DATABASE {database} SET bytea_output = 'hex'",
        "ALTER ROLE reader_of_{database} IN DATABASE {database} SET extra_float_digits = 0",
        "ALTER ROLE reader_of_{database} SET bytea_output = 'escape'",
        "ALTER ROLE postgres IN DATABASE postgres SET extra_float_digits = 0",
    ],
)
async def test_unrelated_settings_leave_rows(database: Database, statement: str) -> None:
    """A setting with an exact value, or of a role that cannot replicate, changes no schema."""
    before = await origin(database, FLOATS, "ALTER TABLE things ADD COLUMN b bytea", FULL_IDENTITY)
    create_reader(database, table="things")

    after = await origin(database, statement.format(database=database.name))

    database.execute("ALTER ROLE postgres IN DATABASE postgres RESET extra_float_digits")
    assert (after, after and after.reports_rows) == (before, True)


async def test_settings_without_their_type_leave_rows(database: Database) -> None:
    """A setting that changes no type of the table changes no schema."""
    statement = f"ALTER DATABASE {database.name} SET extra_float_digits = 0"

    assert await origin(database, PLAIN, statement) == WITH_ROWS


async def test_full_identity_is_known(database: Database) -> None:
    """With REPLICA IDENTITY FULL, more types are exact, since long values are sent again."""
    expected = TableOrigin("public", "things", reports_rows=True, has_full_identity=True)

    assert await origin(database, PLAIN, FULL_IDENTITY) == expected
    added = "ALTER TABLE things ADD COLUMN b bytea, ADD COLUMN n numeric(38, 1)"
    assert await origin(database, added) == expected


CODES = "CREATE TABLE things (id int4 PRIMARY KEY, code text NOT NULL UNIQUE)"
BY_CODE = "ALTER TABLE things REPLICA IDENTITY USING INDEX things_code_key"
ADDED = "ALTER TABLE things ADD added text NOT NULL DEFAULT 'a'"
PARTED = (
    "CREATE TABLE things (id int4 PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF things FOR VALUES FROM (0) TO (9)",
    "CREATE TABLE rest PARTITION OF things DEFAULT",
)


@pytest.mark.parametrize(
    ("statements", "key", "has_full_identity", "loses_keys"),
    [
        ((CODES,), "id", False, False),
        ((CODES,), "code", False, True),
        ((CODES, FULL_IDENTITY), "code", True, False),
        ((CODES, BY_CODE), "code", False, False),
        ((CODES, BY_CODE), "id", False, True),
        (("CREATE TABLE things (id int4 PRIMARY KEY DEFERRABLE)",), "id", False, True),
        ((*PARTED, FULL_IDENTITY), "id", False, False),
        (
            (*PARTED, *(f"ALTER TABLE {part} REPLICA IDENTITY FULL" for part in ("low", "rest"))),
            *("id", True, False),
        ),
        ((*PARTED, "ALTER TABLE low REPLICA IDENTITY NOTHING"), "id", False, True),
        ((CODES, FULL_IDENTITY, ADDED), "added", True, True),
        ((CODES, FULL_IDENTITY, ADDED), "code", True, False),
        ((CODES, FULL_IDENTITY, ADDED, "VACUUM FULL things"), "added", True, False),
    ],
)
async def test_former_keys_need_their_identity(
    database: Database,
    statements: tuple[str, ...],
    key: str,
    *,
    has_full_identity: bool,
    loses_keys: bool,
) -> None:
    """Events lose former keys unless the replica identity of each partition has their columns."""
    found = await origin(database, *statements, "ALTER TABLE things ADD name text", key=(key,))

    assert found is not None
    assert (found.has_full_identity, found.loses_keys) == (has_full_identity, loses_keys)


async def test_sql_ascii_uses_keys(postgres_server: PostgresServer) -> None:
    """In a database without an encoding, only keys are used."""
    database = postgres_server.new_database("ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")

    assert await origin(database, PLAIN) == TableOrigin("public", "things")


async def test_origin_needs_no_further_right(database: Database) -> None:
    """A role that may only read the table gets the same origin."""
    database.execute(PLAIN)
    create_reader(database, table="things")

    assert await origin(database, user=f"reader_of_{database.name}") == WITH_ROWS
