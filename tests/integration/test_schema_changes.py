"""A real table is altered while it is looked up: each lookup ends right, without a restart."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.protocol import frames
from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings
from service.connectors.memory.backend import FakeBackend
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from service.engine.dimension import Dimension
from service.stream.connection import Timeouts
from tests.grace import GRACE_S
from tests.integration.postgres_tables import put_table
from tests.service.engine import running
from tests.service.engine.running import PATIENCE_S, is_fit, told, typed
from tests.service.stream.streaming import Peer, Setting, open_frame, streaming, until
from tools.processes.postgres_server import Database, PostgresServer

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven"]
ROWS = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "name": NAMES,
        "size": pa.array(range(10, 18), pa.int32()),
    }
)
SETTINGS = replace(running.settings(), cache=CacheSettings(mode=CacheMode.NONE))
CHANGED = "error schema_changed"
SWAP = (
    "CREATE TABLE successor (LIKE dimension INCLUDING ALL)",
    "INSERT INTO successor VALUES (1, 'uno', 1), (2, 'due', 2)",
    "GRANT SELECT ON successor TO watcher",
    "BEGIN; ALTER TABLE dimension RENAME TO former; ALTER TABLE successor RENAME TO dimension; END",
)
FOUND_S = 1.0  # a store or a table that is back, at the latest
HEALED_S = FOUND_S + GRACE_S  # from the end of a trouble on


@pytest.fixture
def table(database: Database) -> Iterator[PostgresSettings]:
    """A table of eight rows, reached by a role of no privileges but those given here."""
    settings = put_table(database, ROWS, key=["id"])
    database.execute(
        "DROP ROLE IF EXISTS watcher",
        "CREATE ROLE watcher LOGIN",
        "GRANT SELECT ON dimension TO watcher",
    )
    dsn = database.dsn(user="watcher")
    yield replace(settings, dsn=dsn, statement_timeout_s=PATIENCE_S)
    database.execute("DROP OWNED BY watcher", "DROP ROLE watcher")


@dataclass(slots=True)
class Asking:
    """Callers who ask for one key after the other, without a pause."""

    dimension: Dimension
    words: list[str] = field(default_factory=list)  # of each key, as it was answered
    asked: int = 0

    async def run(self) -> None:
        """Ask until cancelled; what a caller is refused with counts as its answer."""
        while True:
            key = self.asked % len(NAMES)
            self.asked += 1
            try:
                answers = await self.dimension.lookup(
                    typed(key), columns=["name"], timeout_s=PATIENCE_S
                )
            except BackendError as error:
                self.words.append(f"refused {error.code}")
                await asyncio.sleep(0.001)
            else:
                (word,) = told(answers).values()
                self.words.append(f"row {key}" if word == f"fetched {NAMES[key]}" else word)

    async def wait_for_rows(self) -> None:
        """Wait until eight keys in a row got their own rows."""
        seen = len(self.words)
        async with asyncio.timeout(HEALED_S):
            await until(lambda: _are_rows(self.words[seen:][-8:]))

    async def wait_for(self, word: str) -> None:
        """Wait until somebody is answered so."""
        await until(lambda: word in self.words)


def _are_rows(words: list[str]) -> bool:
    return len(words) == len(NAMES) and all(word.startswith("row") for word in words)


@asynccontextmanager
async def under_load(table: PostgresSettings) -> AsyncIterator[Asking]:
    """Four callers, who all get rows at first."""
    async with PostgresBackend(table) as backend:
        dimension = Dimension(SETTINGS, backend)
        asking = Asking(dimension)
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(dimension.run())]
            await dimension.wait_until_described(PATIENCE_S)
            started += [tasks.create_task(asking.run()) for _ in range(4)]
            await asking.wait_for_rows()
            yield asking
            for task in started:
                task.cancel()


@asynccontextmanager
async def at_work(table: PostgresSettings) -> AsyncIterator[Dimension]:
    """A dimension with a cache, whom nobody asks yet."""
    async with PostgresBackend(table) as backend:
        dimension = Dimension(replace(SETTINGS, cache=CacheSettings()), backend)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(dimension.run())
            await dimension.wait_until_described(PATIENCE_S)
            yield dimension
            task.cancel()


class CountingBackend(PostgresBackend):
    """Counts how often it was asked to describe its table."""

    asked = 0

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Count the question, and pass it on."""
        self.asked += 1
        return await super().describe(timeout_s=timeout_s)


# The start


