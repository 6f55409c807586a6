"""Changes of a PostgreSQL table through logical decoding, a real Debezium and Kafka."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pyarrow as pa
import pytest

from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from demo.live.changelog import unix_relay
from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, DecoderSettings, RowChanges
from lookup_core.changelog.event_origin import EventOrigins
from lookup_core.changelog.format import DECODERS, ChangelogFormat
from lookup_core.table.reload import same_rows
from service.connectors.kafka.changelog import KafkaChangelog
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.feeds.kafka_reading import PATIENCE_S, Reading, reading
from tests.integration.feeds.typed_values import LONG_TEXT, TypedValues
from tests.integration.lookups.tables import described, put_table
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
EXPECTED = {  # {key: its events, in order}
    "N2": [{"model": "B", "seats": 20}],
    "N4": [{"model": "D", "seats": None}, GONE],
    "N5": [{"model": "D", "seats": None}],
    "N3": [GONE],
}
PROBE = "probe"
PROBE_PLANE = f"INSERT INTO planes VALUES ('{PROBE}' || random())"
END_OF_MAP = b"x"  # of a serialized map in Java
KEEPS_LOG = "flush.lsn.source=false"  # so that the connector can restart at any position

CONVERTER = "value.converter"
SCHEMAS = (  # of Kafka Connect; NULLs are replaced by defaults
    f"{CONVERTER}=org.apache.kafka.connect.json.JsonConverter",
    f"{CONVERTER}.schemas.enable=true",
    f"{CONVERTER}.replace.null.with.default=true",
)
TEXTS = (  # value formats that need no schema
    "decimal.handling.mode=string",
    "time.precision.mode=isostring",
    "binary.handling.mode=base64",
)
PARTS = TypedValues("parts", has_full_identity=False)
WHOLE = TypedValues("whole", has_full_identity=True)
TEXTUAL = TypedValues("textual", has_full_identity=True)
NUMERIC = TypedValues("numbers", has_full_identity=True)

HOSTILE = (
    "datestyle = 'German, DMY'",
    "intervalstyle = 'sql_standard'",
    "timezone = 'Asia/Kolkata'",
    "default_transaction_isolation = 'serializable'",
)

Connector = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Captured:
    """A table, the connector of its changes, and a reader of its topic."""

    database: Database
    backend: PostgresBackend
    read: Reading
    connector: Connector

    async def begin(self, probe: str) -> None:
        """Insert probe rows until the connector, which has to start, sends a change."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.read.changes:
                await self.run(probe)
                await self.read.read()

    async def run(self, *statements: str) -> None:
        """Execute statements."""
        await asyncio.to_thread(self.database.execute, *statements)

    def row_changes(self) -> list[RowChanges]:
        """The changes of rows."""
        return [each for each in self.read.changes if isinstance(each, RowChanges)]


@asynccontextmanager
async def capturing(
    table: PostgresSettings,
    database: Database,
    kafka: KafkaBroker,
    *,
    folder: Path,
    libraries: Path,
    options: tuple[str, ...] = (),
) -> AsyncIterator[Captured]:
    """Read the changes of the table; the connector is not started."""
    name = table.table.replace('"', "").partition(".")[2]
    async with described(table) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        origin = schema.origin
        assert origin is not None
        assert origin.reports_rows is not origin.is_partitioned
        with unix_relay(database.socket_path) as port:
            captured = CapturedTable(
                port, database.name, f"public.{name}", prefix=folder.name, options=options
            )
            settings = KafkaSettings(
                (kafka.address,),
                captured.topic,
                heartbeat_topic=captured.heartbeat_topic,
                discovery_interval_s=0.5,
            )
            decoder = DECODERS[ChangelogFormat.DEBEZIUM_JSON](
                schema,
                settings=DecoderSettings(
                    EventOrigins(captured.table, database=database.name, server=folder.name),
                    with_rows=origin.reports_rows,
                    has_full_identity=origin.has_full_identity,
                    loses_keys=origin.loses_keys,
                ),
                loads=orjson.loads,
            )
            await create_topic(kafka.address, captured.topic)
            connector = partial(
                debezium_connector, folder, captured, brokers=kafka.address, libraries=libraries
            )
            source = KafkaChangelog(settings, lambda _: decoder)
            async with reading(settings, source=source) as read:
                yield Captured(database, backend, read, connector)


