"""Arrow schemas and record batches as they stand in frames; bytes of a peer are never trusted.

The columns of a RESULT are `META` and, if it has rows, the columns asked for; without rows
`META` and `ERROR`. Flat types only: no dictionaries, extensions or nesting, no compression.
"""

import struct

import pyarrow as pa
from pyarrow import types

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, ProtocolViolation

META = pa.schema(
    [
        pa.field("position", pa.int32(), nullable=False),
        pa.field("outcome", pa.uint8(), nullable=False),
        pa.field("age_ms", pa.uint32(), nullable=False),
    ]
)
ROWLESS = META.append(pa.field("error", pa.utf8()))

_IS_FLAT = (
    types.is_integer,
    types.is_floating,
    types.is_boolean,
    types.is_string,
    types.is_large_string,
    types.is_binary,
    types.is_large_binary,
    types.is_fixed_size_binary,
    types.is_decimal,
    types.is_date,
    types.is_timestamp,
    types.is_time,
)
MAX_FIELDS = 1_000


def encode_schema(schema: pa.Schema) -> bytes:
    """The schema as an encapsulated IPC message."""
    return schema.serialize().to_pybytes()


def decode_schema(message: bytes | memoryview) -> pa.Schema:
    """The schema in an IPC message.

    Raises ProtocolViolation for other bytes, and for other than flat types.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
    except (pa.ArrowException, OSError) as error:
        raise _bad("the schema is not an Arrow schema message") from error
    if len(schema) > MAX_FIELDS:
        raise _bad(f"a schema may have {MAX_FIELDS} fields, this one has {len(schema)}")
    for field in schema:
        if not any(is_kind(field.type) for is_kind in _IS_FLAT):
            raise _bad(f"field {field.name!r} has type {field.type}; only flat types may travel")
    return schema


def encode_batch(batch: pa.RecordBatch) -> memoryview:
    """The batch as an encapsulated IPC message, without its schema."""
    return memoryview(batch.serialize())


def decode_batch(message: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in an IPC message, checked in full (offsets, UTF-8, lengths); zero-copy.

    Raises ProtocolViolation for anything that is not an uncompressed batch of this schema.
    """
    buffer = pa.py_buffer(message)
    try:
        if _is_compressed(pa.ipc.read_message(buffer)):
            raise _bad("compressed buffers are refused")
        batch = pa.ipc.read_record_batch(buffer, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, struct.error, IndexError, EOFError) as error:
        raise _bad("the payload is not a record batch of the channel's schema") from error
    return batch


def answer_batch(answer: Answer) -> pa.RecordBatch:
    """An answer as the record batch of a RESULT frame."""
    meta = [pa.array(answer.positions), pa.array(answer.outcomes), pa.array(answer.ages_ms)]
    if answer.rows is None:
        errors = (
            [answer.errors.get(position) for position in answer.positions.tolist()]
            if answer.errors
            else None
        )
        column = pa.nulls(answer.size, pa.utf8()) if errors is None else pa.array(errors, pa.utf8())
        return pa.record_batch([*meta, column], schema=ROWLESS)
    schema = result_schema(answer.rows.schema)
    return pa.record_batch([*meta, *answer.rows.columns], schema=schema)


def result_schema(columns: pa.Schema) -> pa.Schema:
    """The schema of RESULT payloads that have rows of these columns."""
    return pa.schema([*META, *columns])


def answer_from_batch(batch: pa.RecordBatch, *, has_rows: bool) -> Answer:
    """The answer in the record batch of a RESULT frame; zero-copy."""
    positions, outcomes, ages_ms = (batch.column(index).to_numpy() for index in range(len(META)))
    if has_rows:
        names = range(len(META), batch.num_columns)
        rows = pa.record_batch(
            [batch.column(index) for index in names],
            schema=pa.schema([batch.schema.field(index) for index in names]),
        )
        return Answer(positions, outcomes, ages_ms, rows)
    return Answer(
        positions, outcomes, ages_ms, None, _errors(positions.tolist(), batch.column(len(META)))
    )


def _errors(positions: list[int], codes: pa.Array) -> dict[int, ErrorCode]:
    if codes.null_count == len(codes):
        return {}
    pairs = zip(positions, codes.to_pylist(), strict=True)
    return {position: ErrorCode(code) for position, code in pairs if code is not None}


def _is_compressed(message: pa.Message) -> bool:
    # A flatbuffer table starts with the distance to its vtable, whose slot n is the offset of
    # field n. Message.header is field 2, RecordBatch.compression field 3 (Arrow's Message.fbs).
    metadata = memoryview(message.metadata)
    root = struct.unpack_from("<I", metadata, 0)[0]
    header_at = root + _field_offset(metadata, root, 2)
    header = header_at + struct.unpack_from("<I", metadata, header_at)[0]
    return _field_offset(metadata, header, 3) != 0


def _field_offset(metadata: memoryview, table: int, index: int) -> int:
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    slot = 4 + 2 * index
    return struct.unpack_from("<H", metadata, vtable + slot)[0] if slot < size else 0


def _bad(detail: str) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail)
