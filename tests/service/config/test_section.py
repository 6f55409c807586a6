"""What holds for every part of the configuration."""

import pytest
from pydantic import ValidationError

from service.config.section import Section, written
from service.config.settings import Limits


class Secretive(Section):
    """A part with a number that somebody may mistake for a password field."""

    count: int = 1
    size: int = written("2", alias="length")


def test_values_cannot_be_changed() -> None:
    """A part that was checked stays as it was checked."""
    limits = Limits()

    with pytest.raises(ValidationError, match="frozen"):
        limits.connections = 0


def test_errors_never_show_values() -> None:
    """A secret in the wrong field does not reach a message."""
    with pytest.raises(ValidationError) as raised:
        Secretive.model_validate({"count": "hunter2"})

    assert "hunter2" not in str(raised.value)


def test_written_defaults_are_parsed() -> None:
    """A default that is written as in the file arrives in the field's own type."""
    assert Secretive() == Secretive.model_validate({"count": 1, "length": 2})


def test_field_names_are_no_keys() -> None:
    """A field that has an alias is known to the file by the alias only."""
    with pytest.raises(ValidationError, match="Extra inputs"):
        Secretive.model_validate({"size": 2})
