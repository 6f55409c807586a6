"""What a real catalog says decides whether rows in a changelog are relied upon."""

from dataclasses import replace

import pytest

from lookup_core.dimension_schema import TableOrigin
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from tools.processes.postgres_server import Database, PostgresServer

PLAIN = "CREATE TABLE things (id int4 PRIMARY KEY, other int4, name text)"
TOLD = TableOrigin("public", "things", reports_rows=True)
FULL_IDENTITY = "ALTER TABLE things REPLICA IDENTITY FULL"


async def origin(
    database: Database, *statements: str, key: tuple[str, ...] = ("id",), user: str = "postgres"
) -> TableOrigin | None:
    """What is known of the table `things` after the statements."""
    database.execute(*statements)
    settings = PostgresSettings(database.dsn(user=user), "things", key)
    async with PostgresBackend(settings) as backend:
        return nameable((await backend.describe(timeout_s=5.0)).origin)


def nameable(origin: TableOrigin | None) -> TableOrigin | None:
    """Without its number, which each table has another one of."""
    assert origin is not None
    assert origin.table_id > 0
    return replace(origin, table_id=0)


async def test_names_are_the_catalogs(database: Database) -> None:
    """However the table is written in the configuration, it is known as changelogs write it."""
    database.execute(
        'CREATE SCHEMA "My"', 'CREATE TABLE "My"."a.B" (id int4 PRIMARY KEY, name text)'
    )
    settings = PostgresSettings(database.dsn(), '"My"."a.B"', ("id",))

    async with PostgresBackend(settings) as backend:
        schema = await backend.describe(timeout_s=5.0)

    assert nameable(schema.origin) == TableOrigin("My", "a.B", reports_rows=True)


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
async def test_plain_tables_tell_rows(database: Database, statements: tuple[str, ...]) -> None:
    """Columns of exact types, and a primary key that is looked up by."""
    assert await origin(database, *statements) == TOLD


async def test_primary_key_within_the_key_reports_rows(database: Database) -> None:
    """A key that has the primary key in it has one row at most."""
    assert await origin(database, PLAIN, key=("other", "id")) == TOLD


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
        (PLAIN, "ALTER DATABASE {database} SET extra_float_digits = 0"),
        (PLAIN, "ALTER ROLE postgres IN DATABASE {database} SET bytea_output = 'escape'"),
    ],
)
async def test_doubtful_tables_tell_keys(database: Database, statements: tuple[str, ...]) -> None:
    """Whatever could make a told row another than a query's: keys are told only."""
    named = [statement.format(database=database.name) for statement in statements]

    assert await origin(database, *named) == TableOrigin("public", "things")


async def test_full_identity_is_known(database: Database) -> None:
    """With REPLICA IDENTITY FULL more types are told, as long values are sent again."""
    expected = TableOrigin("public", "things", reports_rows=True, has_full_identity=True)

    assert await origin(database, PLAIN, FULL_IDENTITY) == expected
    added = "ALTER TABLE things ADD COLUMN b bytea, ADD COLUMN n numeric(38, 1)"
    assert await origin(database, added) == expected


async def test_settings_of_other_databases_are_theirs(
    database: Database, postgres_server: PostgresServer
) -> None:
    """How another database writes its values is of no account."""
    other = postgres_server.new_database()
    other.execute(f"ALTER DATABASE {other.name} SET extra_float_digits = 0")

    assert await origin(database, PLAIN) == TOLD


async def test_bytes_of_any_encoding_are_not_told(postgres_server: PostgresServer) -> None:
    """Texts that need not be any are not relied upon."""
    database = postgres_server.new_database("ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")

    assert await origin(database, PLAIN) == TableOrigin("public", "things")


async def test_reader_needs_no_rights_for_it(database: Database) -> None:
    """A role that may only read the table learns the same."""
    grant = "GRANT SELECT ON things TO told_reader"
    role = "DO $$ BEGIN CREATE ROLE told_reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"

    assert await origin(database, PLAIN, role, grant, user="told_reader") == TOLD
