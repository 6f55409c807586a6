"""Which hashes are among others, whatever the sizes of the two."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.keys.canonical_keys import is_among

hashes = st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**16, 2**16 + 1]))


@given(ours=hashes, others=hashes)
def test_membership_is_that_of_sets(ours: list[int], others: list[int]) -> None:
    """Each hash is told as a set of the others would tell it, duplicates included."""
    found = is_among(np.array(ours, np.uint64), np.array(others, np.uint64))

    assert found.tolist() == [each in set(others) for each in ours]


@pytest.mark.parametrize(("ours", "others"), [(0, 9), (9, 0)])
def test_empty_sides_have_nothing_in_common(ours: int, others: int) -> None:
    """Where one side is empty nothing is among the other."""
    found = is_among(np.zeros(ours, np.uint64), np.zeros(others, np.uint64))

    assert found.tolist() == [False] * ours
