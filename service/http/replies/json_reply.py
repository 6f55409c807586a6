"""JSON lookup replies: rows as objects, outcomes, ages and, if a key failed, errors."""

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from uuid import UUID

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.keys.typed_keys import UUID_FIELD
from service.http.replies.lookup_result import LookupResult

CHUNK_ROWS = 1_000  # written in a few milliseconds
_LABELS = tuple(outcome.label for outcome in Outcome)


async def json_reply(result: LookupResult, detail_of: Callable[[ErrorCode], str]) -> bytes:
    """The body, in request order; other tasks run between chunks of rows."""
    outcomes = [_LABELS[outcome] for outcome in result.outcomes.tolist()]
    pieces = [b'{"outcomes":', orjson.dumps(outcomes), b',"rows":[']
    for index, rows in enumerate(json_rows(result.rows, result.has_row)):
        if index:
            await asyncio.sleep(0)
        pieces.append(rows)
    pieces += [
        b'],"ages_ms":',
        orjson.dumps(result.ages_ms.tolist()),
        _errors(result, detail_of),
        b"}",
    ]
    return b"".join(pieces)


def _errors(result: LookupResult, detail_of: Callable[[ErrorCode], str]) -> bytes:
    if not result.errors:
        return b""
    details = {code: detail_of(code) for code in set(result.errors.values())}
    errors = {
        str(position): {
            "code": code.value,
            "retryable": code.is_retryable,
            "detail": details[code],
        }
        for position, code in sorted(result.errors.items())
    }
    return b',"errors":' + orjson.dumps(errors)


def json_rows(rows: pa.RecordBatch, has_row: npt.NDArray[np.bool_]) -> Iterator[bytes]:
    """Comma-separated objects, or null for missing rows, in chunks of `CHUNK_ROWS`."""
    for start in range(0, len(has_row), CHUNK_ROWS):
        mask = has_row[start : start + CHUNK_ROWS]
        part = rows.slice(start, CHUNK_ROWS) if rows.num_columns else rows
        yield (b"," if start else b"") + orjson.dumps(_objects(part, mask), default=text_of)[1:-1]


def is_plain(field: pa.Field) -> bool:
    """Whether the JSON value is Python's value of the element."""
    kind = field.type
    has_own_text = types.is_temporal(kind) or types.is_nested(kind) or field.metadata == UUID_FIELD
    return not has_own_text


def text_of(value: object) -> str:
    """The text of a value for which JSON has no type."""
    match value:
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


def _objects(
    rows: pa.RecordBatch, has_row: npt.NDArray[np.bool_]
) -> list[dict[str, object] | None]:
    names = rows.schema.names
    columns = [_values(rows.column(at), rows.schema.field(at)) for at in range(len(names))]
    values = zip(*columns, strict=True) if columns else iter([()] * len(has_row))
    return [
        dict(zip(names, row, strict=True)) if has else None
        for row, has in zip(values, has_row.tolist(), strict=True)
    ]


def _values(column: pa.Array, field: pa.Field) -> Sequence[object]:
    # Arrow's texts, because Python's dates end at the year 9999 and at microseconds.
    if types.is_timestamp(field.type):
        return _timestamps(column)
    if types.is_date(field.type) or types.is_time(field.type):
        return column.cast(pa.utf8()).to_pylist()
    if types.is_list(field.type):
        values = iter(_values(column.flatten(), field.type.value_field))
        lengths = pc.list_value_length(column).to_pylist()
        return [None if length is None else [*islice(values, length)] for length in lengths]
    if types.is_struct(field.type):
        fields = [field.type.field(at) for at in range(field.type.num_fields)]
        within = pa.record_batch(column.flatten(), schema=pa.schema(fields))
        return _objects(within, column.is_valid().to_numpy(zero_copy_only=False))
    if field.metadata == UUID_FIELD:
        return [value and str(UUID(bytes=value)) for value in column.to_pylist()]
    return column.to_pylist()


def _timestamps(column: pa.Array) -> Sequence[object]:
    zone = "" if column.type.tz is None else "Z"
    texts = column.cast(pa.timestamp(column.type.unit)).cast(pa.utf8())
    return pc.replace_substring_regex(texts, r"^(\S+) (\S+?)(\.0+)?$", rf"\1T\2{zone}").to_pylist()
