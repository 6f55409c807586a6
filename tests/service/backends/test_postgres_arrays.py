"""Arrays as the server writes them, and what is read from them."""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connectors.postgres.blocks import BinaryArray, element_oid
from tests.service.backends.sent_arrays import sent_array

FORMATS = {"b": np.int8, "h": np.int16, "i": np.int32, "q": np.int64}


def plain(array: BinaryArray) -> list[int | None]:
    """The elements as Python values."""
    values: list[int | None] = array.values.tolist()
    if array.is_null is None:
        return values
    return [None if null else value for value, null in zip(values, array.is_null, strict=True)]


def test_elements_are_read_in_order() -> None:
    """Without nulls the elements stand at equal distances; the array ends where others begin."""
    block = sent_array([1, -2, 3], "i", oid=23)

    array = BinaryArray.read(block + b"rest", np.int32)

    assert (plain(array), array.is_null, array.end) == ([1, -2, 3], None, len(block))
    assert array.values.dtype == np.int32
    assert element_oid(block) == 23


def test_nulls_take_no_place() -> None:
    """A null is a length without a value; what looks like one within a value is none."""
    block = sent_array([None, -1, None, None, 8, -1, None], "q", oid=20)

    array = BinaryArray.read(block + b"\xff" * 9, np.int64)

    assert plain(array) == [None, -1, None, None, 8, -1, None]
    assert array.end == len(block)


def test_nothing_but_nulls_is_read() -> None:
    """A column may hold no value at all."""
    assert plain(BinaryArray.read(sent_array([None, None], "q", oid=20), np.int64)) == [None, None]


@pytest.mark.parametrize("code", FORMATS)
@given(values=st.lists(st.none() | st.integers(-128, 127), min_size=1, max_size=40))
def test_any_array_is_read_back(code: str, values: Sequence[int | None]) -> None:
    """Elements of each width come back, wherever nulls are and whatever stands behind."""
    kind: npt.DTypeLike = FORMATS[code]
    block = sent_array(values, code, oid=1)

    array = BinaryArray.read(block + struct.pack(">3i", -1, 4, -1), kind)

    assert plain(array) == values
    assert array.end == len(block)
