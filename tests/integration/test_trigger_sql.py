"""The triggers in a real server: whatever changes rows is told, with its keys, or as a whole."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.integration.trigger_messages import TriggerMessages, listening, make_triggers
from tools.processes.postgres_server import Database

INSERTED = "INSERT INTO t SELECT number, 'old' FROM generate_series(1, 3) AS number"
MERGE = """MERGE INTO t USING (VALUES (1), (2), (7)) AS s(id) ON t.id = s.id
    WHEN MATCHED AND t.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'new'
    WHEN NOT MATCHED THEN INSERT VALUES (s.id)"""
STATEMENTS = [
    ("INSERT INTO t VALUES (4, 'new'), (5, 'new')", [[4], [5]]),
    ("UPDATE t SET note = 'new' WHERE id < 3", [[1], [2]]),
    ("UPDATE t SET id = 9 WHERE id = 1", [[1], [9]]),
    ("DELETE FROM t WHERE id > 1", [[2], [3]]),
    ("INSERT INTO t VALUES (1), (6) ON CONFLICT (id) DO UPDATE SET note = 'new'", [[1], [6]]),
    ("INSERT INTO t VALUES (1), (6) ON CONFLICT DO NOTHING", [[6]]),
    (MERGE, [[1], [2], [7]]),
    ("WITH gone AS (DELETE FROM t WHERE id = 1) UPDATE t SET note = '' WHERE id = 2", [[1], [2]]),
    ("UPDATE t SET note = 'new' WHERE id = 99", []),
    ("SELECT * FROM t FOR UPDATE", []),
]
SQL_KEYS = [  # a type, a value of it, and how it is told
    ("int8", "9223372036854775807", 9223372036854775807),
    ("bool", "true", True),
    ("numeric(38, 2)", "123456789012345678901234567890.10", "123456789012345678901234567890.10"),
    ("text", r"""E'it''s "\\" \n ü €'""", 'it\'s "\\" \n ü €'),
    ("uuid", "'{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("bytea", r"E'\\x00ff'", "\\x00ff"),
    ("date", "'2026-02-28'", "2026-02-28"),
    ("timestamp", "'2026-02-28 12:00:00.5'", "2026-02-28T12:00:00.5"),
    ("timestamptz", "'2026-02-28 12:00:00+02'", "2026-02-28T10:00:00+00:00"),
]


@pytest.fixture
def told(database: Database) -> Iterator[TriggerMessages]:
    """The messages of a table `t` of three rows, since they are there."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)", INSERTED)
    make_triggers(database, "t", ["id"])
    with listening(database) as messages:
        yield messages


@pytest.mark.parametrize(("statement", "keys"), STATEMENTS)
def test_changed_keys_are_told(
    database: Database, told: TriggerMessages, statement: str, keys: list[list[int]]
) -> None:
    """Each kind of statement tells the keys of its rows, old and new, and no others."""
    database.execute(statement)

    assert told.keys() == keys


def test_copy_is_told(database: Database, told: TriggerMessages) -> None:
    """Rows that come by COPY are told as inserted ones are."""
    with (
        psycopg.connect(database.dsn()) as session,
        session.cursor().copy("COPY t FROM STDIN") as copy,
    ):
        copy.write("11\tnew\n12\tnew\n")

    assert told.keys() == [[11], [12]]


def test_message_names_its_transaction(database: Database, told: TriggerMessages) -> None:
    """A message has the version, the id of the whole transaction, and the keys."""
    with psycopg.connect(database.dsn()) as session:
        with session.transaction(), session.transaction():  # one within the other
            session.execute("DELETE FROM t WHERE id = 1")
            row = session.execute("SELECT pg_current_xact_id()::text").fetchone()
        session.commit()

    assert row is not None
    assert [json.loads(each) for each in told.payloads()] == [{"v": 1, "x": row[0], "k": [[1]]}]


def test_truncation_concerns_all(database: Database, told: TriggerMessages) -> None:
    """TRUNCATE tells that any row may have changed."""
    database.execute("TRUNCATE t")

    assert _without_ids(told) == [{"v": 1, "all": True}]


