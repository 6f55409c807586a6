"""Each key of a lookup is answered exactly once, or the service broke the protocol."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.sent_lookups import OpenPositions

DISTINCT = "an answer's positions must be distinct and below 3"


def take(positions: OpenPositions, *answered: int, is_last: bool = False) -> None:
    """Answer some."""
    positions.take(np.array(answered, np.int32), is_last=is_last)


def refusal(positions: OpenPositions, *answered: int, is_last: bool = False) -> str:
    """Why an answer is a violation."""
    with pytest.raises(ProtocolViolation) as caught:
        take(positions, *answered, is_last=is_last)
    assert caught.value.code is ErrorCode.BAD_FRAME
    return caught.value.detail


def test_answers_come_in_parts_and_any_order() -> None:
    """Together they name every position; the last one may name none."""
    positions = OpenPositions(3)

    take(positions, 2)
    take(positions)
    take(positions, 1, 0)
    take(positions, is_last=True)


@pytest.mark.parametrize("answered", [(3,), (-1,), (2**31 - 1,), (-(2**31),), (1, 1), (0, 1, 0)])
def test_positions_are_inside_and_distinct(answered: tuple[int, ...]) -> None:
    """Another position, or one twice, is refused and has no effect."""
    positions = OpenPositions(3)

    assert refusal(positions, *answered) == DISTINCT
    assert refusal(positions, *answered, is_last=True) == DISTINCT
    take(positions, 0, 1, 2, is_last=True)


def test_position_is_answered_once() -> None:
    """A second answer to a key is refused, whichever frame it is in."""
    positions = OpenPositions(3)
    take(positions, 1)

    assert refusal(positions, 0, 1) == DISTINCT
    take(positions, 0, 2, is_last=True)


def test_last_answer_leaves_none_open() -> None:
    """A last answer before the end would let a task wait for what never comes."""
    positions = OpenPositions(3)
    take(positions, 1)

    told = refusal(positions, 0, is_last=True)

    assert told == "the last answer leaves 1 of 3 keys without one"
    take(positions, 0)
    take(positions, 2, is_last=True)


def test_lookup_of_no_keys_has_a_last_answer() -> None:
    """Nothing to answer is answered at once."""
    take(OpenPositions(0), is_last=True)


@given(st.lists(st.lists(st.integers(-1, 5), max_size=4), max_size=8))
def test_model_of_positions(answers: list[list[int]]) -> None:
    """An answer is taken exactly when a plain set says so, and changes it only then."""
    positions, left = OpenPositions(5), set(range(5))

    for answered in answers:
        if len(set(answered)) == len(answered) and left.issuperset(answered):
            take(positions, *answered, is_last=left == set(answered))
            left -= set(answered)
        else:
            assert "distinct" in refusal(positions, *answered)
