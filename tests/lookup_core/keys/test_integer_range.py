"""What types of whole numbers hold."""

import pyarrow as pa
import pytest

from lookup_core.keys.key_casts import integer_range


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint64"])
def test_range_is_what_arrow_takes(name: str) -> None:
    """Arrow takes the first and the last number of a type's range, and neither one beyond."""
    kind = pa.type_for_alias(name)
    numbers = integer_range(kind)

    assert pa.array([numbers[0], numbers[-1]], kind).to_pylist() == [numbers[0], numbers[-1]]
    for beyond in (numbers.start - 1, numbers.stop):
        with pytest.raises((pa.ArrowInvalid, OverflowError)):
            pa.scalar(beyond, kind)


def test_other_types_hold_none() -> None:
    """A type that is not one of whole numbers has none of them."""
    assert [*map(integer_range, (pa.bool_(), pa.float64(), pa.utf8()))] == [range(0)] * 3
