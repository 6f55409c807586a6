"""Arrow schemas and record batches in frames; bytes of a peer are never trusted."""

import struct
from collections.abc import Iterable

import pyarrow as pa
from pyarrow import types

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, ProtocolViolation

SCHEMA = "schema"  # as Arrow names the kinds of messages
RECORD_BATCH = "record batch"

_ENVELOPE = struct.Struct("<4si")  # continuation marker, bytes of metadata
_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNMENT = 8
# Fields of the flatbuffer tables, by number: Message.fbs and Schema.fbs of Arrow's format.
_HEADER = 2  # of Message: the Schema or RecordBatch
_ENDIANNESS = 0  # of Schema
_COMPRESSION = 3  # of RecordBatch


def read_message(
    message: bytes | memoryview, kind: str, *, offset: int | None = None
) -> pa.Message:
    """The message, which stands at byte `offset` of its frame, if it is one of this kind.

    Raises ProtocolViolation, or what Arrow raises for bytes that are no message.
    """
    _check_envelope(message, offset)
    reader = pa.BufferReader(message)
    found = pa.ipc.read_message(reader)
    if reader.tell() != reader.size():
        raise _bad(f"something follows the {kind}", offset)
    # Only in a message of this kind has Arrow checked that the offsets read below lie inside.
    if found.type != kind:
        raise _bad(f"expected a {kind}, got: {found.type}", offset)
    # Version 4 hides compression where nobody looks for it: in the message's own metadata.
    if found.metadata_version != pa.ipc.MetadataVersion.V5:
        raise _bad("only version 5 of Arrow's metadata is taken", offset)
    _check_header(memoryview(found.metadata), kind, offset)
    return found


def _check_envelope(message: bytes | memoryview, offset: int | None) -> None:
    if len(message) < _ENVELOPE.size:
        raise _bad("an Arrow message was expected", offset)
    marker, size = _ENVELOPE.unpack_from(message)
    is_sound = marker == _CONTINUATION and size > 0 and size % _ALIGNMENT == 0
    if not is_sound or _ENVELOPE.size + size > len(message):
        raise _bad("an Arrow message was expected", offset)


def _check_header(metadata: memoryview, kind: str, offset: int | None) -> None:
    root = _follow(metadata, 0)
    header_at = _field_offset(metadata, root, _HEADER)
    if not header_at:
        raise _bad(f"expected a {kind}, got: nothing", offset)
    header = _follow(metadata, root + header_at)
    if kind == RECORD_BATCH and _field_offset(metadata, header, _COMPRESSION):
        raise _bad("compressed buffers are refused", offset)
    # Little-endian is the default, and is not written then by most.
    endianness = _field_offset(metadata, header, _ENDIANNESS) if kind == SCHEMA else 0
    if endianness and struct.unpack_from("<h", metadata, header + endianness)[0]:
        raise _bad("columns are little-endian", offset)


def _follow(metadata: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", metadata, at)[0])


def _field_offset(metadata: memoryview, table: int, number: int) -> int:
    # A table starts with the distance to its vtable, which has two bytes for each field: where it
    # stands in the table, 0 if it does not.
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    slot = 4 + 2 * number
    return int(struct.unpack_from("<H", metadata, vtable + slot)[0]) if slot < size else 0


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
_MAX_QUOTED = 80  # characters of what a peer wrote, in an error and so in a log
_EXTENSION = b"ARROW:extension:name"


def encode_schema(schema: pa.Schema) -> bytes:
    """The schema as an encapsulated IPC message, without its fields' metadata."""
    # Those may say that a field has an extension type, which does not travel.
    fields = [field.remove_metadata() for field in schema]
    return pa.schema(fields, schema.metadata).serialize().to_pybytes()


def decode_schema(
    message: bytes | memoryview, *, offset: int | None = None, may_have_lists: bool = False
) -> pa.Schema:
    """The schema in an IPC message, which stands at byte `offset` of its frame.

    Raises ProtocolViolation for other bytes, and for other than flat types (and lists of them).
    """
    try:
        schema = pa.ipc.read_schema(read_message(message, SCHEMA, offset=offset))
        _read_texts(schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _bad("the schema is not an Arrow schema message", offset) from error
    if len(schema) > MAX_FIELDS:
        raise _bad(f"a schema may have {MAX_FIELDS} fields, this one has {len(schema)}", offset)
    for field in schema:
        if not _may_travel(field, may_have_lists=may_have_lists):
            name, kind = field.name[:_MAX_QUOTED], str(field.type)[:_MAX_QUOTED]
            lists = ", and lists of them," if may_have_lists else ""
            raise _bad(f"field {name!r} has type {kind}; only flat types{lists} may travel", offset)
    return schema


def encode_batch(batch: pa.RecordBatch) -> memoryview:
    """The batch as an encapsulated IPC message, without its schema."""
    return memoryview(batch.serialize())


def decode_batch(message: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in an IPC message, checked in full (offsets, UTF-8, lengths); zero-copy.

    Raises ProtocolViolation for anything that is not an uncompressed batch of this schema, and for
    columns that share bytes: what is paid for by its size must not be worth more than it.
    """
    try:
        content = read_message(message, RECORD_BATCH)
        batch = pa.ipc.read_record_batch(content, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise _bad("the payload is not a record batch of the channel's schema") from error
    if batch.nbytes > content.body.size:
        raise _bad("columns share their bytes")
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


def _read_texts(schema: Iterable[pa.Field]) -> None:
    # Arrow sees that a name or a time zone is not UTF-8 only when somebody asks for it.
    for field in schema:
        _ = field.name, types.is_timestamp(field.type) and field.type.tz
        if types.is_list(field.type):
            _read_texts([field.type.value_field])


def _may_travel(field: pa.Field, *, may_have_lists: bool) -> bool:
    kind = field.type
    if may_have_lists and types.is_list(kind) and _EXTENSION not in (field.metadata or {}):
        return _may_travel(kind.value_field, may_have_lists=False)
    if _EXTENSION in (field.metadata or {}):
        return False  # which of them Arrow knows, and so tells as such, depends on the process
    if types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        return False  # Arrow reads behind its table of powers of ten when it casts such values
    if types.is_fixed_size_binary(kind) and not kind.byte_width:
        return False  # any number of such values takes no bytes at all
    return any(is_flat(kind) for is_flat in _IS_FLAT)


def _bad(detail: str, offset: int | None = None) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)
