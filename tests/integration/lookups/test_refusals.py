"""Unusable DSNs and tables: the error codes of a real server's refusals."""

import asyncio
from contextlib import closing

import psycopg
import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.json_keys import typed_keys_from_json
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.fault_proxy import FaultProxy
from tests.integration.lookups.tables import (
    PATIENCE_S,
    create_reader,
    described,
    refusal_of,
    serving,
)
from tools.processes.postgres_server import Database, PostgresServer

THINGS = "CREATE TABLE things (id int4 PRIMARY KEY, name text)"


def things(
    dsn: str, table: str = "things", *, is_followed: bool = False, has_triggers: bool = False
) -> PostgresSettings:
    """The table by its key `id`."""
    return PostgresSettings(dsn, table, ("id",), is_followed=is_followed, has_triggers=has_triggers)


@pytest.mark.parametrize(
    ("role", "password", "code", "reason"),
    [
        ("locked_{}", "wrong", ErrorCode.BACKEND_AUTH, "password"),
        ("locked_{}", "right", ErrorCode.TABLE_UNAVAILABLE, "no such table"),
        ("unknown_{}", "", ErrorCode.BACKEND_AUTH, "role"),
        ("full_{}", "", ErrorCode.BACKEND_UNAVAILABLE, "connections"),
    ],
)
async def test_refused_login_has_its_code(
    database: Database, role: str, password: str, code: ErrorCode, reason: str
) -> None:
    """Wrong passwords, unknown roles and connection limits have distinct reasons (D6)."""
    database.execute(
        f"CREATE ROLE locked_{database.name} LOGIN PASSWORD 'right'",
        f"CREATE ROLE full_{database.name} LOGIN CONNECTION LIMIT 0",
    )

    refusal = await refusal_of(
        things(database.dsn(user=role.format(database.name), password=password))
    )

    assert (refusal.code, reason in refusal.detail) == (code, True)
    assert "wrong" not in str(refusal)


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ("foo=bar", "the parameter 'foo'"),
        ("options=-c%20foo%3D1", "the parameter 'foo'"),
        ("timezone=Mars", "the parameter 'TimeZone'"),
        ("shared_buffers=1", "the parameter 'shared_buffers'"),
        ("log_statement=all", "the parameter 'log_statement'"),
        ("options=-c", "the parameter '-c'"),
    ],
)
async def test_refused_parameter_is_named(database: Database, parameter: str, name: str) -> None:
    """A parameter of the DSN that the server refuses is a fault of the DSN, not of the table."""
    database.execute(THINGS)
    dsn = create_reader(database, table="things")

    refusal = await refusal_of(things(f"{dsn}&{parameter}"))

    assert (refusal.code, refusal.is_permanent) == (ErrorCode.BACKEND_REJECTED, True)
    assert refusal.detail == (
        f"things: the server refuses {name} of the session; correct or remove it in the DSN"
    )


