"""What Debezium tells of a row is what a query brings, bit for bit, or it counts as not told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from demo.live.changelog import unix_relay
from lookup_core.changelog.change_decoder import DecoderSettings, RowChanges
from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.table.reload import same_rows
from service.connectors.kafka.changelog import KafkaChangelog
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from tests.integration.kafka_reading import Reading, reading
from tests.integration.told_values import LONG_TEXT, NO_NUMBER, ToldValues
from tools.processes.postgres_server import Database

CONVERTER = "value.converter"
# With the schemas of Kafka Connect, which also writes defaults instead of NULL.
SCHEMAS = (
    f"{CONVERTER}=org.apache.kafka.connect.json.JsonConverter",
    f"{CONVERTER}.schemas.enable=true",
    f"{CONVERTER}.replace.null.with.default=true",
)
# Without schemas, but in forms that need none.
TEXTS = (
    "decimal.handling.mode=string",
    "time.precision.mode=isostring",
    "binary.handling.mode=base64",
)
PARTS = ToldValues("parts", has_full_identity=False)
WHOLE = ToldValues("whole", has_full_identity=True)
TEXTUAL = ToldValues("textual", has_full_identity=True)


@dataclass(frozen=True, slots=True)
class Followed:
    """A table with its changes, and its rows as queries bring them."""

    table: ToldValues
    database: Database
    told: Reading
    backend: PostgresBackend

    async def begin(self) -> None:
        """Wait until changes are told: those before the connector's start are not."""
        while not self.told.changes:
            name = self.table.name
            probe = f"INSERT INTO {name} SELECT coalesce(min(id), 1) - 1 FROM {name}"
            await asyncio.to_thread(self.database.execute, probe)
            await self.told.read()

    async def holes(self, *statements: str) -> set[int]:
        """The keys that are not told after the statements; the others are as queries bring them."""
        await asyncio.to_thread(self.database.execute, *statements)
        await self.told.until(lambda: len(self._told_keys()) == len(self.table.rows))
        told = [each for each in self.told.changes if isinstance(each, RowChanges)]
        self.told.changes.clear()
        return {key for each in told for key in await self._holes(each)}

    async def _holes(self, told: RowChanges) -> Sequence[int]:
        fetched = await self.backend.fetch(told.keys, timeout_s=5.0)
        assert fetched.ordinals.tolist() == list(range(told.keys.num_rows))
        is_wrong = told.has_row & ~same_rows(told.rows, fetched.rows)
        assert not is_wrong.any(), told.keys.filter(pa.array(is_wrong)).to_pylist()
        return told.keys.filter(pa.array(~told.has_row))["id"].to_pylist()

    def _told_keys(self) -> set[int]:
        return {key for key in self.told.keys if key > 0}


@asynccontextmanager
async def following(
    table: ToldValues, database: Database, kafka: KafkaBroker, *, options: tuple[str, ...]
) -> AsyncIterator[tuple[Followed, CapturedTable]]:
    """Make the table, and read what a connector with these options will tell of it."""
    table.create(database)
    settings = PostgresSettings(database.dsn(), table.name, ("id",))
    with unix_relay(f"{database.socket_folder}/.s.PGSQL.5432") as port:
        captured = CapturedTable(
            port, database.name, f"public.{table.name}", prefix=table.name, options=options
        )
        await create_topic(kafka.address, captured.topic)
        async with PostgresBackend(settings) as backend:
            schema = await backend.describe(timeout_s=5.0)
            source = changelog(captured, kafka, schema)
            async with reading(source[0], source=source[1]) as told:
                yield Followed(table, database, told, backend), captured


def changelog(
    captured: CapturedTable, kafka: KafkaBroker, schema: DimensionSchema
) -> tuple[KafkaSettings, KafkaChangelog]:
    """The changelog, as a dimension of the table has it."""
    origin = schema.origin
    assert origin is not None
    assert origin.reports_rows
    decoder = DecoderSettings(
        origin.name, with_rows=True, has_full_identity=origin.has_full_identity
    )
    settings = KafkaSettings((kafka.address,), captured.topic)
    source = KafkaChangelog(
        settings, lambda _: DebeziumDecoder(schema, decoder, loads=orjson.loads)
    )
    return settings, source


@pytest.mark.parametrize(
    ("table", "options", "open_values"),
    [(PARTS, SCHEMAS, ()), (WHOLE, SCHEMAS, ()), (TEXTUAL, TEXTS, (NO_NUMBER,))],
    ids=["schemas", "full_identity", "texts"],
)
async def test_told_rows_are_those_of_queries(
    kafka: KafkaBroker,
    followed: Database,
    libraries: Path,
    *,
    tmp_path: Path,
    table: ToldValues,
    options: tuple[str, ...],
    open_values: tuple[str, ...],
) -> None:
    """Each value of each type, inserted or left as it is by an update; holes are as expected."""
    async with following(table, followed, kafka, options=options) as (rows, captured):
        with debezium_connector(tmp_path, captured, brokers=kafka.address, libraries=libraries):
            await rows.begin()
            inserted = await rows.holes(*table.inserts())
            updated = await rows.holes(f"UPDATE {table.name} SET touched = 1 WHERE id > 0")

    expected = table.holes | table.keys_of(*open_values)
    not_sent_again = set() if table.has_full_identity else table.keys_of(LONG_TEXT)
    assert (inserted, updated) == (expected, expected | not_sent_again)
