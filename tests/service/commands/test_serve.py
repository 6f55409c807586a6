"""The command `serve`, as far as it goes without a sidecar."""

from pathlib import Path

import pytest

from service.commands.application import run


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
