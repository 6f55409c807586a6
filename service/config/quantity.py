"""Quantities: sizes and durations with units, and numbers with bounds."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from annotated_types import GroupedMetadata
from pydantic import PlainValidator, WithJsonSchema

DURATION_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}  # {unit: seconds}
SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # {unit: bytes}
SHOWN_VALUE_CHARACTERS = 40  # in an error


@dataclass(frozen=True, slots=True, eq=False)  # pydantic hashes it in optional fields
class Quantity(GroupedMetadata):
    """Type of a field: a number within bounds; `parse` raises ValueError naming form and range."""

    parse: Callable[[object], float]
    schema: Mapping[str, object]

    def __iter__(self) -> Iterator[object]:
        yield PlainValidator(self.parse)
        yield WithJsonSchema(dict(self.schema))


def duration(minimum: str = "0s", maximum: str = "365d") -> Quantity:
    """Return the type of a duration; its value is in seconds."""
    return _with_unit("duration", DURATION_UNITS, minimum=minimum, maximum=maximum)


def size(minimum: str, maximum: str) -> Quantity:
    """Return the type of a size; its value is in bytes."""
    return _with_unit("size", SIZE_UNITS, minimum=minimum, maximum=maximum)


def _with_unit(noun: str, units: Mapping[str, float], *, minimum: str, maximum: str) -> Quantity:
    pattern = rf"(\d+(?:\.\d+)?)({'|'.join(units)})"

    def amount(text: object) -> float:
        match = re.fullmatch(pattern, text, re.ASCII) if isinstance(text, str) else None
        # NaN, for other forms, is outside of any range.
        return float(match[1]) * units[match[2]] if match else math.nan

    def parse(value: object) -> float:
        if not amount(minimum) <= (found := amount(value)) <= amount(maximum):
            raise ValueError(
                f"{_shown(value)} is not a {noun} from {minimum} to {maximum}, written as a number "
                f"and a unit ({', '.join(units)})"
            )
        return int(found) if units is SIZE_UNITS else found

    # JSON Schema has bounds of numbers only.
    bounds = {"x-minimum": minimum, "x-maximum": maximum}
    form = {"type": "string", "pattern": f"^{pattern}$", "x-quantity": noun}
    return Quantity(parse, form | bounds)


def count(minimum: int, maximum: int) -> Quantity:
    """Return the type of a whole number."""
    return _number("integer", {int}, r"\d{1,18}", bounds=(minimum, maximum))


def factor(minimum: float, maximum: float) -> Quantity:
    """Return the type of a number with a fraction."""
    return _number("number", {int, float}, r"\d{1,18}|\d+\.\d+", bounds=(minimum, maximum))


def _number(kind: str, types: set[type], pattern: str, *, bounds: tuple[float, float]) -> Quantity:
    minimum, maximum = bounds

    def parse(value: object) -> float:
        found: Any = value
        if isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII):
            found = float(value) if "." in value else int(value)
        # Without booleans, which are integers.
        if type(found) in types and minimum <= found <= maximum:
            return found
        form = "a whole number" if kind == "integer" else "a number"
        raise ValueError(f"{_shown(value)} is not {form} from {minimum} to {maximum}")

    return Quantity(parse, {"type": kind, "minimum": minimum, "maximum": maximum})


def _shown(value: object) -> str:
    """A wrong value as the file has it; an empty variable is null, too."""
    return "null" if value is None else repr(value)[:SHOWN_VALUE_CHARACTERS]


def size_text(count_bytes: int) -> str:
    """Return a size as written in the file, in the largest unit without a remainder."""
    return _text(count_bytes, SIZE_UNITS)


def duration_text(seconds: float) -> str:
    """Return a duration as written in the file, in the largest unit without a remainder.

    Fractions of a millisecond are rounded.
    """
    units = {unit: round(DURATION_UNITS[unit] * 1000) for unit in DURATION_UNITS}
    return _text(round(seconds * 1000), units)


def _text(amount: int, units: Mapping[str, int]) -> str:
    fitting = [unit for unit in units if amount % units[unit] == 0]  # smallest first
    unit = fitting[-1] if amount else fitting[0]  # zero claims no false precision
    return f"{amount // units[unit]}{unit}"
