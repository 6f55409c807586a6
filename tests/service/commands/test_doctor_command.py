"""The command `doctor`: the sidecar that it queries, and the printed findings.

Whole outputs stand in `transcripts/local.txt`.
"""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from typer.testing import CliRunner

from service.commands.application import application, run
from service.commands.doctor_run import (
    certified_name,
    configured_token,
    findings_text,
    own_endpoint,
    print_findings,
    quiet_libraries,
    summary_line,
)
from service.commands.endpoint import parse_endpoint
from service.config.settings import Settings
from service.doctor.finding import Subject
from tests.service.config.configuration import MINIMAL
from tests.service.tls.certificates import authority, section

TABLE, DATABASE = Subject("table", "a"), Subject("database", "h")
FAULTY = "listen: {htp: x}\n"
Printed = pytest.CaptureFixture[str]


def findings(printed: str) -> list[dict[str, Any]]:
    """The printed findings."""
    found: list[dict[str, Any]] = json.loads(printed)["findings"]
    return found


def listening(**listen: object) -> Settings:
    """A configuration with these listeners."""
    return Settings({"listen": listen}, MINIMAL)


@pytest.mark.parametrize(
    ("document", "options", "subject", "severity"),
    [
        (FAULTY, [], "{config}", "skipped"),
        (FAULTY, ["--endpoint", "http://127.0.0.1:1"], "http://127.0.0.1:1", "error"),
        ("{unix: s.sock, http: null}", [], "unix://{folder}/s.sock", "error"),
        ("{unix: null, http: '127.0.0.1:1'}", [], "http://127.0.0.1:1", "error"),
    ],
)
def test_sidecar_is_where_it_listens(
    tmp_path: Path, capsys: Printed, document: str, options: list[str], subject: str, severity: str
) -> None:
    """A named endpoint is queried, else the configured one; a faulty configuration names none."""
    config = tmp_path / "c.yaml"
    dimensions = "dimensions: {a: {source: {kind: parquet, path: x}, key: [k]}}\n"
    config.write_text(document if document == FAULTY else f"listen: {document}\n{dimensions}")

    run(["doctor", "--config", str(config), "--kubernetes", "1.31", "--json", *options])

    found = [each for each in findings(capsys.readouterr().out) if each["check"] == "sidecar"]
    expected = subject.format(config=config, folder=config.parent)
    assert [(each["subject"], each["severity"]) for each in found] == [(expected, severity)]


def test_version_is_read_from_a_pipe() -> None:
    """`--kubernetes -` reads what kubectl prints."""
    version = {"serverVersion": {"gitVersion": "v1.28.0"}}

    ended = CliRunner().invoke(
        application,
        ["doctor", "--without-sidecar", "--json", "--kubernetes", "-"],
        input=json.dumps(version),
    )

    assert ended.exit_code == 1
    assert findings(ended.stdout)[-1]["message"].startswith("has version 1.28")


@pytest.mark.parametrize(
    ("http", "names", "endpoint", "name"),
    [
        ("0.0.0.0:1", ["b.test", "a.test"], "https://127.0.0.1:1", "a.test"),
        ("[::]:1", ["*.test", "b.test"], "https://[::1]:1", "b.test"),
        ("[0::0]:1", ["*.test"], "https://[::1]:1", "sidelook.test"),
        ("0.0.0.0:1", ["a.test", "127.0.0.1"], "https://127.0.0.1:1", None),
        ("10.0.0.1:1", ["a.test"], "https://10.0.0.1:1", "a.test"),
    ],
)
def test_certificate_is_checked_for_its_name(
    tmp_path: Path, http: str, names: list[str], endpoint: str, name: str | None
) -> None:
    """A wildcard address is queried on loopback, which few certificates name; a socket is first."""
    signer = authority(tmp_path)
    tls = section(signer.issue(*names)) | {"client_ca_file": str(signer.file)}
    settings = listening(unix=None, http=http, tls=tls)
    host = parse_endpoint(endpoint).host

    assert (own_endpoint(settings), certified_name(settings, host)) == (endpoint, name)
    Path(tls["cert_file"]).unlink()
    assert certified_name(settings, host) is certified_name(None, host) is None
    assert own_endpoint(None) == "unix:///run/sidelook/sidelook.sock"
    assert own_endpoint(listening(unix="/s", http="127.0.0.1:1")) == "unix:///s"


def test_configured_token_is_read(tmp_path: Path) -> None:
    """An unfit or missing file shows no token."""
    path = tmp_path / "token"
    path.write_text("own\n")
    path.chmod(0o600)
    configured = Settings({"auth": {"token_file": path}}, MINIMAL)
    fit = configured_token(configured)
    path.write_text("two\nlines")
    unfit = configured_token(configured)
    path.unlink()

    assert (fit, unfit) == ("own", None)
    assert {configured_token(each) for each in (None, Settings(MINIMAL), configured)} == {None}


def test_findings_are_grouped_by_check() -> None:
    """A check stands where its first finding is; a remedy stands below its finding."""
    found = [TABLE.ok("is well"), DATABASE.error("is away", "start it"), TABLE.warning("b", "c")]

    assert findings_text([*found, TABLE.skipped("is unknown", "look")]).plain.splitlines() == [
        '✓ ok      table of dimension "a": is well',
        '! warning table of dimension "a": b',
        "  → c",
        '- skipped table of dimension "a": is unknown',
        "  → look",
        "✗ error   database h: is away",
        "  → start it",
    ]
    counts = {"ok": 3, "warning": 1, "error": 2, "skipped": 0}
    assert summary_line(counts) == "2 errors, 1 warning, 0 skipped, 3 ok"


def test_findings_can_be_copied(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """A narrow terminal cuts no subject and no command; foreign text is not interpreted."""
    monkeypatch.setenv("COLUMNS", "20")
    subject, command = "/long" * 30, "run this " * 30 + "now"

    found = [Subject("configuration", subject).error("is wrong", command)]
    print_findings([*found, TABLE.error("[red]\x1b[2J", "\x07")], as_json=False)

    assert capsys.readouterr().out.splitlines()[:-1] == [
        f"✗ error   configuration {subject}: is wrong",
        f"  → {command}",
        '✗ error   table of dimension "a": [red]\\x1b[2J',
        "  → \\x07",
    ]


def test_libraries_do_not_log_meanwhile() -> None:
    """Neither own logs nor those of libraries are written; afterwards they are as before."""
    log, library = structlog.get_logger(), logging.getLogger("aiokafka")
    with capture_logs() as events:
        with quiet_libraries():
            log.error("hidden")
            assert not library.isEnabledFor(logging.ERROR)
        log.error("shown")

    assert [event["event"] for event in events] == ["shown"]
    assert library.isEnabledFor(logging.ERROR)