@pytest.mark.real_path
async def test_changes_of_a_table_are_read(
    kafka: KafkaBroker, followed: Database, tmp_path: Path, *, libraries: Path
) -> None:
    """Each statement becomes its events with their transactions; heartbeats move the watermark."""
    table = put_table(followed, PLANES, key=["tailnum"], name="planes")
    async with capturing(table, followed, kafka, folder=tmp_path, libraries=libraries) as planes:
        with planes.connector() as process:
            read = planes.read
            await planes.begin(PROBE_PLANE)
            await planes.run(*CHANGES)
            await read.until(lambda: read.flushes)
            before_ms = max(each.watermark_ms for each in read.latest.values())
            await read.until(
                lambda: min(each.watermark_ms for each in read.latest.values()) > before_ms
            )
            assert process.is_running, process.log.read_text()

    assert events_by_key(planes.row_changes()) == EXPECTED


async def test_changes_of_partitions_have_the_name_of_the_table(
    kafka: KafkaBroker, followed: Database, tmp_path: Path, *, libraries: Path
) -> None:
    """With publish_via_partition_root, changes of all partitions are read, also attached ones."""
    followed.execute(
        "CREATE TABLE whole (id int PRIMARY KEY, note text) PARTITION BY LIST (id)",
        "CREATE TABLE rest PARTITION OF whole DEFAULT",
        "CREATE PUBLICATION whole FOR TABLE whole WITH (publish_via_partition_root = true)",
    )
    table = PostgresSettings(followed.dsn(), "public.whole", ("id",), needs_publication=True)
    options = ("publication.name=whole", "publication.autocreate.mode=disabled")
    async with capturing(
        replace(table, is_followed=True),
        *(followed, kafka),
        folder=tmp_path,
        libraries=libraries,
        options=options,
    ) as captured:
        read = captured.read
        with captured.connector():
            await captured.begin("INSERT INTO whole SELECT coalesce(min(id), 1) - 1 FROM whole")
            await captured.run(
                "INSERT INTO rest VALUES (1, 'a')",
                "CREATE TABLE more (note text, id int NOT NULL)",
                "ALTER TABLE whole ATTACH PARTITION more FOR VALUES IN (2, 3)",
                "INSERT INTO more VALUES ('b', 2)",
                "UPDATE whole SET id = 3 WHERE id = 1",
                "DELETE FROM more WHERE id = 3",
                "INSERT INTO whole VALUES (4)",
            )
            await read.until(lambda: 4 in read.keys)

    changed = [key for key in dict.fromkeys(read.keys) if key > 0]
    assert changed == [1, 2, 3, 4]
    assert [key for key in read.keys if key == 1] == [1, 1]


def events_by_key(changes: Sequence[RowChanges]) -> dict[str, list[object]]:
    """The new row of each event, or GONE; all must have transactions."""
    found: dict[str, list[object]] = {}
    for change in changes:
        rows = change.rows.to_pylist()
        for index, key in enumerate(change.keys["tailnum"].to_pylist()):
            row = rows[index] if change.has_row[index] else None
            event = GONE if change.is_gone[index] else row
            if change.transaction_ids[index] == UNKNOWN_TRANSACTION:
                # A tombstone that was read separately from the deletion before it.
                assert (found[key][-1], event) == (GONE, None)
            else:
                found.setdefault(key, []).append(event)
    return {key: events for key, events in found.items() if not key.startswith(PROBE)}


async def test_repeated_events_restore_no_row(
    kafka: KafkaBroker, followed: Database, tmp_path: Path, *, libraries: Path
) -> None:
    """If a connector restarts at an earlier position, repeated events carry no row."""
    table = put_table(followed, PLANES, key=["tailnum"], name="planes")
    offsets, former = tmp_path / "offsets", tmp_path / "former"
    async with capturing(
        table, followed, kafka, folder=tmp_path, libraries=libraries, options=(KEEPS_LOG,)
    ) as planes:
        with planes.connector():
            await planes.begin(PROBE_PLANE)
            await asyncio.to_thread(until, lambda: is_copied(offsets, former))
            await change_seats(planes, seats=10)
        shutil.copy(former, offsets)
        with planes.connector():
            await change_seats(planes, seats=20)

    assert planes.read.flushes == []
    assert seats_of(planes) == [10, 11, 12, *(None, None, 12), 20, 21, 22]


def is_copied(offsets: Path, copy: Path) -> bool:
    """Copy the file; whether it was complete, since the connector rewrites it repeatedly."""
    if not offsets.exists():
        return False
    shutil.copy(offsets, copy)
    return copy.read_bytes().endswith(END_OF_MAP)


