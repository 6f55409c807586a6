"""Changes of a real table, through PostgreSQL's logical decoding, Debezium and Kafka."""

import asyncio
import shutil
from functools import partial
from pathlib import Path

import orjson
import psycopg
import pyarrow as pa
import pytest

from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from demo.live.changelog import unix_relay
from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, DecoderSettings, RowChanges
from lookup_core.changelog.format import ChangelogFormat, decoder_for
from lookup_core.dimension_schema import DimensionSchema
from service.connectors.kafka.changelog import KafkaChangelog
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.postgres.backend import PostgresBackend
from tests.integration.kafka_reading import PATIENCE_S, Reading, reading
from tests.integration.postgres_tables import put_table
from tools.processes.postgres_server import Database
from tools.processes.until import until

PLANES = pa.table(
    {
        "tailnum": ["N1", "N2", "N3"],
        "model": ["A", "B", "C"],
        "seats": pa.array([1, 2, 3], pa.int32()),
    }
)
CHANGES = (
    "UPDATE planes SET seats = 20 WHERE tailnum = 'N2'",
    "INSERT INTO planes VALUES ('N4', 'D', NULL)",
    "UPDATE planes SET tailnum = 'N5' WHERE tailnum = 'N4'",
    "DELETE FROM planes WHERE tailnum = 'N3'",
    "TRUNCATE planes",
)
GONE = "gone"
EXPECTED = {  # {key: what was told of it, in this order}
    "N2": [{"model": "B", "seats": 20}],
    "N4": [{"model": "D", "seats": None}, GONE],
    "N5": [{"model": "D", "seats": None}],
    "N3": [GONE],
}
PROBE = "probe"
END_OF_MAP = b"x"  # Java's serialized maps end so
KEEPS_LOG = "flush.lsn.source=false"  # the server, so that any place can be gone back to


@pytest.mark.parametrize(
    "has_schemas",
    [pytest.param(False, marks=pytest.mark.real_path), True],
    ids=["bare", "with_schemas"],
)
async def test_changes_of_a_table_are_told(
    kafka: KafkaBroker, followed: Database, tmp_path: Path, *, libraries: Path, has_schemas: bool
) -> None:
    """Updates, inserts, deletions and truncations are told with their transactions, and soon."""
    table = put_table(followed, PLANES, key=["tailnum"], name="planes")
    async with PostgresBackend(table) as backend:
        schema = await backend.describe(timeout_s=5.0)
    with unix_relay(f"{followed.socket_folder}/.s.PGSQL.5432") as port:
        prefix = f"dbz_{has_schemas}".lower()
        captured = CapturedTable(
            port, followed.name, "public.planes", prefix=prefix, has_schemas=has_schemas
        )
        settings, source = source_of(captured, kafka, schema)
        await create_topic(kafka.address, captured.topic, partitions=2)
        connector = debezium_connector(
            tmp_path, captured, brokers=kafka.address, libraries=libraries
        )
        with connector as process:
            async with reading(settings, source=source) as told:
                await connected(told, followed)
                await asyncio.to_thread(followed.execute, *CHANGES)
                await told.until(lambda: told.flushes)
                heartbeat_ms = max(each.watermark_ms for each in told.latest.values())
                await told.until(
                    lambda: min(each.watermark_ms for each in told.latest.values()) > heartbeat_ms
                )
            assert process.is_running, process.log.read_text()

    assert changes_by_key(told) == EXPECTED


def source_of(
    captured: CapturedTable, kafka: KafkaBroker, schema: DimensionSchema
) -> tuple[KafkaSettings, KafkaChangelog]:
    """The changelog of the table, and how it is reached."""
    settings = KafkaSettings(
        (kafka.address,),
        captured.topic,
        heartbeat_topic=captured.heartbeat_topic,
        discovery_interval_s=0.5,
    )
    decoder = decoder_for(
        ChangelogFormat.DEBEZIUM_JSON,
        schema,
        settings=DecoderSettings(captured.table, with_rows=True),
        loads=orjson.loads,
    )
    return settings, KafkaChangelog(settings, lambda _: decoder)


