"""Arrow schemas, record batches and answers in frames; the bytes of a peer are not trusted."""

import struct
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyarrow import types

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, bad_frame

SCHEMA = "schema"  # as Arrow names the kinds of messages
RECORD_BATCH = "record batch"

_ENVELOPE = struct.Struct("<4si")  # continuation marker, size of the metadata
_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNMENT = 8
# Field numbers of the flatbuffer tables in Arrow's Message.fbs and Schema.fbs.
_MESSAGE_HEADER = 2  # the Schema or RecordBatch
_SCHEMA_ENDIANNESS = 0
_BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 1, 2, 3


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
_MAX_QUOTED = 80  # characters of a peer in an error or log
_EXTENSION = b"ARROW:extension:name"


def _read_message(
    message: bytes | memoryview, kind: str, *, offset: int | None = None
) -> pa.Message:
    """The message of this kind, which is at byte `offset` of its frame.

    Raises ProtocolViolation, or an error of Arrow for malformed bytes.
    """
    _check_envelope(message, offset)
    reader = pa.BufferReader(message)
    found = pa.ipc.read_message(reader)
    if reader.tell() != reader.size():
        raise bad_frame(f"the frame continues after the {kind}", offset)
    # Arrow has verified the offsets that are read below only for a message of this kind.
    if found.type != kind:
        raise bad_frame(f"expected a {kind}, got: {found.type}", offset)
    # In version 4, the metadata of the message may declare compression.
    if found.metadata_version != pa.ipc.MetadataVersion.V5:
        raise bad_frame("Arrow's metadata must have version 5", offset)
    _check_header(memoryview(found.metadata), kind, offset)
    return found


def _check_envelope(message: bytes | memoryview, offset: int | None) -> None:
    if len(message) < _ENVELOPE.size:
        raise bad_frame("an Arrow message was expected", offset)
    marker, size = _ENVELOPE.unpack_from(message)
    is_sound = marker == _CONTINUATION and size > 0 and size % _ALIGNMENT == 0
    if not is_sound or _ENVELOPE.size + size > len(message):
        raise bad_frame("an Arrow message was expected", offset)


def _check_header(metadata: memoryview, kind: str, offset: int | None) -> None:
    root = _follow(metadata, 0)
    header_at = _field_offset(metadata, root, _MESSAGE_HEADER)
    if not header_at:
        raise bad_frame(f"expected a {kind}, got: nothing", offset)
    header = _follow(metadata, root + header_at)
    if kind == RECORD_BATCH and _field_offset(metadata, header, _BATCH_COMPRESSION):
        raise bad_frame("buffers must not be compressed", offset)
    # Most writers omit the default, which is little-endian.
    endianness = _field_offset(metadata, header, _SCHEMA_ENDIANNESS) if kind == SCHEMA else 0
    if endianness and struct.unpack_from("<h", metadata, header + endianness)[0]:
        raise bad_frame("columns must be little-endian", offset)


