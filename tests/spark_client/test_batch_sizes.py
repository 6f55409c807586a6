"""Output arrays of Arrow functions: the sizes of batches, the bound of bytes, and their memory."""

import gc
from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.errors import ErrorCode, InvalidRequest
from spark_client.worker.batch_sizes import in_sizes
from tests.lookup_core.hypothesis_runs import few_examples

STRUCT = pa.struct({"x": pa.binary(), "y": pa.bool_()})
KIND = pa.struct({"t": pa.utf8(), "n": pa.int64(), "l": pa.list_(pa.utf8()), "s": STRUCT})
MIB = 2**20

texts = st.none() | st.text(max_size=3)
rows = st.none() | st.fixed_dictionaries(
    {
        "t": texts,
        "n": st.none() | st.integers(0, 9),
        "l": st.none() | st.lists(texts, max_size=2),
        "s": st.none() | st.fixed_dictionaries({"x": st.binary(max_size=2), "y": st.booleans()}),
    }
)


def outputs(arrays: Iterable[pa.Array]) -> Iterator[pa.RecordBatch]:
    """Batches of one column."""
    return (pa.record_batch([each], ["row"]) for each in arrays)


@few_examples
@given(st.lists(st.lists(rows, max_size=6), min_size=1), st.data())
def test_arrays_have_the_sizes_of_batches(
    parts: list[list[dict[str, object] | None]], data: st.DataObject
) -> None:
    """Any outputs become arrays of any other sizes, with the same values in the same order."""
    values = [row for part in parts for row in part]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=5)))
    sizes = [stop - start for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    arrays = [pa.array([None, *part], KIND).slice(1) for part in parts]

    found = list(in_sizes(outputs(arrays), deque(sizes)))

    assert [len(each) for each in found] == sizes
    assert [row for each in found for row in each.to_pylist()] == values
    for each in found:
        each.validate(full=True)


def test_bytes_of_a_batch_are_bounded() -> None:
    """More bytes than one array may have are an error with a remedy; each batch counts alone."""
    array = pa.array(["x" * 100] * 10)
    size = array.nbytes

    found = in_sizes(outputs([array] * 5), deque([10, 20, 20]), most_bytes=2 * size - 1)

    assert len(next(found)) == 10
    with pytest.raises(InvalidRequest) as caught:
        next(found)
    assert caught.value.code is ErrorCode.ANSWER_TOO_LARGE
    assert f"first 20 records of a batch of 20 have {2 * size:,} bytes" in caught.value.detail
    assert "lower spark.sql.execution.arrow.maxRecordsPerBatch" in caught.value.detail


def test_returned_arrays_are_not_kept() -> None:
    """What a batch has gathered is free as soon as Spark drops the array."""
    gc.collect()
    before = pa.total_allocated_bytes()
    parts = (pa.array(["x" * (MIB // 4)] * 4) for _ in range(9))

    kept = []
    for array in in_sizes(outputs(parts), deque([16, 16, 4])):
        del array
        kept.append(pa.total_allocated_bytes() - before)

    assert max(kept) < 2 * MIB  # of 4 MiB
