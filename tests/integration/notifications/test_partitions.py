"""Triggers of partitioned tables: all partitions publish, and the set of partitions is checked."""

import json
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from lookup_core.dimension_schema import DimensionSchema
from service.commands.application import run
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications import PostgresNotificationsSettings
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.notifications.notified_changes import (
    PATIENCE_S,
    end_of,
    reading,
    refusal_of,
)
from tests.integration.notifications.trigger_messages import CHANNEL, listening, make_triggers
from tools.processes.postgres_server import Database

PARTED = (
    "CREATE TABLE t (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (90) PARTITION BY LIST (id)",
    "CREATE TABLE rest PARTITION OF high DEFAULT",
    "INSERT INTO t VALUES (1, 'a'), (11, 'b')",
)
OF_COLUMNS = (  # the trigger of updates, written again
    'DROP TRIGGER "Changes_update" ON t; CREATE TRIGGER "Changes_update" AFTER UPDATE {} ON t'
    " FOR EACH ROW EXECUTE FUNCTION FUNCTION();"
    ' ALTER TABLE t ENABLE ALWAYS TRIGGER "Changes_update"'
)
NEW = (
    "CREATE TABLE more (note text, id int NOT NULL)",
    "INSERT INTO more VALUES ('c', 100)",
    "ALTER TABLE t ATTACH PARTITION more FOR VALUES FROM (100) TO (200)",
)
CHANGES_OF_PARTITIONS = (
    *NEW[2:],
    "ALTER TABLE t DETACH PARTITION low",
    "ALTER TABLE high DETACH PARTITION rest",
    "TRUNCATE rest",
    "CREATE TABLE early PARTITION OF t FOR VALUES FROM (-9) TO (0)",
    "DROP TABLE low",
)


@pytest.fixture
def parted(database: Database) -> Database:
    """A database with a partitioned table `t` and its triggers."""
    database.execute(*PARTED)
    make_triggers(database, "t", ["id"], is_partitioned=True)
    return database


def settings_of(database: Database) -> PostgresNotificationsSettings:
    """The settings of its notifications."""
    return PostgresNotificationsSettings(
        database.dsn(), "t", CHANNEL, connect_timeout_s=PATIENCE_S, heartbeat_interval_s=0.05
    )


async def schema_of(database: Database) -> DimensionSchema:
    """The schema of its table."""
    settings = PostgresSettings(database.dsn(), "t", ("id",), is_followed=True, has_triggers=True)
    async with PostgresBackend(settings) as backend:
        return await backend.describe(timeout_s=PATIENCE_S)


def test_each_statement_publishes_its_keys(parted: Database) -> None:
    """Statements on the table, on partitions and on attached ones publish old and new keys."""
    parted.execute(*NEW)
    with listening(parted) as messages:
        found = []
        for statement in (
            "INSERT INTO t VALUES (2, 'a'), (12, 'b'), (101, 'c')",
            "INSERT INTO rest VALUES (13, 'b')",
            "UPDATE more SET note = 'd' WHERE id = 100",
            "UPDATE t SET id = 20 WHERE id = 2",
            "DELETE FROM low WHERE id = 1",
            "COPY t FROM PROGRAM 'echo 3,x' (FORMAT csv)",
        ):
            parted.execute(statement)
            found.append(messages.keys())

    assert found == [[[2], [12], [101]], [[13]], [[100]], [[2], [20]], [[1]], [[3]]]


def test_large_transaction_publishes_the_table(parted: Database) -> None:
    """A transaction that changes more than 10,000 rows publishes the whole table, once."""
    parted.execute("CREATE TABLE late PARTITION OF t FOR VALUES FROM (1000) TO (99999)")
    with listening(parted) as messages:
        parted.execute("INSERT INTO t SELECT generate_series(1001, 11000)")
        keys = messages.keys()
        parted.execute("INSERT INTO t SELECT generate_series(11001, 21001)")
        large = messages.without_transactions()
        parted.execute("INSERT INTO t VALUES (4)", "TRUNCATE t")
        last = messages.without_transactions()

    assert len(keys) == 10_000
    assert [each for each in large if "all" in each] == [{"v": 1, "all": True}]
    assert last == [{"v": 1, "k": [[4]]}, {"v": 1, "all": True}]


def test_script_must_fit_the_table(parted: Database) -> None:
    """The script for another kind of table fails and names the option."""
    parted.execute("CREATE TABLE plain (id int)")

    with pytest.raises(psycopg.errors.RaiseException, match="run gen-triggers with --partitioned"):
        make_triggers(parted, "t", ["id"])
    with pytest.raises(psycopg.errors.RaiseException, match="without --partitioned"):
        make_triggers(parted, "plain", ["id"], is_partitioned=True)


