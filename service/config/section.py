"""The base of all parts of the configuration: frozen, strict about keys, silent about values.

Not a place for fields; what a part holds stands in the part.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A mapping in the YAML file, whose keys are the fields' aliases and nothing else."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        # Defaults are written as in the file ("10m"), so they are parsed and checked like it.
        validate_default=True,
        # A wrong value may be a secret in the wrong place: no error may show it.
        hide_input_in_errors=True,
    )


def written(default: str, *, alias: str | None = None, description: str | None = None) -> Any:  # noqa: ANN401  # the field has the parsed type, whose checker never sees the text
    """A field whose default is given as the file would have it, and parsed like that."""
    return Field(default=default, alias=alias, description=description)