def test_large_statement_concerns_all(database: Database, told: TriggerMessages) -> None:
    """A hundred thousand rows in one statement are one message, not all their keys."""
    database.execute("INSERT INTO t SELECT n FROM generate_series(100001, 200000) AS n")

    assert _without_ids(told) == [{"v": 1, "all": True}]


def test_many_keys_come_in_pieces(database: Database, told: TriggerMessages) -> None:
    """As many keys as are told one by one come in payloads that PostgreSQL takes, none is lost."""
    database.execute("INSERT INTO t SELECT n FROM generate_series(100001, 110000) AS n")

    payloads = told.payloads()
    keys = sorted(key for payload in payloads for key in json.loads(payload)["k"])
    assert keys == [[number] for number in range(100_001, 110_001)]
    assert max(len(payload) for payload in payloads) < 8_000
    assert len(payloads) < 20


def test_rolled_back_change_is_not_told(database: Database, told: TriggerMessages) -> None:
    """What was never committed, in a transaction or in a part of one, tells nothing."""
    with psycopg.connect(database.dsn()) as session:
        with session.transaction():
            with session.transaction(force_rollback=True):
                session.execute("DELETE FROM t WHERE id = 1")
            session.execute("DELETE FROM t WHERE id = 2")
        session.execute("DELETE FROM t")
        session.rollback()

    assert told.keys() == [[2]]


def test_told_change_is_visible(database: Database, told: TriggerMessages) -> None:
    """Whoever hears of a change and then reads sees it: messages come after their commit."""
    with psycopg.connect(database.dsn()) as writer:
        for number in range(200):
            writer.execute("UPDATE t SET note = %s WHERE id = 1", [str(number)])
            committing = threading.Thread(target=writer.commit)
            committing.start()
            next(told.session.notifies(stop_after=1))
            rows = told.session.execute("SELECT note FROM t WHERE id = 1").fetchall()
            committing.join()
            assert rows == [(str(number),)]


@pytest.mark.parametrize(("sql_type", "value", "told_value"), SQL_KEYS)
def test_keys_are_told_exactly(
    database: Database, sql_type: str, value: str, told_value: object
) -> None:
    """Values of all key types keep all they have, whatever the writer's session is set to."""
    database.execute(f"CREATE TABLE t (k {sql_type})")
    make_triggers(database, "t", ["k"])

    with listening(database) as told, psycopg.connect(database.dsn()) as writer:
        writer.execute("SET bytea_output = 'escape'; SET timezone = 'Asia/Tokyo'")
        writer.execute("SET datestyle = 'German'; SET standard_conforming_strings = off")
        writer.execute(f"INSERT INTO t VALUES ({value})".encode())
        writer.commit()
        payload = told.payloads()[0]

    assert json.loads(payload)["k"] == [[told_value]]


def test_composite_keys_are_told_whole(database: Database) -> None:
    """Each key has all its columns in the configuration's order; with a NULL it is no key."""
    database.execute('CREATE TABLE t (head text, "key" int, note text)')
    make_triggers(database, "t", ["key", "head"])

    with listening(database) as told:
        database.execute("INSERT INTO t VALUES ('a', 1), ('a,b', 2), (NULL, 3), ('a', 1)")
        keys = told.keys()

    assert keys == [[1, "a"], [2, "a,b"]]


def test_long_keys_come_or_concern_all(database: Database) -> None:
    """Keys of thousands of bytes come in several messages; longer ones concern the whole table."""
    database.execute("CREATE TABLE t (k text)")
    make_triggers(database, "t", ["k"])
    fitting = sorted([f"{letter}{'ü' * 1400}"] for letter in "abcdefghij")

    with listening(database) as told:
        database.insert("t", fitting)
        database.execute("UPDATE t SET k = k")
        told_keys = told.keys()
        database.insert("t", [["x" * 3_000]])
        messages = _without_ids(told)

    assert told_keys == sorted(fitting * 2)
    assert messages == [{"v": 1, "all": True}]


