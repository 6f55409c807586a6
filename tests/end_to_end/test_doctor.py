"""The command `doctor`, next to sidecars and backends with and without faults."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.sidecars import configured, customers_sidecar, ended, postgres
from tools.processes.sidecar_process import SidecarProcess

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
    # Each group of checks ends after 15 s; a hanging command exceeds the limit of `ended`.
    command = (sys.executable, "-m", "service", "doctor", *arguments)
    printed = ended(command, sidecar.whole_environ)
    assert printed.stderr == ""
    return Doctor(printed.returncode, printed.stdout)


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
    shown = doctor(sidecar, *config_of(sidecar), *IN_CLUSTER, "--json")

    assert (shown.code, shown.of("warning", "error", "skipped")) == (0, [])
    checks = {"socket", "sidecar", "limits", "clock", "table", "configuration"}
    assert checks <= {check for check, _ in shown.of("ok")}
    assert ("sidecar", "customers") in shown.of("ok")


def test_errors_end_in_code_1(tmp_path: Path) -> None:
    """An unserved socket, an absent database and a missing file are reported together."""
    away = postgres("postgresql://me@127.0.0.1:1/shop", "t")
    gone = {"source": {"kind": "parquet", "path": "gone.parquet"}, "key": ["id"]}
    path = str(tmp_path / "none" / "s.sock")
    environ = {"SIDELOOK_LISTEN__UNIX": path}
    sidecar = configured(tmp_path, {"away": away, "gone": gone}, environ=environ)

    shown = doctor(sidecar, *config_of(sidecar), "--json")

    assert shown.code == 1
    assert shown.of("error") == [
        *[("socket", path), ("sidecar", f"unix://{path}")],
        *[("table", "gone"), ("database", "me@127.0.0.1:1/shop")],
    ]
    assert all(each["remedy"] for each in shown.findings if each["severity"] != "ok")
