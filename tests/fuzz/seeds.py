"""The frames that the fuzzer starts from: one of each kind, and payloads of every schema.

Writes them to the corpus where they are missing: `python -m tests.fuzz.seeds`.
"""

import datetime as dt
import hashlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lookup_core.dimension_schema import VersionColumns
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import META, ROWLESS, encode_batch, result_schema
from lookup_core.protocol.frame_codec import encode_frame
from tests.fuzz.frame_target import SCHEMAS

CORPUS = Path(__file__).parent / "corpus"
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


def seeds() -> Iterator[bytes]:
    """All of them."""
    yield from (b"\0" + encode_frame(frame) for frame in _frames())
    for number, keys in enumerate(_keys()):
        for batch in (keys, keys.slice(2), keys.slice(3)):
            yield bytes([number]) + encode_frame(_lookup(batch))
            yield bytes([number]) + encode_frame(_result(_answer(batch)))
    yield b"\0" + encode_frame(_result(_errors()))


def name_of(entry: bytes) -> str:
    """The file name of a corpus entry, as libFuzzer gives it."""
    return hashlib.sha1(entry, usedforsecurity=False).hexdigest()


def _frames() -> list[frames.Frame]:
    return [
        frames.Hello((1,), "a client"),
        frames.Welcome(1, "a service"),
        *(frames.Open(7, "d", None, "a test", schema) for schema in SCHEMAS),
        frames.Open(7, "d", ("name",), "", pa.schema([])),
        frames.Open(7, "d", ("name",), "", pa.schema([]), is_as_of=True),
        frames.Opened(7, 20_000, 2**40, SCHEMAS[4], ("id", "at")),
        frames.Opened(7, 20_000, 2**40, SCHEMAS[4], ("id",), VersionColumns("at", "until")),
        frames.Opened(7, 20_000, 2**40, SCHEMAS[4], ("id",), waits=True),
        frames.Lookup(7, 1, 5_000, 20, encode_batch(_keys()[0]), 1_709_208_000_000),
        frames.Watermark(7, -(2**63)),
        frames.Status(7, is_idle=True),
        frames.Cancel(7, 9),
        frames.Close(7),
        frames.Closed(7),
        frames.Credit(7, 5, 2**40),
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


def write(folder: Path = CORPUS) -> None:
    """Write what is missing in a folder."""
    folder.mkdir(exist_ok=True)
    for entry in seeds():
        (folder / name_of(entry)).write_bytes(entry)


if __name__ == "__main__":
    write()
