"""Base class of all configuration sections: frozen, rejects unknown keys, prints no values."""

from dataclasses import fields
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A mapping of the YAML file; its keys are the aliases of the fields."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        # Defaults are written as in the file ("10m"), so they are parsed and validated, too.
        validate_default=True,
        # A wrong value may be a misplaced secret: no error shows it.
        hide_input_in_errors=True,
    )


def written(default: str, *, alias: str | None = None, description: str | None = None) -> Any:  # noqa: ANN401  # the field has the type of the parsed default
    """Return a field with a default written as in the file, such as `10m`."""
    return Field(default=default, alias=alias, description=description)


_Settings = TypeVar("_Settings")


def copied(kind: type[_Settings], section: Section | None, **others: object) -> _Settings:
    """Return settings of the engine, with the section's values in the fields of equal names.

    `others` are the values of further fields; without a section, the rest have their defaults.
    """
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    own = {name: getattr(section, name) for name in names if hasattr(section, name)}
    return kind(**own | others)
