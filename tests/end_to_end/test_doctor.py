"""The command `doctor` as its users run it: beside a sidecar that is well, and one that is not."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.parquet_sidecar import stopped_parquet_sidecar
from tools.processes.sidecar_process import ROOT, SidecarProcess

_PATIENCE_S = 60.0
_FAULTY = """
listen: {{unix: {socket}, http: null}}
dimensions:
  away:
    source: {{kind: postgres, dsn: "postgresql://me@127.0.0.1:1/shop", table: t}}
    key: [id]
  gone: {{source: {{kind: parquet, path: gone.parquet}}, key: [id]}}
"""


@dataclass(frozen=True, slots=True)
class Doctor:
    """How the command ended."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:  # noqa: ANN401  # any JSON
        """What it printed, as JSON."""
        return json.loads(self.out)

    def of(self, *severities: str) -> list[tuple[str, str]]:
        """Check and subject of the findings of these severities."""
        found = self.report["findings"]
        return [
            (each["check"], each["subject"]) for each in found if each["severity"] in severities
        ]


def doctor(sidecar: SidecarProcess, *arguments: str) -> Doctor:
    """Run the command in the sidecar's surroundings."""
    ended = subprocess.run(
        [sys.executable, "-m", "service", "doctor", *arguments],
        cwd=ROOT,
        env=sidecar.whole_environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
    )
    return Doctor(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """One that is well, with three dimensions."""
    sidecar = stopped_parquet_sidecar(tmp_path_factory.mktemp("doctor"))
    with sidecar.running():
        yield sidecar


def test_healthy_sidecar_has_no_finding(sidecar: SidecarProcess) -> None:
    """Beside a sidecar that is well, all is ok, and the exit code is 0."""
    ended = doctor(
        sidecar, "--config", str(sidecar.folder / "config.yaml"), "--kubernetes", "1.31", "--json"
    )

    assert (ended.code, ended.err) == (0, "")
    assert ended.of("warning", "error", "skipped") == []
    assert {"socket", "sidecar", "limits", "clock", "table", "configuration"} <= {
        check for check, _ in ended.of("ok")
    }
    assert ended.report["summary"]["error"] == 0


def test_table_is_read_without_colours(sidecar: SidecarProcess) -> None:
    """For people each finding has a word and a mark, and the last line counts them."""
    ended = doctor(sidecar, "--endpoint", f"unix://{sidecar.socket}")

    assert ended.code == 0
    assert "✓ ok" in ended.out
    assert "- skipped" in ended.out  # no cluster here, and no configuration named
    assert ended.out.splitlines()[-1].startswith("0 errors, 0 warnings, 2 skipped, ")
    assert "\x1b" not in ended.out


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """One that asks for a token, on each of its listeners."""
    folder = tmp_path_factory.mktemp("guarded")
    token = folder / "token"
    token.touch(0o600)
    token.write_text("s3cret-s3cret\n")
    sidecar = stopped_parquet_sidecar(folder)
    config = folder / "config.yaml"
    config.write_text(f"{config.read_text()}auth: {{token_file: token}}\n")
    with sidecar.running():
        yield sidecar


def test_configured_token_is_shown(guarded: SidecarProcess) -> None:
    """The socket wants the token, too, and with --config the doctor has it."""
    config = str(guarded.folder / "config.yaml")

    ended = doctor(guarded, "--config", config, "--kubernetes", "1.31", "--json")

    assert (ended.code, ended.of("warning", "error", "skipped")) == (0, [])
    assert ("sidecar", "customers") in ended.of("ok")


@pytest.mark.parametrize(
    ("token", "told"), [(None, "requires a token"), ("wrong", "refuses the token of --token-file")]
)
def test_token_that_is_missed_is_told(
    guarded: SidecarProcess, tmp_path: Path, token: str | None, told: str
) -> None:
    """Without the right token the remedy is the right one; another listener would not help."""
    file = tmp_path / "token"
    file.write_text(token or "")
    given = ["--token-file", str(file)] if token else []

    ended = doctor(guarded, "--endpoint", f"unix://{guarded.socket}", *given, "--json")

    (error,) = [each for each in ended.report["findings"] if each["severity"] == "error"]
    assert error["message"] == f"does not list its dimensions: it {told}"
    assert error["remedy"].startswith("give --token-file FILE")


def test_errors_end_in_code_1(sidecar: SidecarProcess, tmp_path: Path) -> None:
    """Nobody serves the socket, the database is away, a file is missing: all are told at once."""
    config = tmp_path / "c.yaml"
    config.write_text(_FAULTY.format(socket="unused.sock"))
    environ = {**sidecar.environ, "SIDELOOK_LISTEN__UNIX": str(tmp_path / "none" / "s.sock")}

    ended = doctor(SidecarProcess(tmp_path, environ=environ), "--config", str(config), "--json")

    path = str(tmp_path / "none" / "s.sock")
    assert (ended.code, ended.err) == (1, "")
    assert ended.of("error") == [
        *[("socket", path), ("sidecar", f"unix://{path}")],
        *[("table", "gone"), ("database", "me@127.0.0.1:1/shop")],
    ]
    assert all(each["remedy"] for each in ended.report["findings"] if each["severity"] != "ok")


def test_faulty_configuration_hides_nothing(sidecar: SidecarProcess, tmp_path: Path) -> None:
    """Its faults end in 78; the sidecar that runs is looked at all the same."""
    config = tmp_path / "c.yaml"
    config.write_text("dimensions: {a: {source: {kind: parquet, path: x}, key: [k], ttl: 5}}\n")

    arguments = ("--config", str(config), "--endpoint", f"unix://{sidecar.socket}", "--json")
    ended = doctor(sidecar, *arguments)

    assert ended.code == 78
    assert ended.of("error") == [("configuration", str(config))]
    assert ("sidecar", f"unix://{sidecar.socket}") in ended.of("ok")


def test_stale_socket_is_told(tmp_path: Path) -> None:
    """A sidecar that was killed leaves its socket; the remedy is a start, which makes all well."""
    sidecar = stopped_parquet_sidecar(tmp_path)
    arguments = ("--config", str(tmp_path / "config.yaml"), "--kubernetes", "1.31", "--json")
    with sidecar.running(ends_by=signal.SIGKILL):
        pass
    killed = doctor(sidecar, *arguments)
    with sidecar.running():
        mended = doctor(sidecar, *arguments)

    assert killed.of("error")[0] == ("socket", str(sidecar.socket))
    assert "replaces it" in killed.report["findings"][1]["remedy"]
    assert (killed.code, mended.code) == (1, 0)


def test_zero_bytes_end_in_time(sidecar: SidecarProcess, tmp_path: Path) -> None:
    """A database that answers with zero bytes spins its driver, and hides nothing of the others."""
    config = tmp_path / "c.yaml"
    with _answering(bytes(10)) as port:
        dsns = [f"postgresql://me@127.0.0.1:{each}/shop?sslmode=disable" for each in (port, 1)]
        sources = [f"{{kind: postgres, table: t, dsn: '{dsn}'}}" for dsn in dsns]
        dimensions = ", ".join(f"d{n}: {{source: {s}, key: [id]}}" for n, s in enumerate(sources))
        config.write_text(f"dimensions: {{{dimensions}}}\n")
        began_s = time.monotonic()
        ended = doctor(sidecar, "--config", str(config), "--without-sidecar", "--json")
        took_s = time.monotonic() - began_s

    assert (ended.code, ended.of("error")) == (
        1,
        [("database", f"me@127.0.0.1:{each}/shop") for each in (port, 1)],
    )
    assert took_s < 25.0  # 15, and room for a neighbour at work


@contextmanager
def _answering(answer: bytes) -> Iterator[int]:
    """The port of a server that says this to whoever connects, first of all."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                kept.append(caller)
                with suppress(ConnectionError):  # it has left before it was let in
                    caller.sendall(answer)

        kept: list[socket.socket] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for caller in kept:
            caller.close()


def test_black_holes_end_in_time(sidecar: SidecarProcess, tmp_path: Path) -> None:
    """A database and brokers that swallow everything cost a quarter of a minute at most."""
    with socket.create_server(("127.0.0.1", 0)) as hole:
        port = hole.getsockname()[1]
        config = tmp_path / "c.yaml"
        config.write_text(
            "dimensions: {a: {source: {kind: postgres, table: t, "
            f"dsn: 'postgresql://me@127.0.0.1:{port}/shop'}}, key: [id], refresh: {{changelog: "
            f"{{brokers: ['127.0.0.1:{port}'], topic: t, format: upsert_json}}}}}}}}\n"
        )
        began_s = time.monotonic()
        ended = doctor(sidecar, "--config", str(config), "--without-sidecar", "--json")
        took_s = time.monotonic() - began_s

    assert ended.code == 1
    assert [check for check, _ in ended.of("error", "skipped") if check != "kubernetes"] == [
        *("kafka", "database", "table"),
    ]
    assert took_s < 25.0  # as above
