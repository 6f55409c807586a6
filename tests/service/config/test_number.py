"""Counts and factors: which values are taken, and as what."""

import math
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from service.config.quantity import count, factor


@pytest.mark.parametrize(("value", "number"), [(1, 1), (1000, 1000), ("8", 8), ("0008", 8)])
def test_counts_are_whole_numbers(value: object, number: int) -> None:
    """A count is an int, or its digits as text, as the environment has them."""
    parsed = count(1, 1000).parse(value)

    assert (parsed, type(parsed)) == (number, int)


@pytest.mark.parametrize(
    "value", [True, None, 1.0, "1.5", "-1", "+1", "", "one", "1_0", "\u0663", [], "9" * 5000]
)
def test_other_forms_are_no_counts(value: object) -> None:
    """A boolean, a fraction or a word is refused, with the range that would do."""
    with pytest.raises(ValueError, match="is not a whole number from 1 to 1000"):
        count(1, 1000).parse(value)


@pytest.mark.parametrize("value", [0, -1, 1001, "0", 10**400])
def test_counts_keep_their_range(value: object) -> None:
    """Zero where it is senseless, negatives and overflows are refused."""
    with pytest.raises(ValueError, match="from 1 to 1000"):
        count(1, 1000).parse(value)


@pytest.mark.parametrize(("value", "number"), [(2, 2), (1.5, 1.5), ("1.5", 1.5), ("2", 2)])
def test_factors_may_have_fractions(value: object, number: float) -> None:
    """A factor is any number in its range."""
    assert factor(1, 100).parse(value) == number


@pytest.mark.parametrize("value", [0.5, 101, math.inf, -math.inf, math.nan, "inf", True])
def test_factors_keep_their_range(value: object) -> None:
    """What is not a finite number in range is no factor."""
    with pytest.raises(ValueError, match="is not a number from 1 to 100"):
        factor(1, 100).parse(value)


def test_json_schema_tells_the_range() -> None:
    """Editors see the bounds that the check holds."""
    schema = TypeAdapter(Annotated[int, count(1, 9)]).json_schema()

    assert schema == {"type": "integer", "minimum": 1, "maximum": 9}