async def test_database_down_at_the_start_is_found_within_a_second(
    table: PostgresSettings, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """However long it was down: when it is there, the dimension takes lookups a second later."""
    away = replace(table, dsn=table.dsn.partition("host=")[0] + f"host={tmp_path}")
    async with CountingBackend(away) as backend:
        dimension = Dimension(SETTINGS, backend)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(dimension.run())
            await until(lambda: backend.asked > 4)  # the pauses have their full length
            assert not is_fit(dimension)
            tmp_path.joinpath(Path(postgres_server.socket_path).name).symlink_to(
                postgres_server.socket_path
            )
            async with asyncio.timeout(HEALED_S):
                await dimension.wait_until_described(PATIENCE_S)
            assert await _names(dimension, 7) == {0: "fetched seven"}
            task.cancel()


# Lookups


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN added int4 DEFAULT 1",
        "ALTER COLUMN size TYPE int8",
        "ADD CHECK (size > 0)",
        "ALTER COLUMN name TYPE varchar(10)",
    ],
)
async def test_harmless_change_is_not_noticed(
    table: PostgresSettings, database: Database, change: str
) -> None:
    """A change that leaves the described columns readable costs no caller an answer."""
    async with under_load(table) as asking:
        await asyncio.to_thread(database.execute, f"ALTER TABLE dimension {change}")
        await asking.wait_for_rows()

    assert {word for word in asking.words if not word.startswith("row")} == set()


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("DROP COLUMN size", {"name": pa.utf8()}),
        ("ALTER COLUMN size TYPE text", {"name": pa.utf8(), "size": pa.utf8()}),
        ("ALTER COLUMN size TYPE float8", {"name": pa.utf8(), "size": pa.float64()}),
        ("RENAME COLUMN size TO extent", {"name": pa.utf8(), "extent": pa.int32()}),
    ],
)
async def test_change_of_a_used_column_heals(
    table: PostgresSettings, database: Database, change: str, columns: dict[str, pa.DataType]
) -> None:
    """Those who meet the change get an error each; then rows come in the new columns."""
    async with under_load(table) as asking:
        await asyncio.to_thread(database.execute, f"ALTER TABLE dimension {change}")
        await asking.wait_for(CHANGED)
        await asking.wait_for_rows()

        assert asking.dimension.schema.columns == pa.schema(columns)
    wrong = [word for word in asking.words if not word.startswith("row")]
    assert set(wrong) == {CHANGED}
    assert len(wrong) <= 16  # four callers; never an absence, never a row of another key


async def test_wider_numbers_come_when_they_are_there(
    table: PostgresSettings, database: Database
) -> None:
    """An int that became a bigint goes on as it was promised until a value needs more."""
    async with under_load(table) as asking:
        await asyncio.to_thread(
            database.execute,
            "ALTER TABLE dimension ALTER COLUMN size TYPE int8",
            "UPDATE dimension SET size = 5000000000 WHERE id = 3",
        )
        await asking.wait_for(CHANGED)
        await asking.wait_for_rows()
        (answer,) = await asking.dimension.lookup(typed(3), columns=["size"], timeout_s=None)

    assert answer.rows is not None
    assert answer.rows.to_pylist() == [{"size": 5_000_000_000}]


async def test_changed_key_type_heals(table: PostgresSettings, database: Database) -> None:
    """Keys are asked for in the type that they have now."""
    async with under_load(table) as asking:
        await asyncio.to_thread(
            database.execute, "ALTER TABLE dimension ALTER COLUMN id TYPE text USING id::text"
        )
        await asking.wait_for(CHANGED)

        schema = await asking.dimension.wait_until_described(PATIENCE_S)
    assert schema.key == pa.schema({"id": pa.utf8()})


@pytest.mark.parametrize(
    ("trouble", "remedy", "code"),
    [
        (
            "ALTER TABLE dimension RENAME TO moved",
            "ALTER TABLE moved RENAME TO dimension",
            ErrorCode.TABLE_UNAVAILABLE,
        ),
        (
            "REVOKE SELECT ON dimension FROM watcher",
            "GRANT SELECT ON dimension TO watcher",
            ErrorCode.FORBIDDEN,
        ),
    ],
)
async def test_unfit_table_is_found_fit_again(
    table: PostgresSettings, database: Database, trouble: str, remedy: str, code: ErrorCode
) -> None:
    """While it is away everybody is told why; when it is back rows come, without a restart."""
    async with under_load(table) as asking:
        await asyncio.to_thread(database.execute, trouble)
        await asking.wait_for(f"refused {code}")
        await asyncio.to_thread(database.execute, remedy)
        await asking.wait_for_rows()

    wrong = {word for word in asking.words if not word.startswith("row")}
    assert wrong <= {f"refused {code}", f"error {code}", CHANGED}


