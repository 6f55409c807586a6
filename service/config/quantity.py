"""Quantities: sizes and durations with units, and numbers with bounds."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from annotated_types import GroupedMetadata
from pydantic import PlainValidator, WithJsonSchema

DURATION_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}  # {unit: seconds}
SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # {unit: bytes}
SHOWN_VALUE_CHARACTERS = 40  # in an error


@dataclass(frozen=True, slots=True, eq=False)  # pydantic hashes it in optional fields
class Quantity(GroupedMetadata):
    """Type of a field: a number with a unit, within bounds, parsed to seconds or bytes."""

    noun: str
    units: Mapping[str, float]  # {unit: amount of the base unit}
    minimum: str
    maximum: str
    is_whole: bool

    def parse(self, value: object) -> float:
        """Return the value in seconds or bytes; raises ValueError naming form and range."""
        amount = self._amount(value) if isinstance(value, str) else math.nan
        if not self._amount(self.minimum) <= amount <= self._amount(self.maximum):
            raise ValueError(
                f"{_shown(value)} is not a {self.noun} from {self.minimum} to "
                f"{self.maximum}, written as a number and a unit ({', '.join(self.units)})"
            )
        return int(amount) if self.is_whole else amount

    def _amount(self, text: str) -> float:
        match = re.fullmatch(self._pattern, text, re.ASCII)
        # NaN, for other forms, is outside of any range.
        return float(match[1]) * self.units[match[2]] if match else math.nan

    @property
    def _pattern(self) -> str:
        return rf"(\d+(?:\.\d+)?)({'|'.join(self.units)})"

    def __iter__(self) -> Iterator[object]:
        # JSON Schema has bounds of numbers only.
        bounds = {"x-minimum": self.minimum, "x-maximum": self.maximum}
        form = {"type": "string", "pattern": f"^{self._pattern}$", "x-quantity": self.noun}
        yield PlainValidator(self.parse)
        yield WithJsonSchema({**form, **bounds})


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


def duration(minimum: str = "0s", maximum: str = "365d") -> Quantity:
    """Return the type of a duration; its value is in seconds."""
    return Quantity("duration", DURATION_UNITS, minimum=minimum, maximum=maximum, is_whole=False)


def size(minimum: str, maximum: str) -> Quantity:
    """Return the type of a size; its value is in bytes."""
    return Quantity("size", SIZE_UNITS, minimum=minimum, maximum=maximum, is_whole=True)


@dataclass(frozen=True, slots=True)
class Number(GroupedMetadata):
    """Type of a field: a whole number or any number, from `minimum` to `maximum`."""

    kind: Literal["integer", "number"]
    minimum: float
    maximum: float

    def parse(self, value: object) -> float:
        """Return the value; raises ValueError naming form and range."""
        number = self._number(value)
        if not self.minimum <= number <= self.maximum:
            form = "a whole number" if self.kind == "integer" else "a number"
            raise ValueError(f"{_shown(value)} is not {form} from {self.minimum} to {self.maximum}")
        return number

    def _number(self, value: object) -> float:
        match value:
            case bool():
                return math.nan
            case int():
                return value
            case float():
                return value if self.kind == "number" else math.nan
            case str() if re.fullmatch(r"\d{1,18}", value, re.ASCII):
                return int(value)
            case str() if self.kind == "number" and re.fullmatch(r"\d+\.\d+", value, re.ASCII):
                return float(value)
            case _:
                return math.nan  # outside of any range

    def __iter__(self) -> Iterator[object]:
        limits = {"minimum": self.minimum, "maximum": self.maximum}
        yield PlainValidator(self.parse)
        yield WithJsonSchema({"type": self.kind, **limits})


def count(minimum: int, maximum: int) -> Number:
    """Return the type of a whole number."""
    return Number("integer", minimum=minimum, maximum=maximum)


def factor(minimum: float, maximum: float) -> Number:
    """Return the type of a number with a fraction."""
    return Number("number", minimum=minimum, maximum=maximum)
