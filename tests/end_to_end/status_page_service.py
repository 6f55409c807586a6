"""A sidecar whose page is looked at: PostgreSQL and Parquet behind it, many channels before it.

What the page must show is the tests' business.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tools.processes.postgres_server import PostgresServer, running_postgres
from tools.processes.sidecar_process import (
    ROOT,
    SERVE,
    SidecarProcess,
    clean_environ,
    free_port,
)

CHANNELS = 300  # of `places`
TOKEN = "token-of-the-page"
_PLACES = pa.table({"id": pa.array(range(5), pa.int64()), "place": list("abcde")})


@dataclass(frozen=True, slots=True)
class Watched:
    """A sidecar that has a page."""

    sidecar: SidecarProcess
    http_port: int

    @property
    def url(self) -> str:
        """Of its page."""
        return f"http://127.0.0.1:{self.http_port}/"


@dataclass(frozen=True, slots=True)
class Busy:
    """The same, with its database, while it is asked for rows."""

    watched: Watched
    postgres: PostgresServer


@contextmanager
def busy_service(folder: Path) -> Iterator[Busy]:
    """A sidecar under load."""
    with running_postgres() as postgres:
        database = postgres.new_database()
        database.execute(
            "CREATE TABLE customers (id bigint PRIMARY KEY, name text)",
            "INSERT INTO customers SELECT id, 'name ' || id FROM generate_series(0, 40) id",
        )
        source = {"kind": "postgres", "table": "public.customers", "dsn": database.dsn()}
        customers = {"source": source, "key": ["id"], "timeout": "1s", "retry": {"max_retries": 0}}
        watched = _watched(folder, {"customers": customers, "places": _places(folder)})
        with watched.sidecar.running(), _load(f"unix://{watched.sidecar.socket}"):
            yield Busy(watched, postgres)


def quiet_service(folder: Path) -> Watched:
    """A sidecar that asks for a token, and that nobody has asked for anything; not started."""
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o400)
    auth = {"token_file": str(token)}
    return _watched(folder, {"places.of-2_kinds": _places(folder)}, auth=auth)


def _watched(folder: Path, dimensions: dict[str, object], **settings: object) -> Watched:
    config, port = folder / "sidelook.yaml", free_port()
    config.write_text(json.dumps({**settings, "dimensions": dimensions}))  # which is YAML, too
    environ = {**clean_environ(), "SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{port}"}
    return Watched(SidecarProcess(folder, (*SERVE, "--config", str(config)), environ), port)


def _places(folder: Path) -> dict[str, object]:
    path = folder / "places.parquet"
    pq.write_table(_PLACES, path)
    source = {"kind": "parquet", "path": str(path)}
    return {"source": source, "key": ["id"], "timeout": "20s"}


@contextmanager
def _load(endpoint: str) -> Iterator[None]:
    program = (sys.executable, "-m", "tests.end_to_end.page_load", endpoint, str(CHANNELS))
    with subprocess.Popen(program, cwd=ROOT) as process:
        try:
            yield
            assert process.poll() is None, "the load ended early"
        finally:
            process.send_signal(signal.SIGKILL)
