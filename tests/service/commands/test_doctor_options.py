"""The options of `doctor`."""

import pytest

from service.commands.application import run

NAMES = [
    *("--config", "--endpoint", "--without-sidecar", "--executors", "--kubernetes"),
    *("--pod-template", "--spark-conf", "--spark", "--network-policy", "--json"),
]


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its line in the help, and something to say there."""
    assert run(["doctor", "--help"]) == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    explained = {words[0] for words in lines if len(words) > 2}
    assert set(NAMES) <= explained