def _fields_within(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """The fields, and all fields within them."""
    for field in fields:
        yield field
        if types.is_nested(field.type):
            yield from _fields_within(field.type.field(at) for at in range(field.type.num_fields))


def _vector_size(metadata: memoryview, table: int, number: int) -> int:
    at = _field_offset(metadata, table, number)
    if not at:
        return 0
    return int(struct.unpack_from("<I", metadata, _follow(metadata, table + at))[0])


def _follow(metadata: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", metadata, at)[0])


def _field_offset(metadata: memoryview, table: int, number: int) -> int:
    # A table starts with the distance to its vtable, which has a two-byte offset for each field;
    # 0 is an absent field.
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    slot = 4 + 2 * number
    return int(struct.unpack_from("<H", metadata, vtable + slot)[0]) if slot < size else 0


def encode_schema(schema: pa.Schema) -> bytes:
    """The schema as an encapsulated IPC message, without the metadata of its fields."""
    # It could declare an extension type, which is not allowed on the wire.
    fields = [field.remove_metadata() for field in schema]
    return pa.schema(fields, schema.metadata).serialize().to_pybytes()


def decode_schema(
    message: bytes | memoryview, *, offset: int | None = None, may_be_nested: bool = False
) -> pa.Schema:
    """The schema in an IPC message, which is at byte `offset` of its frame.

    Raises ProtocolViolation for other bytes, and for types that are not flat (or lists and structs
    of such).
    """
    try:
        schema = pa.ipc.read_schema(_read_message(message, SCHEMA, offset=offset))
        fields = [*_fields_within(schema)]
        for field in fields:  # Arrow decodes names and time zones on access only
            _ = field.name, types.is_timestamp(field.type) and field.type.tz
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise bad_frame("the schema is not an Arrow schema message", offset) from error
    if len(fields) > MAX_FIELDS:
        raise bad_frame(
            f"a schema may have {MAX_FIELDS} fields, this one has {len(fields)}", offset
        )
    for field in schema:
        if not _may_travel(field, may_be_nested=may_be_nested):
            fault = f"field {field.name[:_MAX_QUOTED]!r} has type {str(field.type)[:_MAX_QUOTED]}"
            nested = ", lists and structs" if may_be_nested else ""
            raise bad_frame(f"{fault}; only flat types{nested} are allowed", offset)
    return schema


def encode_batch(batch: pa.RecordBatch) -> memoryview:
    """The batch as an encapsulated IPC message, without its schema."""
    return memoryview(batch.serialize())


class BatchDecoder:
    """Decodes the batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        fields = [*_fields_within(schema)]
        self._layout = len(fields), sum(field.type.num_buffers for field in fields)

    def decode(self, message: bytes | memoryview) -> pa.RecordBatch:
        """The batch in an IPC message, fully validated (offsets, UTF-8, lengths); zero-copy.

        Raises ProtocolViolation for anything but an uncompressed batch of this schema, and for
        columns that share bytes: credit pays for the size of the message, not for a larger batch.
        """
        try:
            content = _read_message(message, RECORD_BATCH)
            self._check_layout(memoryview(content.metadata))
            batch = pa.ipc.read_record_batch(content, self._schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise bad_frame("the payload is not a record batch of the channel's schema") from error
        if batch.nbytes > content.body.size:
            raise bad_frame("columns share their bytes")
        return batch

    def _check_layout(self, metadata: memoryview) -> None:
        # Arrow ignores surplus nodes and buffers, and so reads the offsets of a text as integers.
        root = _follow(metadata, 0)
        header = _follow(metadata, root + _field_offset(metadata, root, _MESSAGE_HEADER))
        found = (
            _vector_size(metadata, header, _BATCH_NODES),
            _vector_size(metadata, header, _BATCH_BUFFERS),
        )
        if found != self._layout:
            counts = "{} in {} buffers, not {} in {}".format(*found, *self._layout)
            raise bad_frame(f"the payload's columns do not match the channel's schema: {counts}")


def decode_batch(message: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """A single batch; see `BatchDecoder`."""
    return BatchDecoder(schema).decode(message)


def answer_batch(answer: Answer) -> pa.RecordBatch:
    """The record batch of a RESULT frame for an answer."""
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
    """The schema of a RESULT payload with rows of these columns."""
    return pa.schema([*META, *columns])


def answer_from_batch(batch: pa.RecordBatch, *, has_rows: bool) -> Answer:
    """The answer in the record batch of a RESULT frame; zero-copy.

    Raises ProtocolViolation for a null position, outcome or age, and for an unknown error code.
    """
    meta = batch.columns[: len(META)]
    if any(column.null_count for column in meta):
        raise bad_frame("position, outcome and age must not be null")
    positions, outcomes, ages_ms = (column.to_numpy() for column in meta)
    if has_rows:
        # By number: a dimension may have no columns, or one called "position".
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
        raise bad_frame("an error code is unknown") from error


def _may_travel(field: pa.Field, *, may_be_nested: bool) -> bool:
    kind = field.type
    if _EXTENSION in (field.metadata or {}):
        return False  # which extension types Arrow knows depends on the process
    if types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        return False  # casts of such values read beyond an array of Arrow
    if types.is_fixed_size_binary(kind) and not kind.byte_width:
        return False  # any number of such values takes no bytes
    if types.is_list(kind) or types.is_struct(kind):
        within = [kind.field(at) for at in range(kind.num_fields)]
        return bool(
            may_be_nested
            and within
            and all(_may_travel(each, may_be_nested=True) for each in within)
        )
    return any(is_flat(kind) for is_flat in _IS_FLAT)
