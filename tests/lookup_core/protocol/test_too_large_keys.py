"""Keys that no LOOKUP of their channel can carry."""

import pyarrow as pa
import pytest

from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.backlog import too_large_keys

MOST_BYTES = 4096


def batch(*columns: pa.Array) -> pa.RecordBatch:
    """Keys of these columns."""
    return pa.record_batch(list(columns), [f"k{index}" for index in range(len(columns))])


def test_only_large_keys_are_named() -> None:
    """Its neighbours are none of its business, nor is a NULL."""
    keys = batch(pa.array(["a" * 5000, "b", None, "c" * 4096, "d" * 2000]), pa.array(range(5)))

    assert too_large_keys(keys, MOST_BYTES).tolist() == [0, 3]


@pytest.mark.parametrize("kind", [pa.int64(), pa.utf8(), pa.large_utf8(), pa.binary()], ids=str)
def test_many_small_keys_are_not_large(kind: pa.DataType) -> None:
    """What counts is each key on its own: a batch may be sent in parts."""
    column = pa.array(range(10_000)).cast(pa.utf8()).cast(kind)

    assert not len(too_large_keys(batch(column), MOST_BYTES))


@pytest.mark.parametrize("length", [0, 1, 2000, 3000, 3600, 3800, 4000])
def test_what_is_not_named_fits(length: int) -> None:
    """A key that is let through is one that can be sent alone."""
    keys = batch(pa.array(["x" * length], pa.utf8()), pa.array([b"y"]), pa.array([None], pa.int8()))

    is_named = bool(len(too_large_keys(keys, MOST_BYTES)))

    assert is_named or len(encode_batch(keys)) <= MOST_BYTES
    assert not is_named or length > 3000


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1] * 40, pa.int8()),
        pa.array([1] * 20 + [None] * 5, pa.int16()),
        pa.array([True] * 500),
        pa.array(["", "a"] * 9, pa.large_utf8()),
        pa.array([b"", b"a", None] * 9),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("columns", [1, 2, 100])
def test_what_does_not_fit_is_named(column: pa.Array, columns: int) -> None:
    """A key that was let through and could not be sent would hold up its channel for good."""
    keys = batch(*[column] * columns)

    for place in (0, 1, len(keys) - 1):
        alone = keys.slice(place, 1)
        size = len(encode_batch(alone))
        assert place in too_large_keys(keys, size - 1)
        assert too_large_keys(alone, size - 1).tolist() == [0]
