"""A sidecar beside a database that a test may lock, and questions to it over one connection.

`quick` is a file, `slow` and `stuck` are tables: who locks one lets its lookups wait, however long.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.channel_session import ChannelSession
from spark_client.transport.connections import Address, Connections
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SERVE, SidecarProcess, clean_environ

KEY = pa.schema({"id": pa.int64()})
TABLES = ("slow", "stuck")
PATIENCE_S = 60.0


def lifecycle_sidecar(
    folder: Path, database: Database, environ: Mapping[str, str] | None = None
) -> SidecarProcess:
    """One that does not run yet; keys 1 to 100 have rows in both dimensions."""
    names = [f"c{number}" for number in range(1, 101)]
    quick = pa.table({"id": pa.array(range(1, 101), pa.int64()), "name": names})
    pq.write_table(quick, folder / "quick.parquet")
    for table in TABLES:
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (id int8 PRIMARY KEY, name text)",
            f"INSERT INTO {table} SELECT n, 'c' || n FROM generate_series(1, 100) AS n"
            " ON CONFLICT DO NOTHING",
        )
    dimensions = {table: _table(database, table) for table in TABLES}
    dimensions["quick"] = {"source": {"kind": "parquet", "path": "quick.parquet"}, "key": ["id"]}
    path = folder / "sidelook.yaml"
    path.write_text(json.dumps({"dimensions": dimensions}))
    command = (*SERVE, "--config", str(path))
    return SidecarProcess(folder, command, {**clean_environ(), **(environ or {})})


def _table(database: Database, name: str) -> dict[str, object]:
    source = {"kind": "postgres", "dsn": database.dsn(), "table": name}
    return {"source": source, "key": ["id"], "timeout": "30s", "cache": {"mode": "none"}}


@dataclass(slots=True)
class Asker:
    """A client as a Spark task is one, with a channel to one dimension."""

    session: ChannelSession
    names: dict[int, str] = field(default_factory=dict)  # {question: what came}

    def ask(self, question: int, key: int) -> None:
        """Send a question of one key."""
        keys = pa.record_batch([pa.array([key], pa.int64())], schema=KEY)
        asked = SentKeys(QuestionId(question), keys, time.monotonic() + PATIENCE_S)
        self.session.look_up(asked)

    def wait_for(self, count: int, *, within_s: float = PATIENCE_S) -> dict[int, str]:
        """The names that came for so many questions; none may come twice."""
        deadline_s = time.monotonic() + within_s
        while len(self.names) < count:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{len(self.names)} of {count} answers within {within_s:g} s"
            for each in self.session.answers(left_s):
                question = int(each.question)
                assert question not in self.names, "answered twice"
                rows = each.answer.rows
                self.names[question] = "" if rows is None else str(rows["name"][0].as_py())
        return self.names


def askers(sidecar: SidecarProcess) -> dict[str, Asker]:
    """One for each dimension, on one connection, as one process has them."""
    connection = Connections().to(Address(f"unix://{sidecar.socket}", None, PATIENCE_S))
    return {
        name: Asker(connection.open(ChannelRequest(name, ("name",), "a test", KEY)))
        for name in ("quick", *TABLES)
    }
