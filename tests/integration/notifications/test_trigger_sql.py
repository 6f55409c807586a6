"""Triggers of the generated script: the messages of each kind of change."""

import json
import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.notifications.trigger_messages import (
    TriggerMessages,
    listening,
    make_triggers,
)
from tools.processes.postgres_server import Database

INSERTED = "INSERT INTO t SELECT number, 'old' FROM generate_series(1, 3) AS number"
MERGE = """MERGE INTO t USING (VALUES (1), (2), (7)) AS s(id) ON t.id = s.id
    WHEN MATCHED AND t.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'new'
    WHEN NOT MATCHED THEN INSERT VALUES (s.id)"""
STATEMENTS = [  # a statement, and the keys in its messages
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
    ("COPY t FROM PROGRAM 'printf \"11\\\\tnew\\\\n12\\\\tnew\\\\n\"'", [[11], [12]]),
]


ALL = {"v": 1, "all": True}


@pytest.fixture
def messages(database: Database) -> Iterator[TriggerMessages]:
    """Messages of a table `t` of three rows."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)", INSERTED)
    make_triggers(database, "t", ["id"])
    with listening(database) as messages:
        yield messages


@pytest.mark.parametrize(("statement", "keys"), STATEMENTS)
def test_messages_have_the_changed_keys(
    database: Database, messages: TriggerMessages, statement: str, keys: list[list[int]]
) -> None:
    """Each statement sends the former and new keys of its changed rows, and no others."""
    database.execute(statement)

    assert messages.keys() == keys


def test_message_names_its_transaction(database: Database, messages: TriggerMessages) -> None:
    """A message has its version, the id of the outermost transaction, and the keys."""
    with psycopg.connect(database.dsn()) as session:
        with session.transaction(), session.transaction():  # a subtransaction
            session.execute("DELETE FROM t WHERE id = 1")
            row = session.execute("SELECT pg_current_xact_id()::text").fetchone()
        session.commit()

    assert row is not None
    assert [json.loads(each) for each in messages.payloads()] == [{"v": 1, "x": row[0], "k": [[1]]}]


@pytest.mark.parametrize(
    "statement",
    ["TRUNCATE t", "INSERT INTO t SELECT n FROM generate_series(100001, 200000) AS n"],
)
def test_large_change_concerns_all(
    database: Database, messages: TriggerMessages, statement: str
) -> None:
    """TRUNCATE and statements on very many rows send one message for the whole table."""
    database.execute(statement)

    assert messages.without_transactions() == [ALL]


def test_many_keys_come_in_pieces(database: Database, messages: TriggerMessages) -> None:
    """Ten thousand keys are sent in few payloads below PostgreSQL's limit of 8,000 bytes."""
    database.execute("INSERT INTO t SELECT n FROM generate_series(100001, 110000) AS n")

    payloads = messages.payloads()
    keys = sorted(key for payload in payloads for key in json.loads(payload)["k"])
    assert keys == [[number] for number in range(100_001, 110_001)]
    assert max(len(payload) for payload in payloads) < 8_000
    assert len(payloads) < 20


def test_rolled_back_change_is_not_sent(database: Database, messages: TriggerMessages) -> None:
    """Changes of a transaction or subtransaction that is rolled back send nothing."""
    with psycopg.connect(database.dsn()) as session:
        with session.transaction():
            with session.transaction(force_rollback=True):
                session.execute("DELETE FROM t WHERE id = 1")
            session.execute("DELETE FROM t WHERE id = 2")
        session.execute("DELETE FROM t")
        session.rollback()

    assert messages.keys() == [[2]]


def test_received_change_is_visible(database: Database, messages: TriggerMessages) -> None:
    """A query after the receipt of a message sees its change (H1)."""
    with psycopg.connect(database.dsn()) as writer:
        for number in range(200):
            writer.execute("UPDATE t SET note = %s WHERE id = 1", [str(number)])
            committing = threading.Thread(target=writer.commit)
            committing.start()
            next(messages.session.notifies(stop_after=1))
            rows = messages.session.execute("SELECT note FROM t WHERE id = 1").fetchall()
            committing.join()
            assert rows == [(str(number),)]


