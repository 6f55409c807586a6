"""Rows that look different without a change of their table: the version of the table differs."""

import asyncpg
import pytest

from service.connectors.postgres.catalog import row_meaning
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
    "CREATE TABLE address (street text, zip int)",
    "CREATE TABLE homes (id int PRIMARY KEY, home address)",
    "CREATE VIEW documents AS SELECT id, to_jsonb(homes) AS document FROM homes",
    "CREATE TYPE levels AS RANGE (subtype = mood, multirange_type_name = several_levels)",
    "CREATE TABLE areas (id int PRIMARY KEY, levels several_levels)",
    "CREATE AGGREGATE total(int) (sfunc = int4pl, stype = int, initcond = '0')",
    "CREATE TEXT SEARCH DICTIONARY stems (TEMPLATE = snowball, language = english)",
    "CREATE TEXT SEARCH CONFIGURATION words (COPY = pg_catalog.english)",
    "ALTER TEXT SEARCH CONFIGURATION words ALTER MAPPING REPLACE english_stem WITH stems",
    (
        "CREATE VIEW computed AS SELECT id, total(id) AS total, to_tsvector('words', a) AS words,"
        " to_json(mood) AS mood FROM t GROUP BY id"
    ),
    "CREATE FUNCTION mood_json(mood) RETURNS json IMMUTABLE LANGUAGE sql RETURN '1'::json",
    "CREATE FUNCTION part_text(part) RETURNS text IMMUTABLE LANGUAGE sql RETURN 'part'",
    "CREATE FOREIGN DATA WRAPPER far",
    "CREATE SERVER far FOREIGN DATA WRAPPER far OPTIONS (host 'one')",
    (
        "CREATE FOREIGN TABLE distant (id int, a text OPTIONS (column_name 'a')) SERVER far"
        " OPTIONS (table_name 'one')"
    ),
    "CREATE TABLE other (id int)",
    "CREATE ROLE {0}_reader",
)
OTHER_BODY = "CREATE OR REPLACE FUNCTION label(int) RETURNS text IMMUTABLE LANGUAGE sql RETURN 'b'"
OTHER_OPERATOR = (
    "CREATE OR REPLACE FUNCTION alike(int, int) RETURNS bool IMMUTABLE LANGUAGE sql RETURN $1 > $2"
)
CHANGES = [
    ("t", "ALTER TYPE mood RENAME VALUE 'happy' TO 'glad'"),
    ("t", "ALTER TYPE mood ADD VALUE 'calm'"),
    ("t", "CREATE CAST (part AS text) WITH FUNCTION part_text(part)"),
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
    ("v", "ALTER VIEW below SET (security_invoker = true)"),
    ("homes", "ALTER TABLE address RENAME street TO road"),
    ("homes", "ALTER TABLE address ADD more int"),
    ("homes", "ALTER TABLE address DROP zip"),
    ("documents", "ALTER TABLE homes ADD more int DEFAULT 1"),
    ("documents", "ALTER TABLE homes RENAME home TO place"),
    ("areas", "ALTER TYPE mood RENAME VALUE 'happy' TO 'glad'"),
    (
        "computed",
        "CREATE OR REPLACE AGGREGATE total(int) (sfunc = int4pl, stype = int, initcond = '9')",
    ),
    ("computed", "ALTER TEXT SEARCH DICTIONARY stems (language = german)"),
    (
        "computed",
        "ALTER TEXT SEARCH CONFIGURATION words ALTER MAPPING REPLACE stems WITH simple",
    ),
    ("computed", "CREATE CAST (mood AS json) WITH FUNCTION mood_json(mood)"),
    ("distant", "ALTER FOREIGN TABLE distant OPTIONS (SET table_name 'two')"),
    ("distant", "ALTER FOREIGN TABLE distant ALTER a OPTIONS (SET column_name 'b')"),
    ("distant", "ALTER SERVER far OPTIONS (SET host 'two')"),
    ("distant", "ALTER FOREIGN DATA WRAPPER far OPTIONS (nls_lang 'GERMAN_GERMANY.UTF8')"),
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


async def digest_of(
    database: Database, relation: str, *, role: str = "postgres", where: str = ""
) -> str:
    """The digest of the relation for this role, with this filter."""
    ((table_id,),) = database.query(f"SELECT '{relation}'::regclass::oid::bigint")
    connection = await asyncpg.connect(database.dsn())
    try:
        await connection.execute(f"SET row_security = off; SET ROLE {role}")
        return await row_meaning(
            lambda query, values: connection.fetch(query, *values),
            table_id,
            where=where,
        )
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


@pytest.mark.parametrize(
    ("where", "statement"),
    [
        ("Label(id) = 'a'", OTHER_BODY),
        ("outer_label(id) = 'a'", OTHER_BODY),
        (
            "id === 1",
            OTHER_OPERATOR,
        ),
        ("'sad'::mood > 'happy'", "ALTER TYPE mood RENAME VALUE 'happy' TO 'glad'"),
    ],
)
async def test_other_filter_is_another_version(
    database: Database, where: str, statement: str
) -> None:
    """The version covers the functions, operators and types that a filter names, and no others."""
    created(database)
    database.execute(
        "CREATE FUNCTION alike(int, int) RETURNS bool IMMUTABLE LANGUAGE sql RETURN $1 = $2",
        "CREATE OPERATOR === (leftarg = int, rightarg = int, function = alike)",
    )
    digests = []
    for change in ("SELECT", statement):
        database.execute(change)
        digests.append(
            [await digest_of(database, "other", where=each) for each in (where, "id IN (1, 2)")]
        )

    (before, other), (after, same) = digests
    assert before != after
    assert other == same


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


@pytest.mark.parametrize(
    ("relation", "loser"),
    [("hidden", "reader"), ("invoked", "reader"), ("defined", "owner"), ("parts", "reader")],
)
async def test_revoked_bypass_is_another_version(
    database: Database, relation: str, loser: str
) -> None:
    """A role that loses BYPASSRLS sees other rows: the reader, or the owner of a view."""
    roles = {each: f"{each}_{database.name}" for each in ("reader", "owner")}
    everyone = ", ".join(roles.values())
    database.execute(
        *(f"CREATE ROLE {role} BYPASSRLS" for role in roles.values()),
        "CREATE TABLE hidden (id int PRIMARY KEY)",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id)",
        "CREATE VIEW invoked WITH (security_invoker) AS SELECT id FROM hidden",
        "CREATE VIEW defined AS SELECT id FROM hidden",
        f"ALTER VIEW defined OWNER TO {roles['owner']}",
        f"GRANT SELECT ON hidden, parts, invoked, defined TO {everyone}",
        *(f"ALTER TABLE {each} ENABLE ROW LEVEL SECURITY" for each in ("hidden", "parts")),
    )
    before = await digest_of(database, relation, role=roles["reader"])
    database.execute(f"ALTER ROLE {roles[loser]} NOBYPASSRLS")

    assert before != await digest_of(database, relation, role=roles["reader"])


