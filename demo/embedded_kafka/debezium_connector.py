"""Debezium connector in a process: publishes the changes of PostgreSQL tables, one topic each.

The server needs `wal_level = logical`. Only changes are published, no snapshots.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.embedded_kafka.java_process import JavaProcess

_WORKER = """
bootstrap.servers={brokers}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable={has_schemas}
value.converter.schemas.enable={has_schemas}
key.converter.replace.null.with.default=false
value.converter.replace.null.with.default=false
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
listeners=HTTP://127.0.0.1:0
plugin.discovery=SERVICE_LOAD
"""
_CONNECTOR = """
name=changes
connector.class=io.debezium.connector.postgresql.PostgresConnector
tasks.max=1
database.hostname=127.0.0.1
database.port={port}
database.user=postgres
database.password=none
database.dbname={database}
database.sslmode=disable
topic.prefix={prefix}
plugin.name=pgoutput
slot.name={prefix}
publication.name={prefix}
table.include.list={tables}
snapshot.mode=no_data
publication.autocreate.mode=filtered
poll.interval.ms=50
heartbeat.interval.ms=1000
skipped.operations=none
"""


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """Captured tables of one database, and the TCP port of its server."""

    port: int
    database: str
    table: str  # with schema
    prefix: str = "sidelook"  # of the topics; also the name of the slot
    has_schemas: bool = False  # whether each message contains its schema
    others: tuple[str, ...] = ()  # more tables, also with schema
    options: tuple[str, ...] = ()  # more connector options, as name=value

    @property
    def topic(self) -> str:
        """Topic of `table`."""
        return self.topic_of(self.table)

    def topic_of(self, table: str) -> str:
        """Return the topic of a table."""
        return f"{self.prefix}.{table}"

    @property
    def heartbeat_topic(self) -> str:
        """Topic with one heartbeat per second."""
        return f"__debezium-heartbeat.{self.prefix}"


@contextmanager
def debezium_connector(
    folder: Path, captured: CapturedTable, *, brokers: str, libraries: Path
) -> Iterator[JavaProcess]:
    """Run a connector; the first change is published after some seconds.

    A connector in a used folder resumes at the last offset.
    """
    folder.mkdir(parents=True, exist_ok=True)
    worker, connector = folder / "worker.properties", folder / "connector.properties"
    has_schemas = str(captured.has_schemas).lower()
    worker.write_text(_WORKER.format(brokers=brokers, folder=folder, has_schemas=has_schemas))
    connector.write_text(
        _CONNECTOR.format(
            port=captured.port,
            database=captured.database,
            prefix=captured.prefix,
            tables=",".join((captured.table, *captured.others)),
        )
        + "\n".join(captured.options)
    )
    process = JavaProcess(folder, libraries=libraries, name="debezium")
    process.launch("org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(connector))
    try:
        yield process
    finally:
        process.stop()
