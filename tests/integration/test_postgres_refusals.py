"""Wrong DSNs and unsuitable tables of a real server: each is told by its own code and words."""

import asyncio
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from tests.integration.fault_proxy import FaultProxy
from tools.processes.postgres_server import Database, PostgresServer

PATIENCE_S = 10.0


async def refusal_of(
    dsn: str,
    table: str = "things",
    key: str = "id",
    *,
    is_followed: bool = False,
    has_triggers: bool = False,
) -> BackendError:
    """What describing the table fails with."""
    chosen = PostgresSettings(
        dsn, table, (key,), is_followed=is_followed, has_triggers=has_triggers
    )
    async with PostgresBackend(chosen) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=PATIENCE_S)
    return caught.value


async def test_wrong_password_is_refused(database: Database) -> None:
    """The password is named as the reason, and is not shown."""
    database.execute("DROP ROLE IF EXISTS locked", "CREATE ROLE locked LOGIN PASSWORD 'right'")

    refusal = await refusal_of(database.dsn(user="locked", password="wrong"))
    right = await refusal_of(database.dsn(user="locked", password="right"))

    assert refusal.code is ErrorCode.BACKEND_AUTH
    assert refusal.detail == "things: the server refused the password"
    assert right.code is ErrorCode.TABLE_UNAVAILABLE


async def test_unknown_role_is_refused(database: Database) -> None:
    """A role that does not exist is told apart from a wrong password."""
    refusal = await refusal_of(database.dsn(user="nobody"))

    assert refusal.code is ErrorCode.BACKEND_AUTH
    assert refusal.detail == "things: the server refused the role of the DSN"


async def test_missing_database_is_told(database: Database) -> None:
    """A database that does not exist is named as the reason."""
    refusal = await refusal_of(Database(database.socket_folder, "nowhere").dsn())

    assert refusal.code is ErrorCode.BACKEND_UNAVAILABLE
    assert refusal.detail == "things: the database of the DSN does not exist"


async def test_full_server_is_told(database: Database) -> None:
    """Too many connections is told apart from a server that is down."""
    database.execute("DROP ROLE IF EXISTS crowd", "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")

    refusal = await refusal_of(database.dsn(user="crowd"))

    assert refusal.code is ErrorCode.BACKEND_UNAVAILABLE
    assert refusal.detail == "things: the server has too many connections"


async def test_few_connections_serve_whom_they_can(database: Database) -> None:
    """Beyond what the server allows, fetches are told why; those that have a connection go on."""
    database.execute(
        "CREATE TABLE things (id int4 PRIMARY KEY, name text)",
        "DROP ROLE IF EXISTS crowd",
        "CREATE ROLE crowd LOGIN CONNECTION LIMIT 1",
        "GRANT SELECT ON things TO crowd",
    )
    settings = PostgresSettings(database.dsn(user="crowd"), "things", ("id",))
    async with PostgresBackend(settings) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        keys = pa.record_batch([pa.array([1], pa.int32())], schema=schema.key)
        fetches = [backend.fetch(keys, timeout_s=PATIENCE_S) for _ in range(4)]
        answers = await asyncio.gather(*fetches, return_exceptions=True)
    database.execute("DROP OWNED BY crowd", "DROP ROLE crowd")

    refusals = [str(each) for each in answers if isinstance(each, BackendError)]
    reason = "backend_unavailable: things: the server has too many connections"
    assert refusals == [reason] * len(refusals)
    assert 1 <= len(refusals) <= 3


