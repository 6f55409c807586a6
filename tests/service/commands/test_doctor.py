"""The command `doctor`: what it is given, what it prints, and how it ends."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from service.commands.application import run

EXAMPLE = Path(__file__).parents[3] / "examples/parquet.yaml"
Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests run in no pod."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def report(capsys: Printed) -> dict[str, Any]:
    """What was printed, as JSON."""
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_files_alone_can_be_looked_at(capsys: Printed) -> None:
    """Without a sidecar there are its configuration and its files; nothing wrong is 0."""
    code = run(["doctor", "--without-sidecar", "--config", str(EXAMPLE), "--json"])

    told = report(capsys)
    assert (code, told["summary"]["error"]) == (0, 0)
    assert {each["check"] for each in told["findings"]} == {
        *("configuration", "table", "kubernetes"),
    }


def test_people_get_lines(capsys: Printed) -> None:
    """Without --json there are a line for each finding and one that counts."""
    code = run(["doctor", "--without-sidecar", "--kubernetes", "1.28"])

    printed = capsys.readouterr().out
    assert (code, printed.splitlines()[-1]) == (1, "1 error, 0 warnings, 1 skipped, 0 ok")
    assert "→ update the cluster to 1.29 or later" in printed


def test_missing_configuration_is_told(capsys: Printed) -> None:
    """Without --config what was not looked at is a finding, with where the file is."""
    run(["doctor", "--without-sidecar", "--kubernetes", "1.31", "--json"])

    first = report(capsys)["findings"][0]
    assert (first["severity"], first["subject"]) == ("skipped", "--config")
    assert "--config /etc/sidelook/sidelook.yaml" in first["remedy"]


def test_faulty_configuration_ends_in_78(tmp_path: Path, capsys: Printed) -> None:
    """All its faults are findings, and other checks run all the same."""
    config = tmp_path / "c.yaml"
    config.write_text("listen: {htp: x}\n")
    options = ["--without-sidecar", "--kubernetes", "1.31", "--json"]

    code = run(["doctor", "--config", str(config), *options])

    found = [(each["check"], each["severity"]) for each in report(capsys)["findings"]]
    assert (code, found) == (78, [*[("configuration", "error")] * 2, ("kubernetes", "ok")])


@pytest.mark.parametrize(
    ("endpoint", "subject", "severity"),
    [([], "{config}", "skipped"), (["--endpoint", "http://127.0.0.1:1"], "{endpoint}", "error")],
)
def test_faulty_configuration_hides_the_sidecar(
    tmp_path: Path, capsys: Printed, endpoint: list[str], subject: str, severity: str
) -> None:
    """It is not looked for elsewhere than the file may say; one that is named is asked."""
    config = tmp_path / "c.yaml"
    config.write_text("listen: {htp: x}\n")

    run(["doctor", "--config", str(config), "--kubernetes", "1.31", "--json", *endpoint])

    expected = subject.format(config=config, endpoint=(endpoint or [""])[-1])
    found = [each for each in report(capsys)["findings"] if each["check"] in {"sidecar", "socket"}]
    assert [(each["subject"], each["severity"]) for each in found] == [(expected, severity)]


def test_version_is_read_from_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """A dash takes what kubectl prints."""
    told = {"serverVersion": {"gitVersion": "v1.28.0"}}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(told)))

    code = run(["doctor", "--without-sidecar", "--kubernetes", "-", "--json"])

    assert (code, report(capsys)["findings"][-1]["message"][:15]) == (1, "is version 1.28")


@pytest.mark.parametrize(
    ("listen", "subject"),
    [
        ("{unix: s.sock, http: null}", "unix://{folder}/s.sock"),
        ("{unix: null, http: '127.0.0.1:1'}", "http://127.0.0.1:1"),
    ],
)
def test_sidecar_is_looked_for_where_it_listens(
    tmp_path: Path, capsys: Printed, listen: str, subject: str
) -> None:
    """Without --endpoint, the configuration says where; nobody there is an error."""
    config = tmp_path / "c.yaml"
    source = "{kind: parquet, path: x}"
    config.write_text(f"listen: {listen}\ndimensions: {{a: {{source: {source}, key: [k]}}}}\n")

    code = run(["doctor", "--config", str(config), "--json"])

    errors = {each["subject"] for each in report(capsys)["findings"] if each["severity"] == "error"}
    assert code == 1
    assert subject.format(folder=tmp_path) in errors


@pytest.mark.parametrize("option", [["--spark", "new"], ["--executors", "0"], ["--endpoint", "x"]])
def test_wrong_options_are_refused(option: list[str], capsys: Printed) -> None:
    """A usage error is one line, and ends in 64."""
    code = run(["doctor", *option])

    assert (code, len(capsys.readouterr().err.splitlines())) == (64, 1)


def test_help_tells_the_exit_codes(capsys: Printed) -> None:
    """What the codes mean stands where people look."""
    assert run(["doctor", "--help"]) == 0

    assert "78: the configuration" in " ".join(capsys.readouterr().out.split())
