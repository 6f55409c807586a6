"""What the fuzzer holds the decoders to: whatever bytes come, a frame or a ProtocolViolation.

An input is one byte, which chooses a schema, and then a message as a peer would send it. Payloads
are read as the service and the client read them, to the last value. Nothing random happens here.
"""

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import InvalidRequest, ProtocolViolation
from lookup_core.keys.key_casts import UUID_FIELD, check_key_types, typed_keys_from_arrow
from lookup_core.keys.typed_keys import named_key
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import (
    ROWLESS,
    answer_from_batch,
    decode_batch,
    encode_batch,
    result_schema,
)
from lookup_core.protocol.frame_codec import decode_frame, encode_frame

_COLUMNS = pa.schema({"name": pa.utf8()})
_ZEROS = pa.py_buffer(bytes(64))
DIMENSIONS = (
    DimensionSchema(pa.schema({"id": pa.int64()}), _COLUMNS),
    DimensionSchema(pa.schema({"id": pa.utf8()}), _COLUMNS),
    DimensionSchema(pa.schema([pa.field("id", pa.binary(16), metadata=UUID_FIELD)]), _COLUMNS),
    DimensionSchema(pa.schema({"id": pa.decimal128(10, 2)}), _COLUMNS),
    DimensionSchema(pa.schema({"id": pa.int32(), "at": pa.timestamp("us", "UTC")}), _COLUMNS),
)
SCHEMAS = (
    pa.schema({"id": pa.int64()}),
    pa.schema({"id": pa.utf8()}),
    pa.schema({"id": pa.large_binary(), "n": pa.bool_()}),
    pa.schema({"id": pa.decimal128(12, 3)}),
    pa.schema({"id": pa.uint16(), "at": pa.timestamp("ns", "UTC")}),
    pa.schema({"id": pa.binary(16), "day": pa.date64(), "time": pa.time32("ms")}),
    pa.schema({"id": pa.float16(), "b": pa.decimal256(40, 5), "c": pa.large_utf8()}),
)


def take(data: bytes) -> bool:
    """Whether an input is a frame; raises what neither side may raise for bytes of a peer."""
    if not data:
        return False
    try:
        frame = decode_frame(data[1:])
        _read_payload(frame, SCHEMAS[data[0] % len(SCHEMAS)])
    except ProtocolViolation as violation:
        str(violation).encode()  # it goes to a log and into the reason of a close
        return False
    assert decode_frame(encode_frame(frame)) == frame
    return True


def _read_payload(frame: frames.Frame, schema: pa.Schema) -> None:
    match frame:
        case frames.Lookup():
            _use_as_key(_decoded(frame.payload, schema))
        case frames.Result(has_rows=has_rows):
            answer_schema = result_schema(schema) if has_rows else ROWLESS
            batch = _decoded(frame.payload, answer_schema)
            answer_from_batch(batch, has_rows=has_rows)
        case frames.Open():
            _open_with(frame.key)
        case _:
            pass  # the others have no payload


def _decoded(payload: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    batch = decode_batch(payload, schema)
    batch.to_pydict()  # every value is looked at, as a renderer would
    # What is paid for by its size is not worth more than it: neither in bytes nor in rows.
    assert batch.nbytes <= len(payload)
    assert batch.num_rows <= 8 * len(payload)
    # By bytes, because a NaN equals nothing; once more, because a peer need not write as Arrow.
    written = bytes(encode_batch(batch))
    assert bytes(encode_batch(decode_batch(written, schema))) == written
    return batch


def _use_as_key(batch: pa.RecordBatch) -> None:
    for dimension in DIMENSIONS:
        try:
            named = named_key(batch.schema, dimension)
            keys = typed_keys_from_arrow(batch.rename_columns(named.names), dimension)
        except InvalidRequest:
            continue
        keys.columns.validate(full=True)


def _open_with(key: pa.Schema) -> None:
    for dimension in DIMENSIONS:
        try:
            check_key_types(named_key(key, dimension), dimension)
        except InvalidRequest as refusal:
            str(refusal).encode()
    if max((field.type.byte_width for field in key if _is_wide(field)), default=0) <= _ZEROS.size:
        _use_as_key(pa.record_batch([_zero(field.type) for field in key], schema=key))


def _is_wide(field: pa.Field) -> bool:
    return bool(pa.types.is_fixed_size_binary(field.type))


def _zero(kind: pa.DataType) -> pa.Array:
    """One value of a type, whatever zeros mean in it."""
    return pa.Array.from_buffers(kind, 1, [None, *[_ZEROS] * (kind.num_buffers - 1)])
