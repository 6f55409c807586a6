"""Which of many numbers are equal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.operator.encoded_keys import Numbers, first_equal_rows

INT64 = np.iinfo(np.int64)


def first_rows(numbers: Numbers) -> list[int]:
    """The same one by one."""
    return [numbers.tolist().index(number) for number in numbers.tolist()]


@given(st.lists(st.integers(int(INT64.min), int(INT64.max)) | st.integers(-3, 3), max_size=60))
def test_first_of_equal_numbers_stands_for_all(drawn: list[int]) -> None:
    """Each number is told by the first row that has it, whatever the numbers are."""
    numbers = np.array(drawn, np.int64)

    assert first_equal_rows(numbers).tolist() == first_rows(numbers)


@pytest.mark.parametrize("stride", [1, 2**20, 2**40, 2**54, 3 * 2**50])
def test_regular_numbers_are_told_apart(stride: int) -> None:
    """Numbers at equal distances, some of them twice, are no harder than others."""
    numbers = np.tile(np.arange(500) * np.int64(stride), 2)

    assert first_equal_rows(numbers).tolist() == [*range(500), *range(500)]