def test_strange_names_are_told(database: Database) -> None:
    """Names in mixed case, with quotes and with blanks work as any other."""
    database.execute(
        'CREATE SCHEMA "My ""Schema"""',
        'CREATE TABLE "My ""Schema"""."Big.Table" ("The ""Key""" int, "new_rows" int)',
    )
    make_triggers(database, '"My ""Schema"""."Big.Table"', ['The "Key"', "new_rows"])

    with listening(database) as told:
        database.execute('INSERT INTO "My ""Schema"""."Big.Table" VALUES (1, 2)')
        keys = told.keys()

    assert keys == [[1, 2]]


def test_script_can_run_again(database: Database, told: TriggerMessages) -> None:
    """A second run changes nothing: each change is told once."""
    make_triggers(database, "t", ["id"])
    make_triggers(database, "public.t", ["id"])

    database.execute("DELETE FROM t WHERE id = 1")

    assert told.keys() == [[1]]
    assert database.query("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass") == [(4,)]


def test_script_can_be_taken_back(database: Database, told: TriggerMessages) -> None:
    """The statement in its comment removes function and triggers, and nothing is told any more."""
    query = "SELECT 'DROP FUNCTION ' || tgfoid::regprocedure || ' CASCADE' FROM pg_trigger LIMIT 1"
    database.execute(str(database.query(query)[0][0]))

    database.execute("DELETE FROM t")

    assert told.payloads() == []
    assert database.query("SELECT tgname FROM pg_trigger") == []


def test_writer_needs_no_further_right(database: Database, told: TriggerMessages) -> None:
    """A role that may write the table and nothing else writes as before, and is told of."""
    role = f"writer_of_{database.name}"
    database.execute(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT INSERT ON t TO {role}",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC",
    )

    with psycopg.connect(database.dsn(user=role)) as writer:
        writer.execute("INSERT INTO t VALUES (21)")

    assert told.keys() == [[21]]


def test_writers_search_path_is_harmless(database: Database, told: TriggerMessages) -> None:
    """Functions and operators of the same names elsewhere are not taken for PostgreSQL's own."""
    fake = "CREATE FUNCTION evil.{} RETURNS text LANGUAGE sql AS $$ SELECT 'evil' $$"
    database.execute(
        "CREATE SCHEMA evil",
        fake.format("jsonb_build_array(jsonb)"),
    )

    with psycopg.connect(database.dsn()) as writer:
        writer.execute("SET search_path = evil, pg_catalog, public")
        writer.execute("CREATE TEMP TABLE new_rows AS SELECT 99 AS id")
        writer.execute("INSERT INTO t VALUES (31)")

    assert told.keys() == [[31]]


def test_renamed_key_fails_no_writer(database: Database, told: TriggerMessages) -> None:
    """When the key column is renamed, rows are written all the same, and all are suspect."""
    with psycopg.connect(database.dsn(), autocommit=True) as writer:
        writer.execute("DELETE FROM t WHERE id = 1")  # its plan is kept by this session
        writer.execute("ALTER TABLE t RENAME COLUMN id TO number")
        writer.execute("DELETE FROM t WHERE number = 2")

    keys, whole = _without_ids(told)
    assert (keys, whole) == ({"v": 1, "k": [[1]]}, {"v": 1, "all": True})


def test_replica_sessions_are_told_of(database: Database, told: TriggerMessages) -> None:
    """A session that loads as a replica, without foreign keys' checks, is no blind spot."""
    with psycopg.connect(database.dsn()) as writer:
        writer.execute("SET session_replication_role = replica")
        writer.execute("DELETE FROM t WHERE id = 1")

    assert told.keys() == [[1]]


def test_cascades_are_told(database: Database) -> None:
    """Rows that a foreign key changes or deletes are told as any others."""
    database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE t (id int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO t VALUES (1), (2)",
    )
    make_triggers(database, "t", ["id"])

    with listening(database) as told:
        database.execute("DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 3")
        keys = told.keys()

    assert keys == [[1], [2], [3]]


def _without_ids(told: TriggerMessages) -> list[dict[str, Any]]:
    messages = [json.loads(payload) for payload in told.payloads()]
    return [{name: value for name, value in each.items() if name != "x"} for each in messages]
