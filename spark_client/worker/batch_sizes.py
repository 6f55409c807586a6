"""Output arrays of Arrow functions, with as many rows as the batches of their input.

Gathers the answers to a batch, within a bound of bytes, and joins them with about one copy of them.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.errors import ErrorCode, InvalidRequest

MAX_ANSWERS_BYTES = 2**31 - 1  # to one batch; texts of an Arrow array have no more
_LARGE_COLUMN_BYTES = 64 * 1024 * 1024  # from here on, its memory is given back at once


def counted(batches: Iterator[pa.RecordBatch], sizes: deque[int]) -> Iterator[pa.RecordBatch]:
    """The batches; the number of rows of each is appended to `sizes` first."""
    for batch in batches:
        sizes.append(batch.num_rows)
        yield batch


def in_sizes(
    outputs: Iterator[pa.RecordBatch], sizes: deque[int], *, most_bytes: int = MAX_ANSWERS_BYTES
) -> Iterator[pa.Array]:
    """The first column of all outputs, in arrays of these sizes.

    If Spark has its input as Arrow columns, it pairs each array with a batch of its input. Raises
    InvalidRequest for an array of more than `most_bytes`.
    """
    gathered: list[pa.Array] = []  # for the batch of `sizes[0]` rows
    rows = gathered_bytes = 0
    for output in outputs:
        left = output.column(0)
        while len(left) or (sizes and rows == sizes[0]):
            part = left.slice(0, sizes[0] - rows)
            left = left.slice(len(part))
            gathered.append(part)
            rows += len(part)
            gathered_bytes += part.nbytes
            if gathered_bytes > most_bytes:
                raise InvalidRequest(
                    ErrorCode.ANSWER_TOO_LARGE,
                    f"the answers to the first {rows:,} records of a batch of {sizes[0]:,} have"
                    f" {gathered_bytes:,} bytes; a function returns at most {most_bytes:,} for a"
                    " batch: lower spark.sql.execution.arrow.maxRecordsPerBatch, look up fewer"
                    ' columns, or use lookup_join with via="batch", which returns them in parts',
                )
            if rows == sizes[0]:
                sizes.popleft()
                yield joined(gathered)
                rows = gathered_bytes = 0
    yield from (left for _ in sizes)  # empty batches at the end


def joined(parts: list[pa.Array]) -> pa.Array:
    """One or more arrays of one type as one, and no more in `parts`.

    The memory of each part of a text, and of the other columns, is free once it is copied.
    """
    if len(parts) == 1:
        return parts.pop()
    kind = parts[0].type
    if types.is_struct(kind) and kind.num_fields:
        is_null = pa.concat_arrays([part.is_null() for part in parts])
        columns = deque([part.field(at) for part in parts] for at in range(kind.num_fields))
        parts.clear()
        fields = [joined(columns.popleft()) for _ in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=is_null)
    if types.is_string(kind) or types.is_binary(kind):
        return _joined_texts(parts)
    whole = pa.concat_arrays(parts)
    parts.clear()
    return whole


def _joined_texts(parts: list[pa.Array]) -> pa.Array:
    kind, is_valid = parts[0].type, pa.concat_arrays([part.is_valid() for part in parts])
    lengths = [np.diff(_offsets(part)) for part in parts]
    offsets = np.concatenate([[0], *lengths]).cumsum().astype(np.int32)
    data = pa.allocate_buffer(int(offsets[-1]))
    target, stop, is_large = (
        np.frombuffer(data, np.uint8),
        len(data),
        len(data) > _LARGE_COLUMN_BYTES,
    )
    while parts:  # from the last one
        part = parts.pop()
        begin, end = _offsets(part)[[0, -1]].tolist()
        if begin < end:
            text = memoryview(part.buffers()[2])[begin:end]
            target[stop - (end - begin) : stop] = np.frombuffer(text, np.uint8)
            del text
        stop -= end - begin
        del part
        if is_large:
            pa.default_memory_pool().release_unused()
    buffers = [is_valid.buffers()[1], pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(kind, len(is_valid), buffers)


def _offsets(texts: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
