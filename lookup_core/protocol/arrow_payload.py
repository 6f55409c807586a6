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


def decode_schema(message: bytes | memoryview, *, offset: int | None = None) -> pa.Schema:
    """The schema in an IPC message, which stands at byte `offset` of its frame.

    Raises ProtocolViolation for other bytes, and for other than flat types.
    """
    reader = pa.BufferReader(message)
    try:
        schema = pa.ipc.read_schema(reader)
        _read_texts(schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _bad("the schema is not an Arrow schema message", offset) from error
    if reader.tell() != reader.size():
        raise _bad("something follows the schema", offset)
    if len(schema) > MAX_FIELDS:
        raise _bad(f"a schema may have {MAX_FIELDS} fields, this one has {len(schema)}", offset)
    for field in schema:
        if not _may_travel(field.type):
            detail = f"field {field.name!r} has type {field.type}; only flat types may travel"
            raise _bad(detail, offset)
    return schema


def encode_batch(batch: pa.RecordBatch) -> memoryview:
    """The batch as an encapsulated IPC message, without its schema."""
    return memoryview(batch.serialize())


def decode_batch(message: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in an IPC message, checked in full (offsets, UTF-8, lengths); zero-copy.

    Raises ProtocolViolation for anything that is not an uncompressed batch of this schema.
    """
    reader = pa.BufferReader(message)
    try:
        content = pa.ipc.read_message(reader)
        if _is_compressed(content):
            raise _bad("compressed buffers are refused")
        batch = pa.ipc.read_record_batch(content, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, struct.error, EOFError) as error:
        raise _bad("the payload is not a record batch of the channel's schema") from error
    if reader.tell() != reader.size():
        raise _bad("something follows the record batch")
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
    """The answer in the record batch of a RESULT frame; zero-copy.

    Raises ProtocolViolation for nulls where none may be, and for an unknown error code.
    """
    meta = batch.columns[: len(META)]
    if any(column.null_count for column in meta):
        raise _bad("position, outcome and age are never null")
    positions, outcomes, ages_ms = (column.to_numpy() for column in meta)
    if has_rows:
        # By number, not by name: a dimension may have a column called "position", or none at all.
        rows = batch.select(list(range(len(META), batch.num_columns)))
        return Answer(positions, outcomes, ages_ms, rows)
    errors = _errors(positions.tolist(), batch.column(len(META)))
    return Answer(positions, outcomes, ages_ms, None, errors)


def _errors(positions: list[int], codes: pa.Array) -> dict[int, ErrorCode]:
    if codes.null_count == len(codes):
        return {}
    pairs = zip(positions, codes.to_pylist(), strict=True)
    try:
        return {position: ErrorCode(code) for position, code in pairs if code is not None}
    except ValueError as error:
        raise _bad("an error code is unknown") from error


def _read_texts(schema: pa.Schema) -> None:
    # Arrow sees that a name or a time zone is not UTF-8 only when somebody asks for it.
    for field in schema:
        _ = field.name, types.is_timestamp(field.type) and field.type.tz


def _may_travel(kind: pa.DataType) -> bool:
    if types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        return False  # Arrow reads behind its table of powers of ten when it casts such values
    return any(is_flat(kind) for is_flat in _IS_FLAT)


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


def _bad(detail: str, offset: int | None = None) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)
