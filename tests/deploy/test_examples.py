"""Files of `examples/deploy`: scripts, systemd unit, configurations, manifests, the job's image."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.config.loading import load_settings
from service.config.settings import Settings
from tests.service.tls.certificates import authority
from tools.k8s.manifests import ROOT, parse_manifests
from tools.k8s.validation import schema_faults

DEPLOY = ROOT / "examples" / "deploy"
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
UNIT = DEPLOY / "sidelook.service"
SANDBOX = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictNamespaces": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
}
MOST_EXPOSURE = "20"  # tenths, as systemd-analyze takes it; a unit without a sandbox has 96


def unit() -> configparser.RawConfigParser:
    """The sections of the unit."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read(UNIT)
    return parser


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.name)
def test_scripts_stop_at_errors(script: Path) -> None:
    """Each script parses, is executable, and stops at errors and unset variables."""
    shell = script.read_text().partition("\n")[0].removeprefix("#!")
    parsed = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)

    assert (parsed.returncode, parsed.stderr) == (0, "")
    assert script.stat().st_mode & 0o111
    assert any(line in {"set -eu", "set -euo pipefail"} for line in script.read_text().splitlines())


def test_unit_is_sandboxed_and_restarted() -> None:
    """The sidecar runs without privileges, and systemd restarts it, except for a bad file."""
    service = unit()["Service"]

    assert {name: service[name] for name in SANDBOX} == SANDBOX
    assert (service["User"], service["RuntimeDirectoryMode"]) == ("sidelook", "0750")
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "78")
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.full
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Systemd knows each directive, and judges the exposure as low."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze: install systemd")
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/sidelook/bin/sidelook", sys.executable))
    checks: list[list[str | Path]] = [
        ["verify", "--man=no", here],
        ["security", "--offline=true", f"--threshold={MOST_EXPOSURE}", here],
    ]

    ended = [subprocess.run([analyze, *each], capture_output=True, check=False) for each in checks]

    assert [(each.returncode, each.stderr) for each in ended] == [(0, b""), (0, b"")]


def secrets(folder: Path) -> dict[str, str]:
    """Variables that replace the secrets of the examples by files of this machine."""
    folder.joinpath("dsn").write_text("postgresql://sidelook@db.example/shop")
    folder.joinpath("token").write_text("0123456789abcdef0123456789abcdef")
    for name in ("dsn", "token"):
        (folder / name).chmod(0o400)
    files = authority(folder).issue("sidelook.example")
    return {
        "SIDELOOK_DIMENSIONS__CUSTOMERS__SOURCE__DSN_FILE": str(folder / "dsn"),
        "SIDELOOK_AUTH__TOKEN_FILE": str(folder / "token"),
        "SIDELOOK_LISTEN__TLS__CERT_FILE": str(files.cert_file),
        "SIDELOOK_LISTEN__TLS__KEY_FILE": str(files.key_file),
    }


def loaded(name: str, environ: dict[str, str]) -> Settings:
    """The settings of an example, of which only secrets are replaced."""
    return load_settings(DEPLOY / name, environ)


def test_configurations_are_valid(tmp_path: Path) -> None:
    """Each configuration is accepted, and all serve the dimension of the job."""
    environ = secrets(tmp_path)
    dsn_only = {name: text for name, text in environ.items() if name.endswith("DSN_FILE")}
    settings = [loaded(name, dsn_only) for name in ("sidelook.yaml", "databricks/sidelook.yaml")]
    settings.append(loaded("shared/sidelook.yaml", environ))

    assert [str(each.listen.http) for each in settings] == [
        "None",
        "127.0.0.1:8815",
        "0.0.0.0:8815",
    ]
    assert [str(each.listen.unix) for each in settings][::2] == ["/run/sidelook/sidelook.sock"] * 2
    assert [list(each.dimensions) for each in settings] == [["customers"]] * 3


def test_shared_manifests_are_valid() -> None:
    """The Deployment, its Service and its budget fit the API, and the pod has no privileges."""
    manifests = parse_manifests((DEPLOY / "shared" / "kubernetes.yaml").read_text())
    deployment = manifests[0]["spec"]["template"]["spec"]
    (container,) = deployment["containers"]

    assert [fault for each in manifests for fault in schema_faults(each)] == []
    assert deployment["securityContext"]["runAsUser"] == 185
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_compose_file_matches_the_manifests() -> None:
    """The container of Compose has the image, arguments and rights of the Deployment."""
    (compose,) = parse_manifests((DEPLOY / "shared" / "compose.yaml").read_text())
    deployment = parse_manifests((DEPLOY / "shared" / "kubernetes.yaml").read_text())[0]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    service = compose["services"]["sidelook"]

    assert (service["image"], service["command"]) == (container["image"], container["args"])
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_image_of_the_job_passes_the_linter() -> None:
    """Hadolint has no finding, the base has a version, and the user is that of the pod template."""
    path = DEPLOY / "kubernetes" / "Dockerfile"
    linter = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([linter, path], capture_output=True, text=True, check=False)
    text = path.read_text()

    assert linted.stdout == ""
    assert "\nARG SPARK_IMAGE=apache/spark:" in text
    assert text.rstrip().endswith("USER 185")