async def test_missing_tls_is_unavailable(
    database: Database, postgres_server: PostgresServer
) -> None:
    """A DSN that requires TLS is refused by a server without TLS (D6)."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        dsn = proxy.dsn(database.name).replace("sslmode=disable", "sslmode=require")
        refusal = await refusal_of(things(dsn))

    assert (refusal.code, "TLS" in refusal.detail) == (ErrorCode.BACKEND_UNAVAILABLE, True)


async def test_connection_limit_fails_the_excess_only(database: Database) -> None:
    """Fetches beyond the role's connection limit fail; the others are answered (D6)."""
    database.execute(THINGS)
    dsn = create_reader(database, table="things")
    database.execute(f"ALTER ROLE reader_of_{database.name} CONNECTION LIMIT 1")
    keys = pa.record_batch({"id": pa.array([1], pa.int32())})
    async with described(things(dsn)) as backend:
        fetches = [backend.fetch(keys, timeout_s=PATIENCE_S) for _ in range(4)]
        answers = await asyncio.gather(*fetches, return_exceptions=True)

    refusals = [each.code for each in answers if isinstance(each, BackendError)]
    assert refusals == [ErrorCode.BACKEND_UNAVAILABLE] * len(refusals)
    assert 1 <= len(refusals) <= 3


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ("thing", "public.things"),
        ('"Things"', "public.things"),
        ("public.thing", "public.things"),
        ("a.b.c.d", "is not the name of a table"),
        ("elsewhere.public.things", "is not the name of a table"),
        ("", "no such table"),
        ("things; DROP TABLE things", "no such table"),
        ("public." + "x" * 64, "no such table"),  # not shortened to the table of 63 letters
    ],
)
async def test_missing_table_is_unavailable(database: Database, table: str, hint: str) -> None:
    """An unknown table is refused with the nearest name; names are never run as SQL (C7)."""
    database.execute(THINGS, f"CREATE TABLE {'x' * 63} (id int4 PRIMARY KEY, name text)")

    refusal = await refusal_of(things(database.dsn(), table))

    assert (refusal.code, hint in refusal.detail) == (ErrorCode.TABLE_UNAVAILABLE, True)
    assert not refusal.is_permanent  # the table may come


@pytest.mark.parametrize(
    ("columns", "reason", "is_permanent"),
    [
        ("id int4 PRIMARY KEY", "no column other than the key", True),
        ("ids int4 PRIMARY KEY, n int4", "did you mean ids?", False),  # the column may come
        ("id float8 PRIMARY KEY, n int4", "float8", True),
        ("id numeric PRIMARY KEY, n int4", "numeric", True),
        ("id jsonb PRIMARY KEY, n int4", "jsonb", True),
        ("id int4[] PRIMARY KEY, n int4", "int4[] cannot be a key", True),
    ],
)
async def test_unsuitable_tables_are_refused(
    database: Database, columns: str, reason: str, *, is_permanent: bool
) -> None:
    """Tables that cannot be looked up safely are refused with the reason (C5, C6)."""
    database.execute(f"CREATE TABLE things ({columns})")

    refusal = await refusal_of(things(database.dsn()))

    assert (refusal.code, reason in refusal.detail) == (ErrorCode.TABLE_UNAVAILABLE, True)
    assert (refusal.is_permanent, refusal.is_retryable) == (is_permanent, not is_permanent)


@pytest.mark.parametrize(
    ("statement", "table", "code"),
    [
        ("ALTER TABLE things ENABLE ROW LEVEL SECURITY", "things", ErrorCode.TABLE_UNAVAILABLE),
        ("REVOKE ALL ON things FROM {}", "things", ErrorCode.FORBIDDEN),
        ("CREATE SCHEMA closed CREATE TABLE t (id int4, n int4)", "closed.t", ErrorCode.FORBIDDEN),
    ],
)
async def test_unreadable_rows_are_refused(
    database: Database, statement: str, table: str, code: ErrorCode
) -> None:
    """A table whose rows the role may not read, or only in part, is refused (C5)."""
    database.execute(THINGS)
    dsn = create_reader(database, table="things")
    database.execute(statement.format(f"reader_of_{database.name}"))

    assert (await refusal_of(things(dsn, table))).code is code


