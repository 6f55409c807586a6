"""Fuzz target and seeds of the frame decoders: any bytes are a frame or a ProtocolViolation.

An input is one byte, which selects a schema, and a message of a peer. Payloads are read like in the
service and the client, to the last value. `python -m tests.fuzz.frames` writes missing seeds to the
corpus.
"""

import datetime as dt
import hashlib
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.errors import InvalidRequest, ProtocolViolation
from lookup_core.keys.typed_keys import (
    UUID_FIELD,
    KeyCasts,
    named_key,
    typed_keys_from_arrow,
)
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import (
    META,
    ROWLESS,
    answer_from_batch,
    decode_batch,
    encode_batch,
    result_schema,
)
from lookup_core.protocol.frame_codec import decode_frame, encode_frame

CORPUS = Path(__file__).parent / "corpus"
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
_NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
# Rows of each of `SCHEMAS`.
_VALUES: tuple[tuple[tuple[Any, ...], ...], ...] = (
    ((7,), (None,), (-1,)),
    (("a",), (None,), ("é\0",)),
    ((b"", True), (None, None), (b"\xff", False)),
    ((Decimal("1.250"),), (None,), (Decimal("-999999999.999"),)),
    ((7, _NOON), (None, None), (65_535, _NOON)),
    ((bytes(16), _NOON.date(), _NOON.time()), (None, None, None), (b"x" * 16, None, dt.time.max)),
    ((np.float16(0.5), Decimal(1), "a"), (None, None, None), (np.float16("nan"), None, "é")),
)


def take(data: bytes) -> bool:
    """Whether an input is a frame; any exception is a fault of the decoders."""
    if not data:
        return False
    try:
        frame = decode_frame(data[1:])
        _read_payload(frame, SCHEMAS[data[0] % len(SCHEMAS)])
    except ProtocolViolation as violation:
        str(violation).encode()  # for a log and the reason of a close
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
    batch.to_pydict()  # reads every value
    # A payload must not expand, in bytes or in rows: its size is what credit pays for.
    assert batch.nbytes <= len(payload)
    assert batch.num_rows <= 8 * len(payload)
    # Bytes, because NaN is not equal to itself; twice, because peers may encode differently.
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
            KeyCasts(named_key(key, dimension), dimension)
        except InvalidRequest as refusal:
            str(refusal).encode()
    if max((field.type.byte_width for field in key if _is_wide(field)), default=0) <= _ZEROS.size:
        _use_as_key(pa.record_batch([_zero(field.type) for field in key], schema=key))


def _is_wide(field: pa.Field) -> bool:
    return bool(pa.types.is_fixed_size_binary(field.type))


def _zero(kind: pa.DataType) -> pa.Array:
    """One value of a type, made of zero bytes."""
    return pa.Array.from_buffers(kind, 1, [None, *[_ZEROS] * (kind.num_buffers - 1)])


def seeds() -> Iterator[bytes]:
    """Frames of each kind, and payloads of every schema."""
    yield from (b"\0" + encode_frame(frame) for frame in _frames())
    for number, keys in enumerate(_keys()):
        for batch in (keys, keys.slice(2), keys.slice(3)):
            yield bytes([number]) + encode_frame(_lookup(batch))
            yield bytes([number]) + encode_frame(_result(_answer(batch)))
    yield b"\0" + encode_frame(_result(_errors()))


def name_of(entry: bytes) -> str:
    """The file name of a corpus entry, as in libFuzzer."""
    return hashlib.sha1(entry, usedforsecurity=False).hexdigest()


def _frames() -> list[frames.Frame]:
    return [
        frames.Hello((1,), "a client"),
        frames.Welcome(1, "a service"),
        *(frames.Open(7, "d", None, "a test", schema) for schema in SCHEMAS),
        frames.Open(7, "d", ("name",), "", pa.schema([])),
        frames.Open(7, "d", ("name",), "", pa.schema([]), is_as_of=True),
        frames.Open(7, "d", None, "", pa.schema([]), options=LookupOptions(9, 2, 5, "name")),
        frames.Opened(7, 20_000, 2**40, SCHEMAS[4], ("id", "at")),
        frames.Opened(7, 20_000, 2**40, SCHEMAS[4], ("id",), VersionColumns("at", "until")),
        frames.Opened(7, 20_000, 2**40, SCHEMAS[4], ("id",), waits=True),
        frames.Open(7, "d", ("name",), "", pa.schema([]), wants_default=True),
        frames.Opened(7, 1, 2, SCHEMAS[0], ("id",), has_all_rows=True, default=b"row"),
        frames.Lookup(7, 1, 5_000, 20, encode_batch(_keys()[0]), 1_709_208_000_000),
        frames.Watermark(7, -(2**63)),
        frames.Status(7, is_idle=True),
        frames.Opened(7, 1, 2, SCHEMAS[0], ("id",), cache="/run/sidelook/cache/1f/1"),
        frames.Cached(7, 5, 2**40 - 6, 1, struct.pack("<3i", -1, 0, 2**31 - 1)),
        frames.Cancel(7, 9),
        frames.Close(7),
        frames.Closed(7),
        frames.Credit(7, 5, 2**40),
        frames.Open(7, "d", ("name",), "", pa.schema([]), wants_reasons=True),
        frames.Reason(7, "value_rejected", "a column"),
        frames.Failure(7, "draining", "it stops", is_retryable=True),
        frames.Goaway("draining"),
    ]


def _lookup(batch: pa.RecordBatch) -> frames.Lookup:
    return frames.Lookup(7, 1, 5_000, 20, encode_batch(batch))


def _keys() -> list[pa.RecordBatch]:
    return [_batch(rows, schema) for rows, schema in zip(_VALUES, SCHEMAS, strict=True)]


def _batch(rows: tuple[tuple[Any, ...], ...], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _answer(rows: pa.RecordBatch) -> pa.RecordBatch:
    schema = result_schema(rows.schema)
    return pa.record_batch([*_meta(rows.num_rows), *rows.columns], schema=schema)


def _errors() -> pa.RecordBatch:
    codes = pa.array(["timeout", None, "type"], pa.utf8())
    return pa.record_batch([*_meta(3), codes], schema=ROWLESS)


def _meta(count: int) -> list[pa.Array]:
    return [pa.array(range(count), field.type) for field in META]


def _result(batch: pa.RecordBatch) -> frames.Result:
    has_rows = batch.schema != ROWLESS
    return frames.Result(7, 1, is_last=True, has_rows=has_rows, payload=encode_batch(batch))


if __name__ == "__main__":
    for seed in seeds():
        (CORPUS / name_of(seed)).write_bytes(seed)