@pytest.mark.parametrize("statement", CHANGES_OF_PARTITIONS)
async def test_other_partitions_end_the_reader(parted: Database, statement: str) -> None:
    """If partitions are attached, detached or truncated, the reader fails; the next one works."""
    parted.execute(*NEW[:2])
    async with reading(settings_of(parted), await schema_of(parted)) as reader:
        parted.execute(statement)
        failure = await end_of(reader)
    async with reading(settings_of(parted), await schema_of(parted)):
        pass

    assert (
        "partitions were attached or detached, ALTER TABLE, ALTER TYPE, TRUNCATE" in failure.detail
    )


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "ALTER TABLE rest DISABLE TRIGGER ALL",
            "disabled on rest: Changes_insert, Changes_update, Changes_delete",
        ),
        (
            'ALTER TABLE rest ENABLE REPLICA TRIGGER "Changes_delete"',
            "not ENABLE ALWAYS on rest: Changes_delete",
        ),
        (OF_COLUMNS.format("OF note"), "restricted on t: Changes_update"),
        (
            f"{OF_COLUMNS.format('').replace('EXECUTE', 'WHEN (NEW.id > 9) EXECUTE')}",
            "restricted on t: Changes_update",
        ),
    ],
)
async def test_partition_without_triggers_is_named(
    parted: Database, statement: str, fault: str
) -> None:
    """A partition whose triggers are disabled or restricted is a fault with its name."""
    schema = await schema_of(parted)
    ((function,),) = parted.query("SELECT tgfoid::regproc::text FROM pg_trigger LIMIT 1")
    parted.execute(statement.replace("FUNCTION()", f"{function}()"))

    refusal = await refusal_of(settings_of(parted), schema)

    remedy = "run the output of `gen-triggers --partitioned`"
    assert refusal.detail == f"t: triggers {fault}; {remedy}"


async def test_triggers_of_statements_are_not_enough(database: Database) -> None:
    """A partitioned table without triggers of rows is refused with the script's option."""
    database.execute(*PARTED)

    refusal = await refusal_of(settings_of(database), await schema_of(database))

    names = "Changes_insert, Changes_update, Changes_delete, Changes_truncate"
    remedy = "run the output of `gen-triggers --partitioned`"
    assert refusal.detail == f"t: triggers missing on t: {names}; {remedy}"


async def test_followed_partitions_are_described(parted: Database) -> None:
    """A partitioned table with triggers is followed, also one that is a partition itself."""
    settings = PostgresSettings(parted.dsn(), "high", ("id",), is_followed=True, has_triggers=True)
    origins = []
    for table in ("t", "high"):
        async with PostgresBackend(replace(settings, table=table)) as backend:
            origins.append((await backend.describe(timeout_s=PATIENCE_S)).origin)

    assert [origin and origin.is_partitioned for origin in origins] == [True, True]


@pytest.mark.parametrize(
    ("table", "option", "script", "note"),
    [
        ("t", (), "FOR EACH ROW", ""),
        ("t", ("--partitioned",), "FOR EACH ROW", ""),
        ("plain", (), "FOR EACH STATEMENT", ""),
        ("plain", ("--partitioned",), None, "plain is not partitioned; leave --partitioned out"),
        ("shown", (), None, 'dimension "shop": shown: is a view, and changes of its tables'),
        ("low", (), None, "statements on its parent table public.t do not run its triggers; end"),
        ("plane", (), "FOR EACH STATEMENT", "plane: no such table; did you mean public.plain?"),
    ],
)
def test_command_knows_the_kind_of_the_table(
    parted: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    table: str,
    option: tuple[str, ...],
    *,
    script: str | None,
    note: str,
) -> None:
    """`gen-triggers` prints the triggers that fit the table, and refuses what has none."""
    parted.execute("CREATE TABLE plain (id int, note text)", "CREATE VIEW shown AS TABLE plain")
    source = {"kind": "postgres", "dsn": parted.dsn(), "table": table}
    config = tmp_path / "sidelook.yaml"
    config.write_text(json.dumps({"dimensions": {"shop": {"source": source, "key": ["id"]}}}))

    code = run(["gen-triggers", "shop", "--config", str(config), *option])
    printed = capsys.readouterr()

    assert (code == 0, printed.out != "") == (script is not None, script is not None)
    assert (script or "") in printed.out
    assert note in printed.err
    assert (note == "") == (printed.err == "")
