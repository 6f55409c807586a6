"""The command `serve`, as far as it goes without a sidecar."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from service.commands.application import run
from service.config.loading import EMBEDDED


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """The process's own is as before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def test_wrong_configuration_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All faults are told, and the exit code says that it was the configuration."""
    config = tmp_path / "c.yaml"
    config.write_text("limits: {memory: 5}\nfoo: 1\n")

    code = run(["serve", "--config", str(config)])

    assert (code, [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]) == (
        78,
        ["limits.memory", "dimensions", "foo"],
    )


def test_example_is_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --config a line of the log names the example, whatever becomes of the start."""
    monkeypatch.setenv("SIDELOOK_FOO", "1")

    code = run(["serve"])

    logged, fault = capsys.readouterr().err.splitlines()
    event = json.loads(logged)
    assert (event["event"], event["level"]) == ("serve.example_configuration", "warning")
    assert (event["file"], event["remedy"]) == (str(EMBEDDED), "name yours with --config FILE")
    assert (code, fault.partition(":")[0]) == (78, "foo")
