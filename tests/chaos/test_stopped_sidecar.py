"""A sidecar that is stopped by SIGSTOP, as a paused container is, while its table changes."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.keys.canonical_keys import canonical_keys
from spark_client.transport.shared_cache import MappedCache
from tests.integration.notifications.trigger_messages import CHANNEL, make_triggers
from tests.integration.sidecars import postgres_sidecar
from tools.processes.postgres_server import Database, running_postgres
from tools.processes.sidecar_process import SidecarProcess, UnixConnection
from tools.processes.until import until

PATH = "/v1/dimensions/customers"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def database() -> Iterator[Database]:
    """A server with customers, of which one is named `old`."""
    with running_postgres() as server:
        database = server.new_database()
        database.execute(
            "CREATE TABLE customers (id int PRIMARY KEY, name text)",
            "INSERT INTO customers VALUES (1, 'old')",
        )
        make_triggers(database, "customers", ["id"])
        yield database


@pytest.fixture
def sidecar(database: Database) -> Iterator[SidecarProcess]:
    """A sidecar that follows the customers by notifications; it is not started."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))
    own = {"refresh": {"listen": {"channel": CHANNEL}}, "cache": {"ttl": "1h"}}
    yield postgres_sidecar(folder, database.dsn(), {"customers": own})
    shutil.rmtree(folder, ignore_errors=True)


def outcome(sidecar: SidecarProcess) -> Sequence[object]:
    """The outcome of a lookup."""
    answer = sidecar.post(f"{PATH}/lookup", {"keys": [1]}).json()
    return [answer["outcomes"], [row["name"] for row in answer["rows"]]]


def shared_cache(sidecar: SidecarProcess) -> MappedCache:
    """The cache of the customers, as a worker maps it."""
    folder = sidecar.get(PATH).json()["cache"]["shared"]["folder"]
    return MappedCache(sidecar.socket.parent / folder)


def names_in(cache: MappedCache) -> list[str] | None:
    """The names that a worker finds in the cache; None without a lease."""
    reader = cache.reader()
    if reader is None:
        return None
    keys = pa.record_batch([pa.array([1], pa.int32())], names=["id"])
    found = reader.read(canonical_keys(keys, seed=cache.description.seed), ["name"], cache.clock())
    return list(found.rows.rows.column(0).to_pylist())


def test_stopped_sidecar_serves_no_former_rows(sidecar: SidecarProcess, database: Database) -> None:
    """After a stop, neither workers nor callers get a row that changed meanwhile."""
    with sidecar.running() as process, closing(UnixConnection(sidecar.socket)) as caller:
        until(lambda: outcome(sidecar) == [["hit"], ["old"]])
        cache = shared_cache(sidecar)
        until(lambda: names_in(cache) == ["old"])
        caller.connect()

        os.kill(process.pid, signal.SIGSTOP)
        try:
            database.execute("UPDATE customers SET name = 'new'")
            until(lambda: names_in(cache) is None)
            caller.request("POST", f"{PATH}/lookup", json.dumps({"keys": [1]}), JSON)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        while (names := names_in(cache)) is None:
            pass  # without a pause: a former row would be read for some milliseconds only

        assert names in ([], ["new"])
        answer = json.loads(caller.getresponse().read())
        assert answer["rows"] == [{"name": "new"}]
        until(lambda: outcome(sidecar) == [["hit"], ["new"]])
