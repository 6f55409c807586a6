"""Durations and sizes: which texts are taken, and as what."""

import math
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from service.config.quantity import DURATION_UNITS, duration, duration_text, size, size_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0ms", 0.0), ("50ms", 0.05), ("2s", 2.0), ("10m", 600.0), ("1h", 3600.0), ("1.5d", 129600.0)],
)
def test_durations_become_seconds(text: str, seconds: float) -> None:
    """Each unit of time is taken, with or without a fraction."""
    assert duration().parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "amount"), [("1B", 1), ("2KiB", 2048), ("1.5MiB", 1572864), ("3GiB", 3 * 2**30)]
)
def test_sizes_become_whole_bytes(text: str, amount: int) -> None:
    """Each unit of memory is taken; the field gets an int."""
    parsed = size("1B", "1TiB").parse(text)

    assert (parsed, type(parsed)) == (amount, int)


@pytest.mark.parametrize(
    "value",
    [
        *(5, 5.0, True, None, math.inf, [], "", "5", "s", "5 s", "5sec", "-5s", "+5s", "1e3s"),
        *(".5s", "inf", "infs", "nan", "5S", "5s\n", "\u0665s", "2MB"),
    ],
)
def test_other_forms_are_refused(value: object) -> None:
    """A bare number, a sign, an unknown unit: the fault tells the form and the range."""
    with pytest.raises(ValueError, match="a duration from 1ms to 1h, written as a number and a"):
        duration("1ms", "1h").parse(value)


@pytest.mark.parametrize("text", ["0s", "0.9ms", "61m", "99999999999d", f"{'9' * 400}s"])
def test_range_is_held(text: str) -> None:
    """Zero, an overflow and anything else beyond the bounds is refused like another form."""
    with pytest.raises(ValueError, match="from 1ms to 1h"):
        duration("1ms", "1h").parse(text)


@pytest.mark.parametrize("text", ["1ms", "1h", "60m"])
def test_bounds_belong_to_range(text: str) -> None:
    """Least and largest value are taken."""
    assert duration("1ms", "1h").parse(text) in {0.001, 3600.0}


@pytest.mark.parametrize("text", ["1ms", "1500ms", "2s", "90s", "10m", "36h", "7d"])
def test_durations_are_written_as_read(text: str) -> None:
    """What is told of a time is what the file could have."""
    assert duration_text(duration().parse(text)) == text


def test_long_values_are_shown_shortened() -> None:
    """A fault stays one line, whatever somebody put there."""
    with pytest.raises(ValueError, match="x") as raised:
        size("1B", "1TiB").parse("x" * 10_000)

    assert len(str(raised.value)) < 200


@given(st.integers(0, 10**6), st.sampled_from(sorted(DURATION_UNITS)))
def test_any_number_with_unit_scales(number: int, unit: str) -> None:
    """A number with a unit is that number times the unit."""
    parsed = duration("0s", "10000000d").parse(f"{number}{unit}")

    assert parsed == pytest.approx(number * DURATION_UNITS[unit])


def test_json_schema_tells_the_form() -> None:
    """Editors see a text with a pattern, not a number."""
    assert TypeAdapter(Annotated[float, duration("1ms", "1h")]).json_schema() == {
        "type": "string",
        "pattern": r"^(\d+(?:\.\d+)?)(ms|s|m|h|d)$",
        "description": "a duration from 1ms to 1h",
    }


@pytest.mark.parametrize("text", ["0TiB", "1B", "1023B", "1536MiB", "1GiB", "1048576TiB"])
def test_sizes_are_told_as_written(text: str) -> None:
    """An amount is told in the largest unit that is exact."""
    assert size_text(int(size("0B", "1048576TiB").parse(text))) == text