@pytest.mark.parametrize("relation", ["far", "shown", "parts"])
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER SERVER elsewhere OPTIONS (SET host 'b')",
        "ALTER FOREIGN TABLE far OPTIONS (SET table_name 'b')",
        "ALTER FOREIGN TABLE far ALTER name OPTIONS (ADD column_name 'b')",
        "ALTER USER MAPPING FOR postgres SERVER elsewhere OPTIONS (SET user 'b')",
        "DROP USER MAPPING FOR postgres SERVER elsewhere",
        "CREATE USER MAPPING FOR public SERVER elsewhere",
    ],
)
async def test_other_foreign_rows_are_another_version(
    database: Database, relation: str, statement: str
) -> None:
    """Options of a foreign table, its server and the mapping of the role lead to other rows.

    Passwords, and mappings of other roles, do not.
    """
    stranger = f"stranger_{database.name}"
    database.execute(
        "CREATE FOREIGN DATA WRAPPER wrapper",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER wrapper OPTIONS (host 'a')",
        "CREATE USER MAPPING FOR postgres SERVER elsewhere OPTIONS (user 'a', password 'a')",
        "CREATE TABLE parts (id int, name text) PARTITION BY LIST (id)",
        "CREATE TABLE inner_parts PARTITION OF parts FOR VALUES IN (1) PARTITION BY LIST (id)",
        "CREATE FOREIGN TABLE far PARTITION OF inner_parts FOR VALUES IN (1)"
        " SERVER elsewhere OPTIONS (table_name 'a')",
        "CREATE VIEW shown AS SELECT * FROM far",
        f"CREATE ROLE {stranger}",
    )
    before = await digest_of(database, relation)
    database.execute(
        "ALTER USER MAPPING FOR postgres SERVER elsewhere OPTIONS (SET password 'b')",
        f"CREATE USER MAPPING FOR {stranger} SERVER elsewhere OPTIONS (user 'b')",
    )
    between = await digest_of(database, relation)
    database.execute(statement)

    assert before == between != await digest_of(database, relation)
