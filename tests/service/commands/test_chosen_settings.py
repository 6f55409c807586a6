"""The configuration that a command runs with."""

from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.commands.configuration import chosen_settings
from service.config.loading import EMBEDDED, load_settings


def test_named_file_is_taken_in_silence() -> None:
    """Who names a file gets that one, and needs to be told nothing."""
    told: list[Path] = []

    assert chosen_settings(EMBEDDED, told.append) == load_settings(EMBEDDED, {})
    assert told == []


def test_example_is_told() -> None:
    """Who names none gets the example, and is told of it."""
    told: list[Path] = []

    assert chosen_settings(None, told.append) == load_settings(EMBEDDED, {})
    assert told == [EMBEDDED]


def test_missing_example_names_the_option(tmp_path: Path) -> None:
    """Where there is no example, --config is what is missing, not a file that nobody named."""
    with pytest.raises(ConfigurationError) as caught:
        chosen_settings(None, print, example=tmp_path / "none.yaml")

    assert caught.value.faults == ("no configuration; name yours with --config FILE",)
