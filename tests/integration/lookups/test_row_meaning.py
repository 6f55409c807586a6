"""Rows that look different without a change of their table: the version of the table differs."""

import asyncpg
import pytest

from service.connectors.postgres.row_meaning import row_meaning
from tools.processes.postgres_server import Database

TABLE = (
    "CREATE TYPE mood AS ENUM ('happy', 'sad')",
    "CREATE DOMAIN price AS numeric(10, 2)",
    "CREATE TYPE inner_part AS (mood mood, size int)",
    "CREATE TYPE part AS (name varchar(5), inner_part inner_part)",
    "CREATE TYPE span AS RANGE (subtype = mood)",
    "CREATE FUNCTION label(int) RETURNS text IMMUTABLE LANGUAGE sql RETURN 'a'",
    "CREATE FUNCTION outer_label(int) RETURNS text IMMUTABLE LANGUAGE sql RETURN label($1)",
    (
        "CREATE TABLE t (id int PRIMARY KEY, mood mood, moods mood[], price price, part part,"
        " span span, at timestamp, name varchar(5), a text, b text, d text, amount numeric(10, 2),"
        " ab text GENERATED ALWAYS AS (a || b) VIRTUAL,"
        " kept text GENERATED ALWAYS AS (label(id)) STORED)"
    ),
    "CREATE VIEW below AS SELECT id, outer_label(id) AS called, name::text, a FROM t",
    "CREATE VIEW v AS SELECT * FROM below",
    "CREATE TABLE other (id int)",
    "CREATE ROLE {0}_reader",
)
OTHER_BODY = "CREATE OR REPLACE FUNCTION label(int) RETURNS text IMMUTABLE LANGUAGE sql RETURN 'b'"
CHANGES = [
    ("t", "ALTER TYPE mood RENAME VALUE 'happy' TO 'glad'"),
    ("t", "ALTER TYPE mood ADD VALUE 'calm'"),
    ("t", "ALTER TYPE part RENAME ATTRIBUTE name TO title"),
    ("t", "ALTER TYPE inner_part ADD ATTRIBUTE more int"),
    ("t", "SET timezone = 'UTC'; ALTER TABLE t ALTER at TYPE timestamptz"),
    ("t", "ALTER TABLE t ALTER amount TYPE numeric(12, 2)"),
    ("t", 'ALTER TABLE t ALTER d TYPE text COLLATE "C"'),
    ("t", "ALTER TABLE t RENAME a TO c; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME c TO b"),
    ("t", "ALTER TABLE t ADD more text DEFAULT 'x'"),
    ("t", "ALTER TABLE t ALTER a SET DEFAULT 'x'"),
    ("t", "ALTER TABLE t ENABLE ROW LEVEL SECURITY"),
    ("t", "ALTER TABLE t REPLICA IDENTITY FULL"),
    ("t", "ALTER TABLE t SET UNLOGGED"),
    ("t", "CREATE TABLE child () INHERITS (t)"),
    ("t", "ALTER TABLE t ALTER ab SET EXPRESSION AS (b || a)"),
    ("v", OTHER_BODY),
    (
        "v",
        "CREATE OR REPLACE VIEW below AS SELECT id, outer_label(id) AS called, b AS name, a FROM t",
    ),
    ("v", "CREATE POLICY p ON t USING (id > 1); ALTER TABLE t ENABLE ROW LEVEL SECURITY"),
]
HARMLESS = [
    "GRANT SELECT ON t TO {0}_reader",
    "GRANT SELECT (a) ON t TO {0}_reader",
    "GRANT EXECUTE ON FUNCTION label TO {0}_reader",
    "GRANT USAGE ON TYPE mood TO {0}_reader",
    "COMMENT ON TABLE t IS 'rows'",
    "ANALYZE t",
    "VACUUM t",
    "VACUUM FULL pg_catalog.pg_rewrite",
    "ALTER TABLE t ALTER a SET STATISTICS 10",
    "CREATE INDEX i ON t (a)",
    "ALTER ROLE {0}_reader SET extra_float_digits = 0",
    "ALTER DOMAIN price ADD CHECK (value > 0)",
    "UPDATE t SET a = 'x'",
    "CREATE TYPE unrelated AS ENUM ('happy')",
    "ALTER TABLE other ADD name text",
]


def created(database: Database) -> None:
    """Create the relations."""
    database.execute(*(statement.format(database.name) for statement in TABLE))


async def digest_of(database: Database, relation: str) -> str:
    """The digest of the relation."""
    ((table_id,),) = database.query(f"SELECT '{relation}'::regclass::oid::bigint")
    connection = await asyncpg.connect(database.dsn())
    try:
        return await row_meaning(lambda query, values: connection.fetch(query, *values), table_id)
    finally:
        await connection.close()


@pytest.mark.parametrize(("relation", "statement"), CHANGES)
async def test_other_meaning_is_another_version(
    database: Database, relation: str, statement: str
) -> None:
    """The version of a table covers all that changes its rows without a report."""
    created(database)
    before = await digest_of(database, relation)
    database.execute(*statement.split("; "))

    assert before != await digest_of(database, relation)


@pytest.mark.parametrize("relation", ["t", "v"])
async def test_harmless_statements_keep_the_version(database: Database, relation: str) -> None:
    """Privileges, comments, statistics and other objects leave the version as it is."""
    created(database)
    before = await digest_of(database, relation)
    changed = []
    # Stored values outlast their function.
    for statement in (*HARMLESS, *([OTHER_BODY] if relation == "t" else [])):
        database.execute(statement.format(database.name))
        if await digest_of(database, relation) != before:
            changed.append(statement)

    assert changed == []
