"""PostgreSQL tables that are altered or replaced during lookups."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import CacheMode, CacheSettings
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.connections import PostgresConnections
from service.connectors.postgres.sessions import PostgresSettings
from service.engine.dimension import Dimension
from tests.integration.lookups.tables import (
    PATIENCE_S,
    create_reader,
    put_table,
    serving,
)
from tests.service.engine import running
from tests.service.engine.running import is_fit, lookup, typed, until
from tools.processes.postgres_server import Database

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven"]
ROWS = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "name": NAMES,
        "size": pa.array(range(10, 18), pa.int32()),
    }
)
UNCACHED = replace(running.settings(), cache=CacheSettings(mode=CacheMode.NONE))
CHANGED = "error schema_changed"
CALLERS = 4
ALTER = "ALTER TABLE dimension"
SWAP = (
    "BEGIN; ALTER TABLE dimension RENAME TO former; ALTER TABLE successor RENAME TO dimension; END"
)


@pytest.fixture
def table(database: Database) -> PostgresSettings:
    """A table of eight rows; the role of the DSN may only read it."""
    settings = put_table(database, ROWS, key=["id"])
    return replace(settings, dsn=create_reader(database), statement_timeout_s=PATIENCE_S)


@dataclass(slots=True)
class Callers:
    """Callers that look up one key after the other without a pause."""

    dimension: Dimension
    words: list[str] = field(default_factory=list)  # of each lookup; `row` if it is the key's own

    async def run(self) -> None:
        """Look keys up until cancelled; the refusal of a lookup is its answer."""
        number = 0
        while True:
            number = (number + 1) % len(NAMES)
            word = await word_of(self.dimension, number)
            self.words.append("row" if word == f"fetched {NAMES[number]}" else word)
            if word.startswith("refused"):
                await asyncio.sleep(0.001)  # a refusal is immediate; the event loop must run

    async def wait_for_rows(self) -> None:
        """Wait until eight lookups in sequence return their own rows."""
        seen = len(self.words)
        await until(lambda: self.words[seen:][-8:] == ["row"] * 8)

    async def wait_for(self, word: str) -> None:
        """Wait for a lookup with this answer."""
        await until(lambda: word in self.words)


@asynccontextmanager
async def calling(table: PostgresSettings) -> AsyncIterator[Callers]:
    """Several callers, all of which receive rows at the beginning."""
    async with serving(PostgresBackend(table), UNCACHED) as dimension:
        callers = Callers(dimension)
        async with asyncio.TaskGroup() as tasks:
            running_callers = [tasks.create_task(callers.run()) for _ in range(CALLERS)]
            await callers.wait_for_rows()
            yield callers
            for task in running_callers:
                task.cancel()


async def run(database: Database, *statements: str) -> None:
    """Run statements without blocking the callers."""
    await asyncio.to_thread(database.execute, *statements)


async def put_successor(database: Database, *, like: str) -> None:
    """Create a table `successor` of the same columns, which the same role may read."""
    await run(
        database,
        f"CREATE TABLE successor (LIKE {like} INCLUDING ALL)",
        "INSERT INTO successor VALUES (1, 'uno', 1), (2, 'due', 2)",
        f"GRANT SELECT ON successor TO reader_of_{database.name}",
    )


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN added int4 DEFAULT 1",
        "ALTER COLUMN size TYPE int8",
        "ADD CHECK (size > 0)",
        "ALTER COLUMN name TYPE varchar(10)",
    ],
)
async def test_compatible_change_fails_no_lookup(
    table: PostgresSettings, database: Database, change: str
) -> None:
    """If the described columns stay readable, every lookup returns its row."""
    async with calling(table) as callers:
        await run(database, f"{ALTER} {change}")
        await callers.wait_for_rows()

    assert set(callers.words) == {"row"}


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("DROP COLUMN size", {"name": pa.utf8()}),
        ("ALTER COLUMN size TYPE text", {"name": pa.utf8(), "size": pa.utf8()}),
        ("ALTER COLUMN size TYPE float8", {"name": pa.utf8(), "size": pa.float64()}),
        ("RENAME COLUMN size TO extent", {"name": pa.utf8(), "extent": pa.int32()}),
    ],
)
async def test_changed_column_is_described_again(
    table: PostgresSettings, database: Database, change: str, columns: dict[str, pa.DataType]
) -> None:
    """Lookups during the change fail with `schema_changed`; later ones have the new columns."""
    async with calling(table) as callers:
        await run(database, f"{ALTER} {change}")
        await callers.wait_for(CHANGED)
        await callers.wait_for_rows()

        assert callers.dimension.schema.known().columns == pa.schema(columns)
    assert set(callers.words) == {"row", CHANGED}


async def test_wider_number_is_described_when_it_comes(
    table: PostgresSettings, database: Database
) -> None:
    """An int4 column that became int8 keeps its described type until a value exceeds it."""
    async with calling(table) as callers:
        widen = f"{ALTER} ALTER COLUMN size TYPE int8"
        await run(database, widen, "UPDATE dimension SET size = 5000000000 WHERE id = 3")
        await callers.wait_for(CHANGED)
        await callers.wait_for_rows()
        (answer,) = await callers.dimension.lookup(typed(3), columns=["size"], timeout_s=None)

    assert answer.rows is not None
    assert answer.rows.to_pylist() == [{"size": 5_000_000_000}]


async def test_changed_key_type_is_described_again(
    table: PostgresSettings, database: Database
) -> None:
    """After the key column changes its type, keys are typed as the column."""
    async with calling(table) as callers:
        await run(database, f"{ALTER} ALTER COLUMN id TYPE text USING id::text")
        await callers.wait_for(CHANGED)
        schema = await callers.dimension.schema.wait(PATIENCE_S)

    assert schema.key == pa.schema({"id": pa.utf8()})


@pytest.mark.parametrize(
    ("trouble", "remedy", "code"),
    [
        (f"{ALTER} RENAME TO moved", "ALTER TABLE moved RENAME TO dimension", "table_unavailable"),
        ("REVOKE SELECT ON dimension FROM {}", "GRANT SELECT ON dimension TO {}", "forbidden"),
    ],
)
async def test_unfit_table_recovers_without_restart(
    table: PostgresSettings, database: Database, trouble: str, remedy: str, code: str
) -> None:
    """Lookups in an unusable table are refused with the reason, and succeed when it is usable."""
    role = f"reader_of_{database.name}"
    async with calling(table) as callers:
        await run(database, trouble.format(role))
        await callers.wait_for(f"refused {code}")
        await run(database, remedy.format(role))
        await callers.wait_for_rows()

    assert set(callers.words) <= {"row", f"refused {code}", f"error {code}", CHANGED}


async def test_successor_under_the_name_is_described(
    table: PostgresSettings, database: Database
) -> None:
    """Rows cached from a dropped table are not served for another table of the same name."""
    async with serving(PostgresBackend(table)) as dimension:
        assert await lookup(dimension, 1) == {0: "fetched one"}
        await run(database, f"{ALTER} RENAME TO former")
        assert await lookup(dimension, 3) == {0: "error table_unavailable"}
        await put_successor(database, like="former")
        await run(database, "ALTER TABLE successor RENAME TO dimension")
        await until(lambda: is_fit(dimension))

        assert await lookup(dimension, 1, 3) == {0: "fetched uno", 1: "missing"}


async def test_swapped_table_shows_when_rows_expire(
    table: PostgresSettings, database: Database
) -> None:
    """If a table of equal columns takes the name in one transaction, cached rows stay."""
    async with serving(PostgresBackend(table)) as dimension:
        assert await lookup(dimension, 1) == {0: "fetched one"}
        await put_successor(database, like="dimension")
        await run(database, SWAP)

        assert await lookup(dimension, 1, 2) == {0: "hit one", 1: "fetched due"}


async def test_swapped_table_is_described_as_another(
    table: PostgresSettings, database: Database
) -> None:
    """The description identifies the table, so that a replacement of equal columns is noticed."""
    async with PostgresBackend(table) as backend:
        former = await backend.describe(timeout_s=PATIENCE_S)
        again = await backend.describe(timeout_s=PATIENCE_S)
        await put_successor(database, like="dimension")
        await run(database, SWAP)
        present = await backend.describe(timeout_s=PATIENCE_S)

    assert former.is_same(again)
    assert not former.is_same(present)
    assert present.still_offers(former)


async def test_sessions_stay_read_only(database: Database) -> None:
    """Sessions keep their parameters over several queries, and refuse to write."""
    settings = PostgresSettings(database.dsn(), "dimension", ("id",))
    names = ("default_transaction_read_only", "statement_timeout", "application_name", "jit")
    query = f"SELECT {', '.join(f'current_setting($${name}$$)' for name in names)}"
    async with PostgresConnections(settings) as connections:
        shown = [(await connections.run(query, [], timeout_s=PATIENCE_S)).records for _ in range(2)]
        with pytest.raises(BackendError) as caught:
            await connections.run("CREATE TABLE written (id int4)", [], timeout_s=PATIENCE_S)

    assert [tuple(rows[0]) for rows in shown] == [("on", "2s", "sidelook", "off")] * 2
    assert caught.value.code is ErrorCode.BACKEND_REJECTED


@pytest.mark.parametrize(
    ("relation", "refusal"),
    [("dimension", "refused table_unavailable"), ("invoked", "refused forbidden")],
)
async def test_revoked_bypass_empties_the_cache(
    table: PostgresSettings, database: Database, relation: str, refusal: str
) -> None:
    """Without BYPASSRLS, hidden rows are an error, also if they were cached; with it, rows again.

    The next description notices it: within a minute, or after the first query.
    """
    role = f"reader_of_{database.name}"
    await run(
        database,
        "ALTER TABLE dimension ENABLE ROW LEVEL SECURITY",
        f"ALTER ROLE {role} BYPASSRLS",
        "CREATE VIEW invoked WITH (security_invoker) AS TABLE dimension",
        f"GRANT SELECT ON invoked TO {role}",
    )
    async with serving(PostgresBackend(replace(table, table=relation))) as dimension:
        before = [await word_of(dimension, 1) for _ in range(2)]
        await run(database, f"ALTER ROLE {role} NOBYPASSRLS")
        with suppress(BackendError):
            await dimension.described_again(PATIENCE_S)
        revoked = await word_of(dimension, 1)
        await run(database, f"ALTER ROLE {role} BYPASSRLS")
        await until(lambda: is_fit(dimension))
        restored = await word_of(dimension, 1)

    assert before == ["fetched one", "hit one"]
    assert (revoked, restored) == (refusal, "fetched one")


async def word_of(dimension: Dimension, number: int) -> str:
    """The answer to a key, or the refusal of its lookup."""
    try:
        (word,) = (await lookup(dimension, number, timeout_s=PATIENCE_S)).values()
    except BackendError as error:
        return f"refused {error.code}"
    return word
