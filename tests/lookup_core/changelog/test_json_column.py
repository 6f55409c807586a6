"""JSON values of a column: taken only if they are exactly of its type."""

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.changelog.json_column import UNUSABLE, json_column

HALFWAY = 1 + 2**-24  # between two floats of 32 bits; a text just above it is nearer to the upper


def taken(values: Sequence[object], kind: pa.DataType) -> tuple[list[Any], list[int]]:
    """The values as Python has them, and the positions of those that could not be taken."""
    column = json_column(values, pa.field("column", kind))
    assert column.values.type == kind
    return column.values.to_pylist(), column.unusable.tolist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int16(), [1, None, -(2**15)]),
        (pa.bool_(), [True, None, False]),
        (pa.utf8(), ["", None, "é"]),
        (pa.float64(), [0.1, None, -1e300]),
        (pa.float32(), [0.5, None, 3.0]),
        (pa.date32(), [None, None]),
        (pa.int32(), []),
        (pa.float64(), []),
    ],
)
def test_exact_values_are_taken(kind: pa.DataType, values: list[object]) -> None:
    """Values of the type are taken as they are, null as null."""
    assert taken(values, kind) == (values, [])


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (pa.int16(), 1, [1.0, True, "1", 2**15, 2**70, UNUSABLE, {}]),
        (pa.bool_(), True, [1, "true", UNUSABLE]),
        (pa.utf8(), "a", [1, True, "\ud800", UNUSABLE, ["a"]]),
        (pa.float64(), 0.5, [True, "1", "nan", 2**53 + 1, UNUSABLE]),
        (pa.float32(), 0.5, [3.5e38, -1e300, HALFWAY]),
    ],
)
def test_wrong_values_spoil_no_others(kind: pa.DataType, right: object, wrong: list[Any]) -> None:
    """A value that is not exactly of the type is null and pointed at; its neighbours are taken."""
    for value in wrong:
        assert taken([right, value, None, right], kind) == ([right, None, None, right], [1])


def test_special_floats_are_texts() -> None:
    """What JSON's numbers cannot be is written as a text."""
    values, unusable = taken(["NaN", "Infinity", "-Infinity", -0.0, 2**53], pa.float64())

    assert math.isnan(values[0])
    assert (values[1:], unusable) == ([math.inf, -math.inf, -0.0, 2.0**53], [])


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_sign_of_zero_is_kept(kind: pa.DataType) -> None:
    """Zero has a sign, which a comparison of values does not show."""
    values, unusable = taken([-0.0, 0.0, None, 0], kind)

    assert ([math.copysign(1, value) for value in (values[0], values[1], values[3])], unusable) == (
        [-1, 1, 1],
        [],
    )


def test_infinity_fits_shorter_floats() -> None:
    """An infinite number is one in each length."""
    assert taken(["Infinity", "-Infinity"], pa.float32()) == ([math.inf, -math.inf], [])


def test_unnameable_types_have_no_values() -> None:
    """Of a type that JSON cannot name, nothing is taken."""
    assert taken([[1], None], pa.list_(pa.int8())) == ([None, None], [0, 1])


@given(st.lists(st.floats(width=32, allow_nan=False) | st.none()))
def test_shortest_texts_name_their_float(values: list[float | None]) -> None:
    """A number of 32 bits, written with as many digits as tell it apart, is the same again."""
    texts = [None if value is None else float(f"{value:.9g}") for value in values]

    column = json_column(texts, pa.field("column", pa.float32()))

    read = [None if at in column.unusable else value for at, value in enumerate(values)]
    assert column.values.to_pylist() == read
