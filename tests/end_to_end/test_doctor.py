"""The command `doctor`, next to sidecars and backends with and without faults."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.sidecars import configured, customers_sidecar
from tools.processes.sidecar_process import ROOT, SidecarProcess

# Each group of checks ends after 15 s; a hanging command exceeds this limit.
PATIENCE_S = 60.0
IN_CLUSTER = ("--kubernetes", "1.31")


@dataclass(frozen=True, slots=True)
class Doctor:
    """Exit code and output of the command."""

    code: int
    out: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The findings of the JSON report."""
        findings: list[dict[str, Any]] = json.loads(self.out)["findings"]
        return findings

    def of(self, *severities: str) -> list[tuple[str, str]]:
        """Check and subject of the findings with these severities."""
        found = [each for each in self.findings if each["severity"] in severities]
        return [(each["check"], each["subject"]) for each in found]


def doctor(sidecar: SidecarProcess, *arguments: str) -> Doctor:
    """Run the command with the sidecar's environment."""
    ended = subprocess.run(
        [sys.executable, "-m", "service", "doctor", *arguments],
        cwd=ROOT,
        env=sidecar.whole_environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.stderr == ""
    return Doctor(ended.returncode, ended.stdout)


def config_of(sidecar: SidecarProcess) -> tuple[str, str]:
    """The option for the sidecar's configuration."""
    return ("--config", sidecar.command[-1])


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """A running sidecar that requires a token, with three dimensions."""
    folder = tmp_path_factory.mktemp("doctor")
    token = folder / "token"
    token.touch(0o600)
    token.write_text("s3cret-s3cret\n")
    sidecar = customers_sidecar(folder, auth={"token_file": "token"})
    with sidecar.running():
        yield sidecar


def test_healthy_sidecar_has_no_finding(sidecar: SidecarProcess) -> None:
    """Next to a healthy sidecar all checks are ok, with the configured token, and the code is 0."""
    ended = doctor(sidecar, *config_of(sidecar), *IN_CLUSTER, "--json")

    assert (ended.code, ended.of("warning", "error", "skipped")) == (0, [])
    checks = {"socket", "sidecar", "limits", "clock", "table", "configuration"}
    assert checks <= {check for check, _ in ended.of("ok")}
    assert ("sidecar", "customers") in ended.of("ok")


def test_table_is_read_without_colours(sidecar: SidecarProcess) -> None:
    """The table has a word and a mark for each finding, and the last line counts them."""
    ended = doctor(sidecar, *config_of(sidecar))

    assert ended.code == 0
    assert "✓ ok" in ended.out
    assert "- skipped" in ended.out  # there is no cluster
    assert ended.out.splitlines()[-1].startswith("0 errors, 0 warnings, 1 skipped, ")
    assert "\x1b" not in ended.out


def test_errors_end_in_code_1(tmp_path: Path) -> None:
    """An unserved socket, an absent database and a missing file are reported together."""
    dsn = "postgresql://me@127.0.0.1:1/shop"
    away = {"source": {"kind": "postgres", "dsn": dsn, "table": "t"}, "key": ["id"]}
    gone = {"source": {"kind": "parquet", "path": "gone.parquet"}, "key": ["id"]}
    path = str(tmp_path / "none" / "s.sock")
    environ = {"SIDELOOK_LISTEN__UNIX": path}
    sidecar = configured(tmp_path, {"away": away, "gone": gone}, environ=environ)

    ended = doctor(sidecar, *config_of(sidecar), "--json")

    assert ended.code == 1
    assert ended.of("error") == [
        *[("socket", path), ("sidecar", f"unix://{path}")],
        *[("table", "gone"), ("database", "me@127.0.0.1:1/shop")],
    ]
    assert all(each["remedy"] for each in ended.findings if each["severity"] != "ok")


@contextmanager
def sending(answer: bytes) -> Iterator[int]:
    """The port of a server that sends these bytes on each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                kept.append(caller)
                with suppress(ConnectionError):  # the caller has left
                    caller.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for caller in kept:
            caller.close()


@pytest.mark.parametrize("answer", [bytes(10), b""], ids=["zero bytes", "silence"])
def test_stuck_backends_do_not_hold_the_others(tmp_path: Path, answer: bytes) -> None:
    """A server whose bytes spin the driver, or that is silent, ends its own checks only."""
    with sending(answer) as port:
        dimensions = {
            f"d{each}": {
                "source": {
                    "kind": "postgres",
                    "table": "t",
                    "dsn": f"postgresql://me@127.0.0.1:{each}/shop?sslmode=disable",
                },
                "key": ["id"],
            }
            for each in (port, 1)
        }
        brokers = {"brokers": [f"127.0.0.1:{port}"], "topic": "t", "format": "upsert_json"}
        dimensions[f"d{port}"]["refresh"] = {"changelog": brokers}
        sidecar = configured(tmp_path, dimensions)
        ended = doctor(sidecar, *config_of(sidecar), "--without-sidecar", "--json")

    databases = {("database", f"me@127.0.0.1:{each}/shop") for each in (port, 1)}
    assert ended.code == 1
    assert databases <= set(ended.of("error"))
    assert "kafka" in {check for check, _ in ended.of("error")}
