"""Numbers without a unit, between two bounds: counts and factors.

Apart from pydantic's own, which take `true` for 1; texts are taken, too, as the environment has
nothing else.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

SHOWN_CHARACTERS = 40  # of a wrong value


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