def test_composite_keys_have_their_order(database: Database) -> None:
    """Key columns are in the order of the configuration; a key with a NULL is not sent."""
    database.execute('CREATE TABLE t (head text, "key" int, note text)')
    make_triggers(database, "t", ["key", "head"])

    with listening(database) as messages:
        database.execute("INSERT INTO t VALUES ('a', 1), ('a,b', 2), (NULL, 3), ('a', 1)")
        keys = messages.keys()

    assert keys == [[1, "a"], [2, "a,b"]]


def test_long_keys_come_or_concern_all(database: Database) -> None:
    """Keys of thousands of bytes come in several messages; longer ones concern the table."""
    database.execute("CREATE TABLE t (k text)")
    make_triggers(database, "t", ["k"])
    fitting = sorted([f"{letter}{'ü' * 1400}"] for letter in "abcdefghij")

    with listening(database) as messages:
        database.insert("t", fitting)
        database.execute("UPDATE t SET k = k")
        keys = messages.keys()
        database.insert("t", [["x" * 3_000]])
        others = messages.without_transactions()

    assert (keys, others) == (sorted(fitting * 2), [ALL])


def test_names_may_be_anything(database: Database) -> None:
    """Names may be in mixed case, and contain quotes, dots and blanks (C7)."""
    database.execute(
        'CREATE SCHEMA "My ""Schema"""',
        'CREATE TABLE "My ""Schema"""."Big.Table" ("The ""Key""" int, "new_rows" int)',
    )
    make_triggers(database, '"My ""Schema"""."Big.Table"', ['The "Key"', "new_rows"])

    with listening(database) as messages:
        database.execute('INSERT INTO "My ""Schema"""."Big.Table" VALUES (1, 2)')
        keys = messages.keys()

    assert keys == [[1, 2]]


def test_script_can_be_repeated(database: Database, messages: TriggerMessages) -> None:
    """A second run of the script changes nothing: each change is sent once."""
    make_triggers(database, "t", ["id"])
    make_triggers(database, "public.t", ["id"])

    database.execute("DELETE FROM t WHERE id = 1")

    assert messages.keys() == [[1]]
    assert database.query("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass") == [(4,)]


def test_script_can_be_reverted(database: Database, messages: TriggerMessages) -> None:
    """Dropping the function, as the script's comment says, removes the triggers."""
    query = "SELECT 'DROP FUNCTION ' || tgfoid::regprocedure || ' CASCADE' FROM pg_trigger LIMIT 1"
    database.execute(str(database.query(query)[0][0]), "DELETE FROM t")

    assert messages.payloads() == []
    assert database.query("SELECT tgname FROM pg_trigger") == []


def test_writer_needs_no_further_right(database: Database, messages: TriggerMessages) -> None:
    """A role that may only write the table writes it, and its changes are sent."""
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

    assert messages.keys() == [[21]]


@pytest.mark.parametrize(
    "settings",
    [
        (
            "CREATE SCHEMA evil",
            "CREATE FUNCTION evil.jsonb_build_array(jsonb) RETURNS text RETURN 'evil'",
            "SET search_path = evil, pg_catalog, public",
            "CREATE TEMP TABLE new_rows AS SELECT 99 AS id",
        ),
        ("SET session_replication_role = replica",),
    ],
    ids=["search_path", "replica"],
)
def test_writer_cannot_evade_the_triggers(
    database: Database, messages: TriggerMessages, settings: tuple[str, ...]
) -> None:
    """A writer's search path and replication role do not affect the messages."""
    with psycopg.connect(database.dsn()) as writer:
        for statement in settings:
            writer.execute(statement.encode())
        writer.execute("DELETE FROM t WHERE id = 1")

    assert messages.keys() == [[1]]


def test_renamed_key_fails_no_writer(database: Database, messages: TriggerMessages) -> None:
    """After the key column is renamed, writes succeed and concern the whole table."""
    with psycopg.connect(database.dsn(), autocommit=True) as writer:
        writer.execute("DELETE FROM t WHERE id = 1")  # this session keeps the plan
        writer.execute("ALTER TABLE t RENAME COLUMN id TO number")
        writer.execute("DELETE FROM t WHERE number = 2")

    assert messages.without_transactions() == [{"v": 1, "k": [[1]]}, ALL]


def test_cascades_are_sent(database: Database) -> None:
    """Rows that a foreign key updates or deletes are sent."""
    database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE t (id int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO t VALUES (1), (2)",
    )
    make_triggers(database, "t", ["id"])

    with listening(database) as messages:
        database.execute("DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 3")
        keys = messages.keys()

    assert keys == [[1], [2], [3]]