async def test_rows_told_again_are_not_applied(
    kafka: KafkaBroker, followed: Database, tmp_path: Path, *, libraries: Path
) -> None:
    """A connector that begins anew at a former place brings no former row, and goes on."""
    table = put_table(followed, PLANES, key=["tailnum"], name="planes")
    async with PostgresBackend(table) as backend:
        schema = await backend.describe(timeout_s=5.0)
    offsets, former = tmp_path / "offsets", tmp_path / "former"
    with unix_relay(f"{followed.socket_folder}/.s.PGSQL.5432") as port:
        captured = CapturedTable(
            port, followed.name, "public.planes", prefix="again", options=(KEEPS_LOG,)
        )
        settings, source = source_of(captured, kafka, schema)
        await create_topic(kafka.address, captured.topic)
        connector = partial(
            debezium_connector, tmp_path, captured, brokers=kafka.address, libraries=libraries
        )
        async with reading(settings, source=source) as told:
            with connector():
                await connected(told, followed)
                await asyncio.to_thread(
                    until, lambda: is_copied(offsets, former), within_s=PATIENCE_S
                )
                await change_and_read(followed, told, seats=10)
            shutil.copy(former, offsets)
            with connector():
                await change_and_read(followed, told, seats=20)

    assert (told.flushes, seats_of(told)) == ([], [10, 11, 12, *(None, None, 12), 20, 21, 22])


def is_copied(offsets: Path, copy: Path) -> bool:
    """Whether the file was there, and whole: it is written over and over, and empty in between."""
    if not offsets.exists():
        return False
    shutil.copy(offsets, copy)
    return copy.read_bytes().endswith(END_OF_MAP)


async def change_and_read(database: Database, told: Reading, *, seats: int) -> None:
    """Change planes three times, the second time by what was written before the first."""
    update = "UPDATE planes SET seats = %s WHERE tailnum = %s"
    async with await psycopg.AsyncConnection.connect(database.dsn()) as late:
        await late.execute(update, [seats + 1, "N1"])
        async with await psycopg.AsyncConnection.connect(database.dsn()) as early:
            await early.execute(update, [seats, "N2"])
        await late.commit()
        await late.execute(update, [seats + 2, "N1"])
    await told.until(lambda: seats_of(told)[-1:] == [seats + 2])


def seats_of(told: Reading) -> list[int | None]:
    """What was told of the planes, in its order; None: only that something has changed."""
    return [
        row["seats"] if has_row else None
        for change in told.changes
        if isinstance(change, RowChanges)
        for key, row, has_row in zip(
            change.keys["tailnum"].to_pylist(),
            change.rows.to_pylist(),
            change.has_row,
            strict=True,
        )
        if not key.startswith(PROBE)
    ]


async def connected(told: Reading, database: Database) -> None:
    """Wait until the connector tells of changes: it does not tell of those before its start."""
    async with asyncio.timeout(60.0):
        while not told.changes:
            probe = f"INSERT INTO planes VALUES ('{PROBE}' || random())"
            await asyncio.to_thread(database.execute, probe)
            await told.read()


def changes_by_key(told: Reading) -> dict[str, list[object]]:
    """What was told of each key: its new row, or that it is gone; all with their transactions."""
    found: dict[str, list[object]] = {}
    for change in told.changes:
        if isinstance(change, RowChanges):
            rows = change.rows.to_pylist()
            for index, key in enumerate(change.keys["tailnum"].to_pylist()):
                row = rows[index] if change.has_row[index] else None
                news = GONE if change.is_gone[index] else row
                if change.transaction_ids[index] == UNKNOWN_TRANSACTION:
                    # A tombstone that was read by itself, without the deletion before it.
                    assert (found[key][-1], news) == (GONE, None)
                else:
                    found.setdefault(key, []).append(news)
    return {key: told for key, told in found.items() if not key.startswith(PROBE)}
