"""Quantities: sizes and durations with units, and plain numbers with bounds."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

DURATION_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}  # {unit: seconds}
SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # {unit: bytes}
SHOWN_CHARACTERS = 40  # of a wrong value


@dataclass(frozen=True, slots=True, eq=False)  # hashed, where a field may be left out
class Quantity:
    """What a field takes: a number and a unit between two bounds; parsed to the base unit."""

    noun: str
    units: Mapping[str, float]  # {unit: how many of the base unit}
    minimum: str
    maximum: str
    is_whole: bool

    def parse(self, value: object) -> float:
        """The value in seconds or bytes.

        Raises ValueError, naming the accepted form and range, for anything else.
        """
        amount = self._amount(value) if isinstance(value, str) else math.nan
        if not self._amount(self.minimum) <= amount <= self._amount(self.maximum):
            raise ValueError(self._complaint(value))
        return int(amount) if self.is_whole else amount

    def _amount(self, text: str) -> float:
        """In the base unit; not a number for another form, infinite beyond any range."""
        match = re.fullmatch(self._pattern, text, re.ASCII)
        return float(match[1]) * self.units[match[2]] if match else math.nan

    @property
    def _pattern(self) -> str:
        return rf"(\d+(?:\.\d+)?)({'|'.join(self.units)})"

    def _complaint(self, value: object) -> str:
        return (
            f"{repr(value)[:SHOWN_CHARACTERS]} is not a {self.noun} from {self.minimum} to "
            f"{self.maximum}, written as a number and a unit ({', '.join(self.units)})"
        )

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        limits = f"a {self.noun} from {self.minimum} to {self.maximum}"
        return {"type": "string", "pattern": f"^{self._pattern}$", "description": limits}


def size_text(count_bytes: int) -> str:
    """An amount of memory as the file would have it, in the largest unit that leaves no rest."""
    return _text(count_bytes, SIZE_UNITS)


def duration_text(seconds: float) -> str:
    """A time span as the file would have it, to the millisecond, and as short as it can be."""
    return _text(
        round(seconds * 1000), {unit: round(DURATION_UNITS[unit] * 1000) for unit in DURATION_UNITS}
    )


def _text(amount: int, units: Mapping[str, int]) -> str:
    unit = max((unit for unit in units if amount % units[unit] == 0), key=units.__getitem__)
    return f"{amount // units[unit]}{unit}"


def duration(minimum: str = "0s", maximum: str = "365d") -> Quantity:
    """A time span; the field gets seconds."""
    return Quantity("duration", DURATION_UNITS, minimum=minimum, maximum=maximum, is_whole=False)


def size(minimum: str, maximum: str) -> Quantity:
    """An amount of memory; the field gets bytes."""
    return Quantity("size", SIZE_UNITS, minimum=minimum, maximum=maximum, is_whole=True)


@dataclass(frozen=True, slots=True)
class Number:
    """What a field takes: a whole number, or any, from `minimum` to `maximum`."""

    kind: Literal["integer", "number"]
    minimum: int
    maximum: int

    def parse(self, value: object) -> float:
        """The value; raises ValueError, naming form and range, if it is not within them."""
        number = self._number(value)
        if not self.minimum <= number <= self.maximum:
            form = "a whole number" if self.kind == "integer" else "a number"
            shown = repr(value)[:SHOWN_CHARACTERS]
            raise ValueError(f"{shown} is not {form} from {self.minimum} to {self.maximum}")
        return number

    def _number(self, value: object) -> float:
        """Not a number for another form, which then fits no range."""
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
                return math.nan

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic call `parse`."""
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The same for the JSON Schema of the configuration."""
        return {"type": self.kind, "minimum": self.minimum, "maximum": self.maximum}


def count(minimum: int, maximum: int) -> Number:
    """How many of something."""
    return Number("integer", minimum=minimum, maximum=maximum)


def factor(minimum: int, maximum: int) -> Number:
    """By how much something is multiplied."""
    return Number("number", minimum=minimum, maximum=maximum)
