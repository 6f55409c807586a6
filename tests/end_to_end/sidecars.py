"""Sidecars as processes: configured with Parquet files, PostgreSQL tables, or TLS, and paused."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from service.tls.server_certificate import CertificateFiles
from tests.service.tls.certificates import Authority, authority
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import (
    ROOT,
    SERVE,
    Reply,
    SidecarProcess,
    clean_environ,
    free_port,
)

CUSTOMERS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "name": [f"customer {number}" for number in range(1000)],
        "tier": pa.array([number % 5 for number in range(1000)], pa.int32()),
    }
)
TEXTS = ["", " ", "a", "A", "a|b", "a,b", "é", "e\u0301", "\n", "\t'\"\\", "😀", "\u200b", "%s"]
TEXTS += ["NULL"]
PLACES = pa.table(
    {
        "text": [text for text in TEXTS for _ in range(2)],
        "number": pa.array([0, 1] * len(TEXTS), pa.int64()),
        "place": [None if text == "A" else f"<{text}>" for text in TEXTS for _ in range(2)],
    }
)
TIERS = pa.table({"tier": pa.array(range(5), pa.int32()), "label": list("abcde")})
HOST = "localhost"
PROGRAM_TIMEOUT_S = 60.0
THROTTLE_PERIOD_S = 0.1  # the kernel's own, of CPU limits


def configured(
    folder: Path,
    dimensions: Mapping[str, object],
    *,
    environ: Mapping[str, str] | None = None,
    **settings: Any,  # noqa: ANN401  # any YAML
) -> SidecarProcess:
    """A sidecar with this configuration, not started; paths are relative to the folder."""
    path = folder / "config.yaml"
    path.write_text(json.dumps({**settings, "dimensions": dimensions}))  # JSON is YAML
    return SidecarProcess(
        folder, (*SERVE, "--config", str(path)), {**clean_environ(), **(environ or {})}
    )


def parquet(folder: Path, name: str, rows: pa.Table, key: str, **settings: object) -> Any:  # noqa: ANN401  # any YAML
    """Settings of a dimension with these rows; `key` names its columns, separated by commas."""
    pq.write_table(rows, folder / f"{name}.parquet")
    source = {"kind": "parquet", "path": f"{name}.parquet"}
    return {"source": source, "key": key.split(","), **settings}


def postgres(dsn: str, table: str, **settings: object) -> dict[str, object]:
    """Settings of a dimension of a PostgreSQL table with the key `id`."""
    source = {"kind": "postgres", "dsn": dsn, "table": table}
    return {"source": source, "key": ["id"], **settings}


def customers_sidecar(folder: Path, **settings: Any) -> SidecarProcess:  # noqa: ANN401  # any YAML
    """Customers by number, places by text and number, and tiers by a small number."""
    dimensions = {
        "customers": parquet(folder, "customers", CUSTOMERS, "id", timeout="60s"),
        "places": parquet(folder, "places", PLACES, "text,number", timeout="60s"),
        "tiers": parquet(folder, "tiers", TIERS, "tier", timeout="60s"),
    }
    return configured(folder, dimensions, **settings)


def locked_sidecar(
    folder: Path,
    database: Database,
    tables: Sequence[str] = ("slow", "stuck"),
    environ: Mapping[str, str] | None = None,
) -> SidecarProcess:
    """A file `quick` and tables of PostgreSQL, whose lookups block while a test locks a table.

    Keys 1 to 100 have the names c1 to c100 in each dimension.
    """
    names = [f"c{number}" for number in range(1, 101)]
    quick = pa.table({"id": pa.array(range(1, 101), pa.int64()), "name": names})
    dimensions = {"quick": parquet(folder, "quick", quick, "id")}
    for table in tables:
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (id int8 PRIMARY KEY, name text)",
            f"INSERT INTO {table} SELECT n, 'c' || n FROM generate_series(1, 100) AS n"
            " ON CONFLICT DO NOTHING",
        )
        uncached = {"timeout": "30s", "cache": {"mode": "none"}}
        dimensions[table] = postgres(database.dsn(), table, **uncached)
    return configured(folder, dimensions, environ=environ)


def ended(
    command: Sequence[str],
    environ: Mapping[str, str] | None = None,
    *,
    stdin: IO[Any] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a program of the checkout to its end; without `environ`, with a clean environment."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environ or clean_environ(),
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )


def url_of(sidecar: SidecarProcess) -> str:
    """The URL of its Unix socket."""
    return f"unix://{os.fspath(sidecar.socket)}"


def lookup(
    sidecar: SidecarProcess, dimension: str, timeout_ms: int, keys: Sequence[int] = (7,)
) -> Reply:
    """Look up keys on a connection of its own."""
    body = {"keys": list(keys), "timeout_ms": timeout_ms}
    return sidecar.post(f"/v1/dimensions/{dimension}/lookup", body)


@dataclass(frozen=True, slots=True)
class SecureSidecar:
    """A sidecar with TLS, its authority, and the token and certificate of a caller."""

    process: SidecarProcess
    port: int
    signer: Authority
    token_file: Path
    caller: CertificateFiles

    @property
    def url(self) -> str:
        """Its URL with the name of its certificate."""
        return f"https://{HOST}:{self.port}"


@contextmanager
def secure_sidecar(folder: Path) -> Iterator[SecureSidecar]:
    """A running sidecar that requires TLS, a certificate and a token."""
    port, signer, token = free_port(), authority(folder), folder / "token"
    signer.issue(HOST)
    caller = replace(signer.issue("executor.example", name="caller"), client_ca_file=signer.file)
    token.touch(0o600)
    token.write_text("s3cret-s3cret")
    tls = {"cert_file": "tls.crt", "key_file": "tls.key", "client_ca_file": "ca.crt"}
    process = configured(
        folder,
        {"customers": parquet(folder, "customers", CUSTOMERS, "id")},
        environ={"SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{port}"},
        listen={"http": f"127.0.0.1:{port}", "tls": tls},
        auth={"token_file": "token"},
    )
    with process.running():
        yield SecureSidecar(process, port, signer, token, caller)


@contextmanager
def running_load(*program: str) -> Iterator[None]:
    """Run a Python program of this folder during the block, at whose end it must still run."""
    with subprocess.Popen((sys.executable, "-m", *program), cwd=ROOT) as process:
        try:
            yield
            assert process.poll() is None, "the load ended early"
        finally:
            process.kill()


@contextmanager
def frozen(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Stop a process, as on a node without CPU; its sockets stay open."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


@contextmanager
def throttled(process: "subprocess.Popen[bytes]", *, share: float) -> Iterator[None]:
    """Let a process run for this share of each period, as a CPU limit does."""
    ended = threading.Event()

    def throttle() -> None:
        while not ended.wait(share * THROTTLE_PERIOD_S):
            os.kill(process.pid, signal.SIGSTOP)
            ended.wait((1 - share) * THROTTLE_PERIOD_S)
            os.kill(process.pid, signal.SIGCONT)

    throttling = threading.Thread(target=throttle)
    throttling.start()
    try:
        yield
    finally:
        ended.set()
        throttling.join()
        os.kill(process.pid, signal.SIGCONT)


def processor_s(process_id: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
