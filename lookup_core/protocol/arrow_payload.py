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
_UINT, _INT, _SHORT = struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<H")

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
) -> tuple[pa.Message, int]:
    """The message of this kind, at byte `offset` of its frame, and the place of its header.

    Raises ProtocolViolation, or an error of Arrow for malformed bytes.
    """
    marker, size = _ENVELOPE.unpack_from(message) if len(message) >= _ENVELOPE.size else (b"", 0)
    is_sound = marker == _CONTINUATION and size > 0 and size % _ALIGNMENT == 0
    if not is_sound or _ENVELOPE.size + size > len(message):
        raise bad_frame("an Arrow message was expected", offset)
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
    metadata = memoryview(found.metadata)
    place = _field(metadata, _UINT.unpack_from(metadata)[0], _MESSAGE_HEADER)
    if not place:
        raise bad_frame(f"expected a {kind}, got: nothing", offset)
    header = place + _UINT.unpack_from(metadata, place)[0]
    if kind == RECORD_BATCH and _field(metadata, header, _BATCH_COMPRESSION):
        raise bad_frame("buffers must not be compressed", offset)
    # Most writers omit the default, which is little-endian.
    endianness = _field(metadata, header, _SCHEMA_ENDIANNESS) if kind == SCHEMA else 0
    if endianness and _SHORT.unpack_from(metadata, endianness)[0]:
        raise bad_frame("columns must be little-endian", offset)
    return found, header


def _field(metadata: memoryview, table: int, number: int) -> int:
    """The place of a field of the flatbuffer table at this place; 0: it is absent."""
    # It starts with the distance to its vtable, which has its own size, the table's size, then a
    # two-byte offset for each field.
    vtable = table - _INT.unpack_from(metadata, table)[0]
    slot = 4 + 2 * number
    has_slot = slot < _SHORT.unpack_from(metadata, vtable)[0]
    offset = _SHORT.unpack_from(metadata, vtable + slot)[0] if has_slot else 0
    return table + offset if offset else 0


def _fields_within(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """The fields, and all fields within them."""
    for field in fields:
        yield field
        if types.is_nested(field.type):
            yield from _fields_within(field.type.field(at) for at in range(field.type.num_fields))


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
        schema = pa.ipc.read_schema(_read_message(message, SCHEMA, offset=offset)[0])
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
        self._layout = [len(fields), sum(field.type.num_buffers for field in fields)]

    def decode(self, message: bytes | memoryview) -> pa.RecordBatch:
        """The batch in an IPC message, fully validated (offsets, UTF-8, lengths); zero-copy.

        Raises ProtocolViolation for anything but an uncompressed batch of this schema, and for
        columns that share bytes: credit pays for the size of the message, not for a larger batch.
        """
        try:
            content, header = _read_message(message, RECORD_BATCH)
            metadata, counts = memoryview(content.metadata), []
            for number in (_BATCH_NODES, _BATCH_BUFFERS):
                at = _field(metadata, header, number)
                vector = at + _UINT.unpack_from(metadata, at)[0]
                counts.append(_UINT.unpack_from(metadata, vector)[0] if at else 0)
            # Arrow ignores surplus nodes and buffers: it would read offsets of a text as integers.
            if counts != self._layout:
                found = "{} in {} buffers, not {} in {}".format(*counts, *self._layout)
                detail = f"the payload's columns do not match the channel's schema: {found}"
                raise bad_frame(detail)
            batch = pa.ipc.read_record_batch(content, self._schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise bad_frame("the payload is not a record batch of the channel's schema") from error
        if batch.nbytes > content.body.size:
            raise bad_frame("columns share their bytes")
        return batch


def decode_batch(message: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """A single batch; see `BatchDecoder`."""
    return BatchDecoder(schema).decode(message)


def answer_batch(answer: Answer) -> pa.RecordBatch:
    """The record batch of a RESULT frame for an answer."""
    meta = [pa.array(answer.positions), pa.array(answer.outcomes), pa.array(answer.ages_ms)]
    if answer.rows is not None:
        schema = result_schema(answer.rows.schema)
        return pa.record_batch([*meta, *answer.rows.columns], schema=schema)
    errors = pa.nulls(answer.size, pa.utf8())
    if answer.errors:
        codes = map(answer.errors.get, answer.positions.tolist())
        errors = pa.array(codes, pa.utf8())
    return pa.record_batch([*meta, errors], schema=ROWLESS)


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
    codes = batch.column(len(META))
    errors: dict[int, ErrorCode] = {}
    if codes.null_count < len(codes):
        pairs = zip(positions.tolist(), codes.to_pylist(), strict=True)
        try:
            errors = {at: ErrorCode(code) for at, code in pairs if code is not None}
        except ValueError as error:
            raise bad_frame("an error code is unknown") from error
    return Answer(positions, outcomes, ages_ms, None, errors)


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
