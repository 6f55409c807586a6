"""Command line arguments for a dimension and its keys."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

NUMERIC_TYPES = ("int", "uint", "float", "double", "halffloat", "bool")  # prefixes of Arrow's names


@dataclass(frozen=True, slots=True)
class KeyField:
    """A column of a dimension's key, with the name of its Arrow type."""

    name: str
    type: str

    @property
    def is_text(self) -> bool:
        """Whether its JSON values are strings."""
        return not self.type.startswith(NUMERIC_TYPES)


def key_value(text: str, fields: Sequence[KeyField]) -> Any:  # noqa: ANN401  # any JSON value
    """Return the JSON value of a key given as JSON, or as plain text with commas between parts.

    Raises typer.BadParameter for a wrong number of parts.
    """
    if text[:1] in {"[", '"'}:
        value = _json(text, otherwise=text)
        if value != text:
            return value
    if len(fields) == 1:
        return _part(text, fields[0])
    parts = text.split(",")
    if len(parts) != len(fields):
        names = ", ".join(field.name for field in fields)
        raise typer.BadParameter(f"key {text!r} has {len(parts)} part(s), but the key is ({names})")
    return [_part(part, field) for part, field in zip(parts, fields, strict=True)]


def _part(text: str, field: KeyField) -> Any:  # noqa: ANN401  # as above
    return text if field.is_text else _json(text, otherwise=text)


def _json(text: str, *, otherwise: str) -> Any:  # noqa: ANN401  # as above
    try:
        # NaN and Infinity are Python's, not JSON's.
        return json.loads(text, parse_constant=lambda _: otherwise)
    except ValueError:
        return otherwise


DimensionArgument = Annotated[
    str, typer.Argument(metavar="DIMENSION", help="Its name, as in the configuration.")
]
