"""The table changes while it is looked up: right rows, or an error that says what to do."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.connections import PostgresConnections
from service.connectors.postgres.settings import PostgresSettings
from tests.integration.postgres_tables import put_table
from tools.processes.postgres_server import Database

PATIENCE_S = 10.0
ROWS = pa.table({"id": pa.array([1]), "name": ["one"], "size": pa.array([7], pa.int32())})
KEYS = pa.record_batch({"id": pa.array([1])})


@pytest.fixture
def settings(database: Database) -> PostgresSettings:
    """How the table is reached by a role of no privileges but those given here."""
    settings = put_table(database, ROWS, key=["id"])
    database.execute(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON dimension TO reader",
    )
    return replace(settings, dsn=database.dsn(user="reader"))


@pytest.fixture
async def backend(settings: PostgresSettings, database: Database) -> AsyncIterator[PostgresBackend]:
    """A backend whose statement is prepared; the role goes at the end."""
    async with PostgresBackend(settings) as backend:
        await backend.describe(timeout_s=PATIENCE_S)
        assert (await backend.fetch(KEYS, timeout_s=PATIENCE_S)).rows.num_rows == 1
        yield backend
    database.execute("DROP OWNED BY reader", "DROP ROLE reader")


async def failure_of(backend: PostgresBackend) -> BackendError:
    """What a fetch fails with."""
    with pytest.raises(BackendError) as caught:
        await backend.fetch(KEYS, timeout_s=PATIENCE_S)
    return caught.value


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN added int4 DEFAULT 1",
        "ALTER COLUMN name TYPE varchar(10)",
        "ALTER COLUMN size TYPE int8",
        "ADD CHECK (size > 0)",
    ],
)
async def test_harmless_changes_are_not_noticed(
    backend: PostgresBackend, database: Database, change: str
) -> None:
    """A change that leaves the described columns readable leaves the answers as they are."""
    database.execute(f"ALTER TABLE dimension {change}")

    fetched = await backend.fetch(KEYS, timeout_s=PATIENCE_S)

    assert fetched.rows.to_pylist() == [{"name": "one", "size": 7}]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE dimension DROP COLUMN name",
        "ALTER TABLE dimension RENAME COLUMN size TO extent",
        "ALTER TABLE dimension ALTER COLUMN size TYPE float8",
        "ALTER TABLE dimension ALTER COLUMN size TYPE text",
        "ALTER TABLE dimension ALTER COLUMN id TYPE uuid USING gen_random_uuid()",
        "ALTER TABLE dimension RENAME TO moved",
        "DROP TABLE dimension",
    ],
)
async def test_changed_table_is_to_be_described(
    backend: PostgresBackend, database: Database, change: str
) -> None:
    """A change of what was described is told as such, and never read as something else."""
    database.execute(change)

    failure = await failure_of(backend)

    assert failure.code is ErrorCode.SCHEMA_CHANGED


async def test_described_anew_the_table_is_back(
    backend: PostgresBackend, database: Database
) -> None:
    """After another `describe` the rows come in the new types."""
    database.execute("ALTER TABLE dimension ALTER COLUMN size TYPE text")
    await failure_of(backend)

    schema = await backend.describe(timeout_s=PATIENCE_S)
    fetched = await backend.fetch(KEYS, timeout_s=PATIENCE_S)

    assert schema.columns == pa.schema({"name": pa.utf8(), "size": pa.utf8()})
    assert fetched.rows.to_pylist() == [{"name": "one", "size": "7"}]


async def test_revoked_privilege_is_forbidden(backend: PostgresBackend, database: Database) -> None:
    """A role that may not read the table any more gets an answer of its own."""
    database.execute("REVOKE SELECT ON dimension FROM reader")

    failure = await failure_of(backend)

    assert failure.code is ErrorCode.FORBIDDEN


async def test_sessions_stay_read_only(database: Database) -> None:
    """What a session was started with holds for its later queries, too; nothing can be written."""
    connections = PostgresConnections(PostgresSettings(database.dsn(), "dimension", ("id",)))
    names = ("default_transaction_read_only", "statement_timeout", "application_name", "jit")
    query = f"SELECT {', '.join(f'current_setting($${name}$$)' for name in names)}"
    await connections.open()

    shown = [(await connections.run(query, [], timeout_s=PATIENCE_S)).records for _ in range(2)]
    with pytest.raises(BackendError) as caught:
        await connections.run("CREATE TABLE written (id int4)", [], timeout_s=PATIENCE_S)
    await connections.close()

    assert [tuple(rows[0]) for rows in shown] == [("on", "2s", "sidelook", "off")] * 2
    assert caught.value.code is ErrorCode.BACKEND_REJECTED


async def test_pgbouncer_settings_work_without_a_pooler(settings: PostgresSettings) -> None:
    """Without statement cache and session parameters the answers are the same."""
    async with PostgresBackend(replace(settings, pgbouncer=True)) as backend:
        await backend.describe(timeout_s=PATIENCE_S)

        fetched = [await backend.fetch(KEYS, timeout_s=PATIENCE_S) for _ in range(2)]

    assert [rows.rows.to_pylist() for rows in fetched] == [[{"name": "one", "size": 7}]] * 2