async def change_seats(planes: Captured, *, seats: int) -> None:
    """Commit three changes; the second was written before the first."""
    update = "UPDATE planes SET seats = %s WHERE tailnum = %s"
    dsn = planes.database.dsn()
    async with await psycopg.AsyncConnection.connect(dsn) as late:
        await late.execute(update, [seats + 1, "N1"])
        async with await psycopg.AsyncConnection.connect(dsn) as early:
            await early.execute(update, [seats, "N2"])
        await late.commit()
        await late.execute(update, [seats + 2, "N1"])
    await planes.read.until(lambda: seats_of(planes)[-1:] == [seats + 2])


def seats_of(planes: Captured) -> list[int | None]:
    """The seats in each event, in order; None for an event without a row."""
    return [
        row["seats"] if has_row else None
        for change in planes.row_changes()
        for key, row, has_row in zip(
            change.keys["tailnum"].to_pylist(), change.rows.to_pylist(), change.has_row, strict=True
        )
        if not key.startswith(PROBE)
    ]


@pytest.mark.parametrize(
    ("values", "options"),
    [(PARTS, SCHEMAS), (WHOLE, SCHEMAS), (TEXTUAL, TEXTS), (NUMERIC, ())],
    ids=["schemas", "full_identity", "texts", "numbers"],
)
async def test_rows_of_events_equal_queries(
    kafka: KafkaBroker,
    followed: Database,
    libraries: Path,
    *,
    tmp_path: Path,
    values: TypedValues,
    options: tuple[str, ...],
) -> None:
    """A row of an event equals the queried row in every type, or the event carries no row.

    Settings of the database that the catalog does not check change none.
    """
    values.create(followed)
    name = values.name
    table = PostgresSettings(followed.dsn(), f"public.{name}", ("id",))
    async with capturing(
        table, followed, kafka, folder=tmp_path, libraries=libraries, options=options
    ) as captured:
        for setting in HOSTILE:
            await captured.run(f"ALTER DATABASE {followed.name} SET {setting}")
        with captured.connector():
            probe = f"INSERT INTO {name} SELECT coalesce(min(id), 1) - 1 FROM {name}"
            await captured.begin(probe)
            inserted = await rowless_keys(captured, values, *values.inserts())
            update = f"UPDATE {name} SET touched = 1 WHERE id > 0"
            updated = await rowless_keys(captured, values, update)

    expected = values.holes if options else values.holes | values.whole_milliseconds
    not_sent_again = set() if values.has_full_identity else values.keys_of(LONG_TEXT)
    assert (inserted, updated) == (expected, expected | not_sent_again)


async def rowless_keys(captured: Captured, values: TypedValues, *statements: str) -> set[int]:
    """The keys of events without a row after the statements; other rows must equal queries."""
    read = captured.read
    await captured.run(*statements)
    await read.until(lambda: len({key for key in read.keys if key > 0}) == len(values.rows))
    changes = captured.row_changes()
    read.changes.clear()
    rowless: set[int] = set()
    for change in changes:
        fetched = await captured.backend.fetch(change.keys, timeout_s=PATIENCE_S)
        assert fetched.ordinals.tolist() == list(range(change.keys.num_rows))
        is_wrong = change.has_row & ~same_rows(change.rows, fetched.rows)
        assert not is_wrong.any(), change.keys.filter(pa.array(is_wrong)).to_pylist()
        rowless.update(change.keys.filter(pa.array(~change.has_row))["id"].to_pylist())
    return rowless


@pytest.mark.parametrize("mode", ["string", "double", "precise"])
async def test_decimal_keys_drop_their_rows(
    kafka: KafkaBroker, followed: Database, tmp_path: Path, *, libraries: Path, mode: str
) -> None:
    """In each mode of decimals, also without schemas, a changed key is reported, not the table."""
    name = f"amounts_{mode}"
    followed.execute(f"CREATE TABLE {name} (id numeric(12, 0) PRIMARY KEY, note text)")
    table = PostgresSettings(followed.dsn(), f"public.{name}", ("id",))
    options = (f"decimal.handling.mode={mode}",)
    ids = {1234, 12345, 12345678, 123456789012}
    async with capturing(
        table, followed, kafka, folder=tmp_path, libraries=libraries, options=options
    ) as captured:
        with captured.connector():
            await captured.begin(f"INSERT INTO {name} SELECT coalesce(min(id), 1) - 1 FROM {name}")
            await captured.run(*(f"INSERT INTO {name} VALUES ({each})" for each in ids))
            await captured.run(f"UPDATE {name} SET note = 'x' WHERE id > 0")
            await captured.run(f"DELETE FROM {name} WHERE id > 0")
            read = captured.read
            await read.until(lambda: all(read.counts[each] >= 3 for each in ids))

    assert read.flushes == []