async def test_another_table_under_the_name_is_read_anew(
    table: PostgresSettings, database: Database
) -> None:
    """Rows that were cached of a table that went are not those of its successor."""
    async with at_work(table) as dimension:
        assert await _names(dimension, 1) == {0: "fetched one"}
        await asyncio.to_thread(database.execute, "ALTER TABLE dimension RENAME TO former")
        assert await _names(dimension, 2) == {0: "error table_unavailable"}
        await asyncio.to_thread(
            database.execute,
            "CREATE TABLE successor (LIKE former INCLUDING ALL)",
            "INSERT INTO successor VALUES (1, 'uno', 1)",
            "GRANT SELECT ON successor TO watcher",
            "ALTER TABLE successor RENAME TO dimension",
        )
        await _wait_until_fit(dimension)

        assert await _names(dimension, 1, 2) == {0: "fetched uno", 1: "missing"}


async def test_swapped_table_shows_when_rows_expire(
    table: PostgresSettings, database: Database
) -> None:
    """A table exchanged for one of the same columns is no change that a query would meet."""
    async with at_work(table) as dimension:
        assert await _names(dimension, 1) == {0: "fetched one"}
        await asyncio.to_thread(database.execute, *SWAP)

        assert await _names(dimension, 1, 2) == {0: "hit one", 1: "fetched due"}


async def test_swapped_table_is_described_as_another(
    table: PostgresSettings, database: Database
) -> None:
    """Whoever describes a followed table now and then sees that, and forgets what was cached."""
    async with PostgresBackend(table) as backend:
        former = await backend.describe(timeout_s=PATIENCE_S)
        again = await backend.describe(timeout_s=PATIENCE_S)
        await asyncio.to_thread(database.execute, *SWAP)
        present = await backend.describe(timeout_s=PATIENCE_S)

    assert former.is_same(again)
    assert not former.is_same(present)
    assert present.still_offers(former)


async def _names(dimension: Dimension, *keys: int) -> dict[int, str]:
    return told(await dimension.lookup(typed(*keys), columns=["name"], timeout_s=None))


async def _wait_until_fit(dimension: Dimension) -> None:
    async with asyncio.timeout(HEALED_S):
        await until(lambda: is_fit(dimension))


# Streams


@asynccontextmanager
async def stream(table: PostgresSettings, *columns: str) -> AsyncIterator[Peer]:
    """A peer with a channel to these columns; what it was told of them is checked."""
    async with PostgresBackend(table) as backend:

        def make(settings: DimensionSettings, _: FakeBackend) -> Dimension:
            return Dimension(settings, backend)

        setting = Setting(timeouts=Timeouts(describe_s=PATIENCE_S), customers=SETTINGS, make=make)
        async with streaming(setting) as service:
            peer = await service.connect()
            await peer.greet()
            await peer.send(open_frame(columns=columns))
            peer.columns = (await peer.receive(frames.Opened)).columns
            yield peer


async def _answers(peer: Peer, sequences: range) -> list[dict[int, str]]:
    return [await peer.answer(await peer.ask(sequence, 7)) for sequence in sequences]


async def test_stream_of_unchanged_columns_goes_on(
    table: PostgresSettings, database: Database
) -> None:
    """A channel that did not ask for the column that changed loses one lookup, not its way."""
    async with stream(table, "name") as peer:
        assert await _answers(peer, range(1, 2)) == [{0: "fetched seven"}]
        await asyncio.to_thread(database.execute, "ALTER TABLE dimension DROP COLUMN size")

        assert await _answers(peer, range(2, 4)) == [{0: CHANGED}, {0: "fetched seven"}]


async def test_stream_of_a_changed_column_is_told_so(
    table: PostgresSettings, database: Database
) -> None:
    """It never gets rows of another type; a channel that is opened then gets the new ones."""
    async with stream(table, "name", "size") as peer:
        assert await _answers(peer, range(1, 2)) == [{0: "fetched seven"}]
        await asyncio.to_thread(
            database.execute, "ALTER TABLE dimension ALTER COLUMN size TYPE text"
        )
        assert await _answers(peer, range(2, 5)) == [{0: CHANGED}] * 3

        assert (await peer.open(2)).columns.field("size").type == pa.utf8()
        assert await peer.answer(await peer.ask(1, 7, channel=2)) == {0: "fetched seven"}
