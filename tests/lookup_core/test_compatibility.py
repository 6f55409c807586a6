"""Replacements of newer Python and pyarrow: they act as the originals do."""

import pyarrow as pa
import pytest

from lookup_core.compatibility import joined_structs

SCHEMA = pa.schema(
    [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.utf8()))],
    metadata={b"k": b"v"},
)
FIRST = pa.record_batch([pa.array([1, 2]), pa.array([["x", None], None])], schema=SCHEMA)
SECOND = pa.record_batch([pa.array([3]), pa.array([[]], pa.list_(pa.utf8()))], schema=SCHEMA)


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([FIRST], id="one"),
        pytest.param([FIRST.slice(1), SECOND, FIRST], id="several, one sliced"),
        pytest.param([FIRST.slice(0, 0), FIRST.slice(0, 0)], id="without rows"),
        pytest.param([FIRST.select([]), SECOND.select([])], id="without columns"),
    ],
)
def test_batches_join_without_concat_batches(batches: list[pa.RecordBatch]) -> None:
    """Rows, schema and metadata are those of pyarrow's own function."""
    joined = joined_structs(batches)

    expected = pa.concat_batches(batches)
    assert joined.equals(expected, check_metadata=True)
    assert joined.num_rows == expected.num_rows
