"""Arrow streams as bodies of lookups; request bytes are validated before use."""

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
MAX_BATCHES = 1_000  # even an empty one costs time
_LABELS = np.array([outcome.label for outcome in Outcome], object)


def arrow_keys(body: bytes) -> pa.RecordBatch:
    """The keys of all batches of a stream; raises InvalidRequest (`bad_arrow`)."""
    try:
        return _keys(pa.ipc.MessageReader.open_stream(body))
    except ProtocolViolation as error:
        raise _bad_arrow(error.detail) from error
    except (pa.ArrowException, OSError) as error:
        raise _bad_arrow("the body is not a complete Arrow stream") from error


def arrow_reply(result: LookupResult) -> bytes:
    """The result as a stream of one record batch: `RESULT_FIELDS`, then the row's columns.

    A column may have the name of a result field; positions tell them apart.
    """
    fields = [field.with_nullable(True) for field in result.rows.schema]  # noqa: FBT003  # Arrow's
    schema = pa.schema([*RESULT_FIELDS, *fields])
    outcomes = pa.array(_LABELS[result.outcomes], pa.utf8())
    columns = [outcomes, pa.array(result.ages_ms), _errors(result), *result.rows.columns]
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
    return pa.concat_batches(batches or [pa.RecordBatch.from_pylist([], schema=schema)])


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
