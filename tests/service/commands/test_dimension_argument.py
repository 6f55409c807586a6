"""The argument that names a dimension."""

import pytest

from service.commands.application import run


@pytest.mark.parametrize("command", ["lookup", "explain", "invalidate", "gen-triggers"])
def test_argument_is_explained(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command that takes one says which name is meant."""
    assert run([command, "--help"]) == 0

    assert "Its name, as in the configuration." in capsys.readouterr().out
