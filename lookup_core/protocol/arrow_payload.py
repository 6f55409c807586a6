"""Arrow schemas and record batches as they stand in frames; bytes of a peer are never trusted.

The columns of a RESULT are `META` and, if it has rows, the columns asked for; without rows
`META` and `ERROR`. Flat types only, and lists of them where a key may have several rows: no
dictionaries, extensions or deeper nesting. What stands around the columns is `arrow_message`'s.
"""

from collections.abc import Iterable

import pyarrow as pa
from pyarrow import types

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.arrow_message import RECORD_BATCH, SCHEMA, read_message

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
