"""Triggers that exist, but do not report what those of the script report: readers refuse them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lookup_core.errors import ErrorCode
from service.connectors.postgres.notifications import PostgresNotificationsSettings
from service.connectors.postgres.triggers import trigger_sql
from tests.integration.notifications.notified_changes import (
    changes_of,
    end_of,
    listened,
    reading,
    refusal_of,
    schema_of,
)
from tests.integration.notifications.trigger_messages import CHANNEL
from tools.processes.postgres_server import Database

SCRIPT = "gen-triggers planes"
EVENTS = ("insert", "update", "delete", "truncate")
RESTRICTED, OTHER_FUNCTION = "restricted", "with another function"
ALTERED = "whose function is altered"
# FUNCTION() is that of the script.
WRITTEN_AGAIN = (
    'DROP TRIGGER "Changes_delete" ON t; CREATE TRIGGER "Changes_delete" AFTER DELETE ON t'
    " REFERENCING OLD TABLE AS old_rows {} EXECUTE FUNCTION FUNCTION();"
    ' ALTER TABLE t ENABLE ALWAYS TRIGGER "Changes_delete"'
)
BODY = (
    "CREATE OR REPLACE FUNCTION FUNCTION() RETURNS trigger LANGUAGE plpgsql"
    " SET search_path = pg_catalog, pg_temp SET bytea_output = 'hex' SET timezone = 'UTC'"
    " AS $$BEGIN {} RETURN NULL; END$$"
)
NAMESAKE = (
    "CREATE SCHEMA other; CREATE FUNCTION other.idle() RETURNS trigger LANGUAGE plpgsql"
    " AS 'BEGIN RETURN NULL; END'; "
)
OF_NAMESAKE = NAMESAKE + WRITTEN_AGAIN.format("").replace("FUNCTION()", "other.idle()")


@pytest.fixture
def settings(database: Database) -> PostgresNotificationsSettings:
    """The source of changes of a table `t` with its triggers."""
    return replace(listened(database), script=SCRIPT)


@pytest.mark.parametrize(
    ("trouble", "fault", "events"),
    [
        (WRITTEN_AGAIN.format("WHEN (user = 'app')"), RESTRICTED, ["delete"]),
        (WRITTEN_AGAIN.format("FOR EACH ROW"), RESTRICTED, ["delete"]),
        (OF_NAMESAKE, OTHER_FUNCTION, ["delete"]),
        (BODY.format(""), ALTERED, EVENTS),
        (
            BODY.format("""PERFORM pg_notify('Changes', '{"v":1,"k":[]}');"""),
            ALTERED,
            EVENTS,
        ),
        ("ALTER FUNCTION FUNCTION() RESET search_path", ALTERED, EVENTS),
        ("ALTER FUNCTION FUNCTION() SET timezone = 'Asia/Tokyo'", ALTERED, EVENTS),
        ('ALTER TABLE t DISABLE TRIGGER "Changes_delete"', "disabled", ["delete"]),
        ("ALTER TABLE t DISABLE TRIGGER ALL", "disabled", EVENTS),
        ('DROP TRIGGER "Changes_insert" ON t', "missing", ["insert"]),
        ('ALTER TRIGGER "Changes_truncate" ON t RENAME TO other', "missing", ["truncate"]),
        ('ALTER TABLE t ENABLE TRIGGER "Changes_delete"', "not ENABLE ALWAYS", ["delete"]),
        ('ALTER TABLE t ENABLE REPLICA TRIGGER "Changes_delete"', "not ENABLE ALWAYS", ["delete"]),
    ],
)
async def test_altered_triggers_end_the_reader(
    database: Database,
    settings: PostgresNotificationsSettings,
    trouble: str,
    fault: str,
    events: Sequence[str],
) -> None:
    """Triggers that are missing, restricted, or of another function end the reader and the next."""
    schema = schema_of(database)
    async with reading(settings, schema) as reader:
        database.execute(trouble.replace("FUNCTION()", function_of(database)))
        failures = [await end_of(reader), await refusal_of(settings, schema)]

    names = ", ".join(f"{CHANNEL}_{event}" for event in events)
    detail = f"t: triggers {fault} on t: {names}; run the output of `{SCRIPT}`"
    expected = (ErrorCode.BACKEND_REJECTED, detail)
    assert [(each.code, each.detail) for each in failures] == [expected] * 2


async def test_restored_function_ends_the_reader(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """If a function was another one for a time, the reader fails, and the next one works."""
    script = trigger_sql("t", ["id"], channel=CHANNEL)
    original = script[script.index("CREATE OR REPLACE") : script.index("\n\nDROP TRIGGER")]
    other = BODY.format("").replace("FUNCTION()", function_of(database))
    async with reading(settings, schema_of(database)) as reader:
        database.execute(f"{other}; INSERT INTO t VALUES (1); {original}")
        failure = await end_of(reader)
    async with reading(settings, schema_of(database)) as reader:
        database.execute("DELETE FROM t")
        changes = await changes_of(reader)

    assert "triggers were recreated or disabled for a time" in failure.detail
    assert changes == [[1]]


@pytest.mark.parametrize(("written", "changed"), [("\n", "\r\n"), ("    ", "\t"), ("\n", "\n\n")])
async def test_white_space_of_the_script_is_free(
    database: Database,
    settings: PostgresNotificationsSettings,
    written: str,
    changed: str,
) -> None:
    """A script is as good with other line ends, indents and blank lines."""
    script = trigger_sql("t", ["id"], channel=CHANNEL)
    database.execute(script.replace(written, changed))
    async with reading(settings, schema_of(database)) as reader:
        database.execute("INSERT INTO t VALUES (1)")

        assert await changes_of(reader) == [[1]]


@pytest.mark.parametrize("is_partitioned", [True, False])
def test_functions_have_no_comments(*, is_partitioned: bool) -> None:
    """Tools that remove comments from scripts change no function."""
    script = trigger_sql("t", ["id"], channel=CHANNEL, is_partitioned=is_partitioned)
    _, _, body = script.partition("CREATE OR REPLACE FUNCTION")

    assert "--" not in body
    assert "/*" not in body


def function_of(database: Database) -> str:
    """The function of the triggers, as in SQL."""
    ((name,),) = database.query("SELECT DISTINCT tgfoid::regprocedure::text FROM pg_trigger")
    return str(name)
