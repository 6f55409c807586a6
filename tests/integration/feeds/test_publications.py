"""Publications of a followed table: one of them must report each of its changes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.feeds.test_watched_table import SPLIT, change_in, watched
from tests.integration.lookups.tables import schema_of
from tests.integration.notifications.notified_changes import PATIENCE_S
from tools.processes.postgres_server import Database

TABLE = (
    "CREATE TABLE t (id int PRIMARY KEY, name text, active bool NOT NULL DEFAULT true)",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "CREATE TABLE other (id int PRIMARY KEY)",
    "CREATE SCHEMA shop",
)
WHOLE = "CREATE PUBLICATION p FOR TABLE t"
AGAIN = "ALTER PUBLICATION p DROP TABLE public.t; ALTER PUBLICATION p ADD TABLE public.t"
EACH = "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')"


def settings_of(database: Database, publication: str | None = None) -> PostgresSettings:
    """The followed table `t`."""
    settings = PostgresSettings(database.dsn(), "public.t", ("id",), ("name",), is_followed=True)
    return replace(settings, needs_publication=True, publication=publication)


async def refusal_of(settings: PostgresSettings) -> BackendError | None:
    """Why the table is refused; None if it is not."""
    async with PostgresBackend(settings) as backend:
        try:
            await backend.describe(timeout_s=PATIENCE_S)
        except BackendError as error:
            return error
    return None


@pytest.mark.parametrize(
    ("statements", "reason", "remedy"),
    [
        (
            ("CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert, update')",),
            "does not report each delete",
            EACH,
        ),
        (
            ("CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'insert')",),
            "does not report each update and delete",
            EACH,
        ),
        (("CREATE PUBLICATION p FOR TABLE t WHERE (active)",), "has a row filter", AGAIN),
        (
            ("CREATE PUBLICATION p FOR TABLE other",),
            "does not report its changes",
            "ALTER PUBLICATION p ADD TABLE public.t",
        ),
        (("CREATE PUBLICATION p",), "does not report its changes", "ADD TABLE public.t"),
        ((WHOLE, "ALTER PUBLICATION p DROP TABLE t"), "does not report", "ADD TABLE public.t"),
        (
            ("CREATE PUBLICATION p FOR TABLES IN SCHEMA shop",),
            "does not report its changes",
            "ADD TABLE public.t",
        ),
        (
            ("CREATE PUBLICATION p FOR ALL TABLES", "ALTER TABLE t SET UNLOGGED"),
            "has no changes of an unlogged table",
            "ALTER TABLE public.t SET LOGGED",
        ),
        (("ALTER TABLE t SET UNLOGGED",), "unlogged table", "ALTER TABLE public.t SET LOGGED"),
        *(
            (statements, "has no deletions", "ALTER TABLE public.t REPLICA IDENTITY FULL")
            for statements in (
                ("ALTER TABLE t REPLICA IDENTITY NOTHING",),
                (
                    "ALTER TABLE t DROP CONSTRAINT t_pkey, REPLICA IDENTITY DEFAULT",
                    "ALTER TABLE t ADD PRIMARY KEY (id) DEFERRABLE",
                ),
            )
        ),
        (
            ("CREATE PUBLICATION p FOR TABLE t (name)",),
            "omits the key column id",
            AGAIN,
        ),
        (
            (
                "DROP TABLE t",
                "CREATE TABLE t (name text, n int, id int GENERATED ALWAYS AS (n) STORED)",
                WHOLE,
            ),
            "omits the key column id",
            "a generated column needs publish_generated_columns, or refresh.listen",
        ),
    ],
)
async def test_incomplete_publications_are_refused(
    database: Database, statements: Sequence[str], reason: str, remedy: str
) -> None:
    """A table whose publications omit changes is refused with the statement that helps."""
    database.execute(*TABLE, *statements)
    refusal = await refusal_of(settings_of(database))

    assert refusal is not None
    assert (refusal.code, refusal.is_permanent) == (ErrorCode.TABLE_UNAVAILABLE, False)
    assert reason in refusal.detail
    assert remedy.replace("PUBLICATION p", 'PUBLICATION "p"') in refusal.detail


@pytest.mark.parametrize(
    ("statements", "publication"),
    [
        ((), None),
        (("ALTER TABLE t REPLICA IDENTITY DEFAULT",), None),
        ((WHOLE,), None),
        ((WHOLE,), "p"),
        (("CREATE PUBLICATION p FOR ALL TABLES",), None),
        (("CREATE PUBLICATION p FOR TABLES IN SCHEMA public",), None),
        (("CREATE PUBLICATION p FOR TABLE t (id, name)", "ALTER TABLE other ADD n int"), None),
        ((WHOLE, "CREATE PUBLICATION q FOR TABLE t WHERE (active)"), None),
    ],
)
async def test_complete_publication_is_accepted(
    database: Database, statements: Sequence[str], publication: str | None
) -> None:
    """One publication with all changes is enough; a database may have none at all."""
    database.execute(*TABLE, *statements)

    assert await refusal_of(settings_of(database, publication)) is None


async def test_named_publication_alone_counts(database: Database) -> None:
    """A configured publication must exist, and must itself report all changes."""
    database.execute(*TABLE, WHOLE, "CREATE PUBLICATION q FOR TABLE t WHERE (active)")
    refusals = [await refusal_of(settings_of(database, name)) for name in ("p", "q", "r")]

    details = [refusal and refusal.detail for refusal in refusals]
    assert details == [
        None,
        (
            'public.t: publication "q" has a row filter, which omits changes; ALTER PUBLICATION "q"'
            ' DROP TABLE public.t; ALTER PUBLICATION "q" ADD TABLE public.t'
        ),
        (
            'public.t: publication "r" of refresh.changelog.publication does not exist; CREATE'
            ' PUBLICATION "r" FOR TABLE public.t, or correct it'
        ),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER PUBLICATION p DROP TABLE t",
        "ALTER PUBLICATION p SET (publish = 'insert')",
        f"ALTER PUBLICATION p SET (publish = 'insert'); {EACH}",  # deletions between are lost
        "ALTER PUBLICATION p SET TABLE t WHERE (active)",
        "DROP PUBLICATION p",
        "CREATE PUBLICATION q FOR TABLES IN SCHEMA public",
    ],
)
async def test_changed_publication_is_one_change(database: Database, statement: str) -> None:
    """Another publication of the table is a change of the whole table, once."""
    database.execute(*TABLE, WHOLE)
    settings = settings_of(database)
    schema = await schema_of(settings)
    async with watched(settings).reader(schema) as reader:
        await reader.assign(SPLIT, position=None)
        database.execute(
            "CREATE PUBLICATION unrelated FOR TABLE other",
            "GRANT SELECT ON t TO public",
            "ANALYZE t",
        )
        before = [piece for _ in range(500) for piece in await reader.read()]
        database.execute(statement)
        change = await change_in(reader)

    assert [list(piece.changes) for piece in before] == [[]] * 500
    assert isinstance(change, TableChange)
    assert change.transaction_id > 0
