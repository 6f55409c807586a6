"""Debezium for tables of PostgreSQL: a process that writes the changes of each to a topic.

Their server must have `wal_level = logical`; snapshots are not taken, changes only.
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
    """Which table, perhaps with others, and how its server is reached over TCP."""

    port: int
    database: str
    table: str  # with its schema
    prefix: str = "sidelook"  # of the topics, and the name of the slot
    has_schemas: bool = False  # whether each message brings its schema
    others: tuple[str, ...] = ()  # of the same database, as `table`
    options: tuple[str, ...] = ()  # of the connector, besides these: name=value

    @property
    def topic(self) -> str:
        """Where the changes go."""
        return self.topic_of(self.table)

    def topic_of(self, table: str) -> str:
        """Where the changes of one of several tables go."""
        return f"{self.prefix}.{table}"

    @property
    def heartbeat_topic(self) -> str:
        """Where it says that it is alive, once a second."""
        return f"__debezium-heartbeat.{self.prefix}"


@contextmanager
def debezium_connector(
    folder: Path, captured: CapturedTable, *, brokers: str, libraries: Path
) -> Iterator[JavaProcess]:
    """A connector that runs until the end; it takes seconds until the first change comes.

    Started again in the same folder it goes on where it was.
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
    process.start("org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(connector))
    try:
        yield process
    finally:
        process.stop()
