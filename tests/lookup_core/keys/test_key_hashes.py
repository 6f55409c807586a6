"""Stable hashes of keys as their sender has them."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.keys.canonical_keys import NULL_HASH, key_hashes


def hashes(*columns: pa.Array) -> list[int]:
    """Of keys of these columns."""
    names = [f"k{index}" for index in range(len(columns))]
    return key_hashes(pa.record_batch(list(columns), names)).tolist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, None, 1], pa.int32()),
        pa.array(["a", "b", None, "a"], pa.large_utf8()),
        pa.array([b"a", b"b", None, b"a"]),
        pa.array([Decimal("1.0"), Decimal(2), None, Decimal(1)], pa.decimal128(10, 2)),
        pa.array([True, False, None, True]),
        pa.array([1, 2, None, 1], pa.timestamp("us", tz="UTC")),
        pa.array([1, 2, None, 1], pa.date32()),
    ],
    ids=lambda column: str(column.type),
)
def test_equal_keys_have_equal_hashes(column: pa.Array) -> None:
    """Equal keys of any type have one hash, others another, and NULL has its own."""
    first, second, null, again = hashes(column)

    assert first == again != second
    assert null == NULL_HASH


def test_width_of_integers_does_not_matter() -> None:
    """The same number is the same key in a column of any width."""
    kinds = [pa.int8(), pa.int32(), pa.int64(), pa.uint16()]

    assert len({hashes(pa.array([5], kind))[0] for kind in kinds}) == 1
    text = pa.array(["a"])
    assert len({hashes(pa.array([5], kind), text)[0] for kind in kinds}) == 1


def test_part_that_is_null_decides() -> None:
    """A composite key with a NULL part hashes like NULL; whole ones by all their parts."""
    numbers, texts = pa.array([1, None, 1]), pa.array(["a", "a", "b"])

    first, null, other = hashes(numbers, texts)

    assert null == NULL_HASH
    assert first != other


def test_hashes_never_change() -> None:
    """What was divided by them must be found again by any later version."""
    assert hashes(pa.array([1, 2])) == [6238072747940578789, 15839785061582574730]
    assert hashes(pa.array(["a", "b"])) == [7598327460739756453, 7838554613024368338]
    assert hashes(pa.array([1]), pa.array(["a"])) == [16332390250329569900]


def test_no_keys_have_no_hashes() -> None:
    """An empty batch is no special case."""
    assert key_hashes(pa.record_batch([pa.array([], pa.utf8())], ["k"])).dtype == np.uint64
    assert hashes(pa.array([], pa.int64())) == []
