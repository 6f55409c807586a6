"""Arrow streams as request and response bodies; bytes of a caller are never trusted.

Not the frames of the streaming protocol, though the same checks hold for both.
"""

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode, InvalidRequest, ProtocolViolation
from lookup_core.protocol.arrow_payload import decode_batch, decode_schema
from service.http.replies.lookup_result import LookupResult

RESULT_FIELDS = (
    pa.field("outcome", pa.utf8(), nullable=False),
    pa.field("age_ms", pa.uint32(), nullable=False),
    pa.field("error", pa.utf8()),
)
MAX_BATCHES = 1_000  # each costs time whatever its size
_LABELS = np.array([outcome.label for outcome in Outcome], object)


def arrow_keys(body: bytes) -> pa.RecordBatch:
    """The keys in a stream, all its batches as one; raises InvalidRequest (`bad_arrow`)."""
    try:
        return _keys(pa.ipc.MessageReader.open_stream(body))
    except ProtocolViolation as error:
        raise _bad_arrow(error.detail) from error
    except (pa.ArrowException, OSError) as error:
        raise _bad_arrow("the body is not a whole Arrow stream") from error


def arrow_reply(result: LookupResult) -> bytes:
    """The result as a stream of one record batch: `RESULT_FIELDS`, then the row's columns.

    A dimension's column may be called like one of the first three; by position they are distinct.
    """
    fields: list[pa.Field] = list(RESULT_FIELDS)
    fields += [field.with_nullable(True) for field in result.rows.schema]  # noqa: FBT003  # Arrow's
    outcomes = pa.array(_LABELS[result.outcomes], pa.utf8())
    columns = [outcomes, pa.array(result.ages_ms), _errors(result), *result.rows.columns]
    schema = pa.schema(fields)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return sink.getvalue().to_pybytes()


def _keys(messages: pa.MessageReader) -> pa.RecordBatch:
    schema: pa.Schema | None = None
    batches: list[pa.RecordBatch] = []
    for message in messages:
        if schema is None and message.type == "schema":
            schema = decode_schema(memoryview(message.serialize()))
        elif schema is not None and message.type == "record batch" and len(batches) < MAX_BATCHES:
            batches.append(decode_batch(memoryview(message.serialize()), schema))
        else:
            raise _bad_arrow(f"a schema and up to {MAX_BATCHES} plain record batches are expected")
    if schema is None:
        raise _bad_arrow("the body has no schema")
    return pa.concat_batches(batches or [_empty(schema)])


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def _errors(result: LookupResult) -> pa.Array:
    size = len(result.outcomes)
    if not result.errors:
        return pa.nulls(size, pa.utf8())
    codes: list[str | None] = [None] * size
    for position, code in result.errors.items():
        codes[position] = code.value
    return pa.array(codes, pa.utf8())


def _bad_arrow(detail: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.BAD_ARROW, detail)