async def test_followed_table_may_have_no_heirs(database: Database) -> None:
    """A followed table that others inherit from is refused, temporary heirs excepted."""
    database.execute(THINGS, 'CREATE TABLE "Big" () INHERITS (things)')
    followed = things(database.dsn(), is_followed=True)

    refusal = await refusal_of(followed)
    async with described(things(database.dsn())):
        pass
    database.execute('DROP TABLE "Big"')  # the catalog still marks the table as a parent
    with closing(psycopg.connect(database.dsn(), autocommit=True)) as session:
        session.execute("CREATE TEMPORARY TABLE mine () INHERITS (things)")
        async with described(followed):
            pass

    assert (refusal.code, 'public."Big"' in refusal.detail) == (ErrorCode.TABLE_UNAVAILABLE, True)


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
    """A child table is refused with triggers, since statements on its parent do not run them."""
    database.execute(
        *statements,
        "CREATE TABLE runs (what text)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql"
        " AS $$BEGIN INSERT INTO runs VALUES (TG_OP); RETURN NULL; END$$",
        "CREATE TRIGGER note AFTER UPDATE ON things FOR EACH STATEMENT EXECUTE FUNCTION note()",
        "INSERT INTO things VALUES (1, 'one')",
        "UPDATE every SET name = 'uno'",
    )

    refusal = await refusal_of(things(database.dsn(), is_followed=True, has_triggers=True))
    async with described(things(database.dsn(), is_followed=True)):  # by a changelog
        pass

    assert database.query("SELECT name, (SELECT count(*) FROM runs) FROM things") == [("uno", 0)]
    assert (refusal.code, "public.every" in refusal.detail) == (ErrorCode.TABLE_UNAVAILABLE, True)


VIRTUAL = "id text GENERATED ALWAYS AS (attrs ->> 'id')"  # in PostgreSQL 18


@pytest.mark.parametrize(
    ("column", "has_triggers", "reason"),
    [
        (VIRTUAL, True, "is a virtual generated column"),
        (VIRTUAL, False, "is a virtual generated column"),
        (f"{VIRTUAL} STORED", True, None),
        ("id mood", True, "whose cast to json changes the keys"),
        ("id mood", False, None),
    ],
)
async def test_unreported_keys_are_refused(
    database: Database, column: str, *, has_triggers: bool, reason: str | None
) -> None:
    """A key whose values the feed leaves out or changes is refused with the remedy."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('glad')",
        "CREATE FUNCTION loud(mood) RETURNS json IMMUTABLE RETURN to_json(upper(concat($1)))",
        "CREATE CAST (mood AS json) WITH FUNCTION loud(mood)",
        f"CREATE TABLE things ({column}, attrs jsonb, name text)",
    )
    plain = things(database.dsn())
    followed = things(database.dsn(), is_followed=True, has_triggers=has_triggers)
    async with described(plain):
        pass
    if reason is None:
        async with described(followed):
            return
    refusal = await refusal_of(followed)

    assert (refusal.code, reason in refusal.detail) == (ErrorCode.TABLE_UNAVAILABLE, True)


@pytest.mark.parametrize(
    ("encoding", "unreadable", "key_fault"),
    [("SQL_ASCII", 255, None), ("WIN1252", 129, ErrorCode.KEY_REJECTED)],
)
async def test_invalid_text_of_a_row_is_no_key_fault(
    postgres_server: PostgresServer,
    encoding: str,
    unreadable: int,
    key_fault: ErrorCode | None,
) -> None:
    """A text of a row that is not readable fails its key as `value_rejected`, and no other key."""
    database = postgres_server.new_database(f"ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    database.execute(
        "CREATE TABLE words (id text PRIMARY KEY, name text)",
        f"INSERT INTO words VALUES ('a', 'one'), ('b', chr({unreadable})), ('c', 'three')",
    )
    settings = PostgresSettings(database.dsn(), "words", ("id",))
    keys = ["a", "b", "c", "漢"]

    errors: dict[int, ErrorCode] = {}
    names: dict[int, str] = {}
    async with serving(PostgresBackend(settings)) as dimension:
        for _ in range(2):  # the second time from the quarantine
            typed = typed_keys_from_json(keys, dimension.schema.known())
            for answer in await dimension.lookup(typed, columns=["name"], timeout_s=PATIENCE_S):
                errors |= answer.errors
                if answer.rows is not None:
                    found = answer.rows.column(0).to_pylist()
                    names |= dict(zip(answer.positions.tolist(), found, strict=True))

    assert names == {0: "one", 2: "three"}
    assert errors == {1: ErrorCode.VALUE_REJECTED} | ({3: key_fault} if key_fault else {})