async def test_missing_tls_is_told(database: Database, postgres_server: PostgresServer) -> None:
    """A DSN that demands TLS of a server that has none is told as that."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        dsn = proxy.dsn(database.name).replace("sslmode=disable", "sslmode=require")

        refusal = await refusal_of(dsn)

    assert refusal.code is ErrorCode.BACKEND_UNAVAILABLE
    server = f"127.0.0.1:{urlsplit(dsn).port}"
    assert (
        refusal.detail
        == f"things: the server does not offer TLS, or closed the connection ({server})"
    )


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ("thing", "; did you mean public.things?"),
        ("Things", "; did you mean public.things?"),
        ("public.thing", "; did you mean public.things?"),
        ("a.b.c.d", "is not the name of a table"),
        ("elsewhere.public.things", "is not the name of a table"),
        ("", "no such table"),
        ("things; DROP TABLE things", "no such table"),
        ("public." + "x" * 64, "no such table"),
    ],
)
async def test_missing_table_is_told(database: Database, table: str, hint: str) -> None:
    """A table that is not there is told with the nearest one; names are never run as SQL."""
    database.execute("CREATE TABLE things (id int4 PRIMARY KEY, name text)")
    database.execute(f"CREATE TABLE {'x' * 63} (id int4 PRIMARY KEY, name text)")
    wanted = '"Things"' if table == "Things" else table

    refusal = await refusal_of(database.dsn(), wanted)

    assert refusal.code is ErrorCode.TABLE_UNAVAILABLE
    assert hint in refusal.detail


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE VIEW things AS SELECT 1 AS id, 2 AS name", "is a view"),
        ("CREATE MATERIALIZED VIEW things AS SELECT 1 AS id, 2 AS name", "is a materialized view"),
        ("CREATE TABLE things (id int4 PRIMARY KEY, n int4) PARTITION BY HASH (id)", "partitioned"),
        ("CREATE TABLE things (id int4 PRIMARY KEY)", "no column other than the key"),
        (
            "CREATE TABLE things (ids int4 PRIMARY KEY, n int4)",
            "no column id; did you mean ids?",
        ),
        ("CREATE TABLE things (id char(3) PRIMARY KEY, n int4)", "char(n) ignores trailing blanks"),
        ("CREATE TABLE things (id float8 PRIMARY KEY, n int4)", "no exact equality"),
        ("CREATE TABLE things (id numeric PRIMARY KEY, n int4)", "without a precision"),
        ("CREATE TABLE things (id jsonb PRIMARY KEY, n int4)", "jsonb cannot be a key"),
        ("CREATE TABLE things (id int4[] PRIMARY KEY, n int4)", "_int4 cannot be a key"),
    ],
)
async def test_unsuitable_tables_are_refused(
    database: Database, statement: str, reason: str
) -> None:
    """A table that cannot be looked up safely is refused, and the reason says why."""
    database.execute(statement)

    refusal = await refusal_of(database.dsn())

    assert refusal.code is ErrorCode.TABLE_UNAVAILABLE
    assert reason in refusal.detail


async def test_hidden_rows_are_refused(database: Database) -> None:
    """A policy that hides rows from the role would make them `missing`."""
    database.execute(
        "CREATE TABLE things (id int4 PRIMARY KEY, name text)",
        "ALTER TABLE things ENABLE ROW LEVEL SECURITY",
        "DROP ROLE IF EXISTS viewer",
        "CREATE ROLE viewer LOGIN",
        "GRANT SELECT ON things TO viewer",
    )

    refusal = await refusal_of(database.dsn(user="viewer"))
    database.execute("DROP OWNED BY viewer", "DROP ROLE viewer")

    assert refusal.code is ErrorCode.TABLE_UNAVAILABLE
    assert "row-level security" in refusal.detail


async def test_unreadable_table_is_forbidden(database: Database) -> None:
    """A table without the privilege to read it names the first column that is missed."""
    database.execute(
        "CREATE TABLE things (id int4 PRIMARY KEY, name text)",
        "CREATE SCHEMA closed CREATE TABLE things (id int4 PRIMARY KEY, name text)",
        "DROP ROLE IF EXISTS stranger",
        "CREATE ROLE stranger LOGIN",
    )

    table = await refusal_of(database.dsn(user="stranger"))
    schema = await refusal_of(database.dsn(user="stranger"), "closed.things")
    database.execute("DROP ROLE stranger")

    assert table.code is ErrorCode.FORBIDDEN
    assert table.detail == "things: the role of the DSN may not read column id"
    assert schema.code is ErrorCode.FORBIDDEN


async def test_followed_table_may_have_no_heirs(database: Database) -> None:
    """A query brings their rows, whose changes are told under other names; unfollowed is fine."""
    database.execute(
        "CREATE TABLE things (id int4 PRIMARY KEY, name text)",
        'CREATE TABLE "Big" () INHERITS (things)',
    )

    refusal = await refusal_of(database.dsn(), is_followed=True)
    async with PostgresBackend(PostgresSettings(database.dsn(), "things", ("id",))) as backend:
        await backend.describe(timeout_s=PATIENCE_S)
    database.execute('DROP TABLE "Big"')  # it is remembered that there was one
    followed = PostgresSettings(database.dsn(), "things", ("id",), is_followed=True)
    async with PostgresBackend(followed) as backend:
        await backend.describe(timeout_s=PATIENCE_S)

    assert refusal.code is ErrorCode.TABLE_UNAVAILABLE
    expected = 'things: public."Big" inherits from it, and reports changes under its own name; '
    assert refusal.detail.startswith(expected)


async def test_temporary_heirs_do_not_count(database: Database) -> None:
    """What a session keeps for itself is in nobody else's queries."""
    database.execute("CREATE TABLE things (id int4 PRIMARY KEY, name text)")
    with psycopg.connect(database.dsn(), autocommit=True) as session:
        session.execute("CREATE TEMPORARY TABLE mine () INHERITS (things)")
        followed = PostgresSettings(database.dsn(), "things", ("id",), is_followed=True)

        async with PostgresBackend(followed) as backend:
            schema = await backend.describe(timeout_s=PATIENCE_S)

    assert [field.name for field in schema.columns] == ["name"]


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE every (id int4, name text)", "CREATE TABLE things () INHERITS (every)"),
        (
            "CREATE TABLE every (id int4, name text) PARTITION BY LIST (id)",
            "CREATE TABLE things PARTITION OF every DEFAULT",
        ),
    ],
)
async def test_heir_with_triggers_is_refused(
    database: Database, statements: tuple[str, ...]
) -> None:
    """A statement on the table that it inherits from changes its rows, and runs no trigger of it.

    A changelog tells them.
    """
    database.execute(
        *statements,
        "CREATE TABLE runs (what text)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql"
        " AS $$BEGIN INSERT INTO runs VALUES (TG_OP); RETURN NULL; END$$",
        "CREATE TRIGGER note AFTER UPDATE ON things FOR EACH STATEMENT EXECUTE FUNCTION note()",
        "INSERT INTO things VALUES (1, 'one')",
        "UPDATE every SET name = 'uno'",
    )

    refusal = await refusal_of(database.dsn(), is_followed=True, has_triggers=True)
    followed = PostgresSettings(database.dsn(), "things", ("id",), is_followed=True)
    async with PostgresBackend(followed) as backend:
        await backend.describe(timeout_s=PATIENCE_S)

    assert database.query("SELECT name, (SELECT count(*) FROM runs) FROM things") == [("uno", 0)]
    assert refusal.code is ErrorCode.TABLE_UNAVAILABLE
    assert "its parent table public.every" in refusal.detail
