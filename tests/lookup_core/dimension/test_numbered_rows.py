"""Numbers that are taken and given back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension.numbered_rows import NumberedRows

KIND = {"name": np.int64}


def test_rows_keep_what_they_hold() -> None:
    """However many others come, a number's row is its own."""
    rows = NumberedRows(KIND)
    first = rows.take(2)
    rows["name"][first] = [7, 8]

    others = rows.take(1000)
    rows["name"][others] = 0

    assert rows["name"][first].tolist() == [7, 8]
    assert len(rows) == 1002


def test_numbers_are_used_again() -> None:
    """What was given back is taken before new room is made."""
    rows = NumberedRows(KIND)
    rows.give_back(rows.take(64))

    assert sorted(rows.take(64).tolist()) == list(range(64))


def test_no_numbers_are_none() -> None:
    """Nothing may be taken, also where there is nothing yet."""
    rows = NumberedRows(KIND)

    assert (rows.take(0).tolist(), len(rows)) == ([], 0)


@given(st.lists(st.integers(0, 200), max_size=30))
def test_no_number_is_taken_twice(counts: list[int]) -> None:
    """Whatever is taken and given back, nobody shares a number."""
    rows = NumberedRows(KIND)
    held: list[int] = []
    for count in counts:
        held += rows.take(count).tolist()
        assert len(set(held)) == len(held) == len(rows)
        back, held = held[: count // 2], held[count // 2 :]
        rows.give_back(np.array(back, np.intp))
