"""Arrow schemas, batches and answers in frames: round trips, and refused bytes."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.arrow_payload import (
    MAX_FIELDS,
    META,
    ROWLESS,
    answer_batch,
    answer_from_batch,
    decode_batch,
    decode_schema,
    encode_batch,
    encode_schema,
    result_schema,
)
from tests.fuzz import forged_arrow
from tests.fuzz.forged_arrow import ForgedBatch, ForgedField, forged, forged_schema

FLAT = pa.record_batch(
    {
        "number": pa.array([1, None, 3], pa.int64()),
        "text": pa.array(["a", None, "é\0"], pa.utf8()),
        "truth": pa.array([True, None, False]),
        "amount": pa.array([Decimal("1.25"), None, Decimal("-7.00")], pa.decimal128(10, 2)),
        "uuid": pa.array([b"x" * 16, None, b"y" * 16], pa.binary(16)),
        "moment": pa.array([0, None, 1], pa.timestamp("us", "UTC")),
    }
)
LISTS = pa.record_batch(
    {
        "numbers": pa.array([[1, None], [], None, [3]], pa.list_(pa.int64())),
        "texts": pa.array([["a"], ["b", "é"], [], None], pa.list_(pa.utf8())),
        "moments": pa.array([[0], None, [1, 2], []], pa.list_(pa.timestamp("us", "UTC"))),
    }
)
NESTED = pa.record_batch(
    {
        "lines": pa.array(
            [[{"a": 1, "b": ["x", None]}, None], None, [], [{"a": None, "b": None}]],
            pa.list_(pa.struct({"a": pa.int32(), "b": pa.list_(pa.utf8())})),
        )
    }
)
SCALES = pa.record_batch([pa.nulls(1, pa.decimal128(5, scale)) for scale in (0, 5)], ["a", "b"])
NUMBERS = pa.record_batch({"id": pa.array([7, 8], pa.int64())})
BATCH = NUMBERS.serialize().to_pybytes()
SCHEMA = NUMBERS.schema.serialize().to_pybytes()
LIST_TYPE = pa.list_(pa.int64())
LIST = pa.record_batch([pa.array([[5], [6], [7, 8]], LIST_TYPE)], ["id"])
LIST_MESSAGE = bytes(encode_batch(LIST))
LIST_OFFSETS = struct.pack("<4i", 0, 1, 2, 4)
TRUE = ForgedBatch()  # the same two numbers
WITH_BITMAP = replace(TRUE, buffers=((16, 1), (0, 16)), body=TRUE.body + b"\1" + bytes(7))
MARKER = b"\xff" * 4
EXTENSION = b"ARROW:extension:name"
DAY_MS = 86_400_000
NO_MESSAGE = "an Arrow message was expected"
NO_BATCH = "the payload is not a record batch of the channel's schema"
NO_SCHEMA = "the schema is not an Arrow schema message"
FOLLOWS = "the frame continues after the record batch"
OTHER_VERSION = "Arrow's metadata must have version 5"


def refusal(decode: Callable[..., object], *given: object, **named: object) -> str:
    """The detail of the ProtocolViolation that these bytes raise."""
    with pytest.raises(ProtocolViolation) as caught:
        decode(*given, **named)
    assert caught.value.code is ErrorCode.BAD_FRAME
    return caught.value.detail


def cases(groups: Mapping[str, Mapping[str, bytes | ForgedBatch]]) -> list[Any]:
    """Parameters (message, reason) from {reason: {name: message}}."""
    return [
        pytest.param(
            message.message() if isinstance(message, ForgedBatch) else message, reason, id=name
        )
        for reason, group in groups.items()
        for name, message in group.items()
    ]


def lie(**facts: Any) -> ForgedBatch:  # noqa: ANN401
    """The true batch with other facts."""
    return replace(TRUE, **facts)


def buffer(offset: int, size: int) -> ForgedBatch:
    """The true batch, whose values are declared to lie there."""
    return lie(buffers=((0, 0), (offset, size)))


def with_offsets(layout: str, *offsets: int) -> ForgedBatch:
    """Two values of any length with these offsets."""
    packed = struct.pack(layout, *offsets)
    packed += bytes(-len(packed) % 8)
    places = ((0, 0), (0, struct.calcsize(layout)), (len(packed), 7))
    return lie(buffers=places, body=packed + b"abcdefg\0")


def two_values(content: bytes) -> bytes:
    """The message of two values with this content."""
    return lie(buffers=((0, 0), (0, len(content))), body=content).message()


def plain(answer: Answer) -> tuple[object, ...]:
    """All parts of an answer as plain values."""
    columns = (answer.positions, answer.outcomes, answer.ages_ms)
    return *(column.tolist() for column in columns), answer.rows, answer.errors


@pytest.mark.parametrize(
    "batch",
    [
        *(FLAT, FLAT.slice(1, 1), FLAT.slice(3), LISTS, LISTS.slice(1, 2), LISTS.slice(4)),
        *(SCALES, NESTED, NESTED.slice(1, 2)),
    ],
    ids=[
        "flat",
        "slice",
        "empty",
        "lists",
        "slice of lists",
        "empty lists",
        "scales",
        "nested",
        "slice of nested",
    ],
)
def test_schema_and_batch_survive_the_wire(batch: pa.RecordBatch) -> None:
    """A schema and its batch are the same after encoding and decoding."""
    is_nested = batch.schema in {LISTS.schema, NESTED.schema}
    schema = decode_schema(encode_schema(batch.schema), may_be_nested=is_nested)

    assert schema == batch.schema
    assert decode_batch(encode_batch(batch), schema) == batch


def test_slice_sends_only_its_rows() -> None:
    """A slice takes as many bytes as a batch of its length."""
    long = pa.record_batch({"id": pa.array(range(1_000), pa.int64())})

    assert len(encode_batch(long.slice(500, 2))) == len(encode_batch(NUMBERS))


def test_metadata_of_fields_is_dropped() -> None:
    """The metadata of the schema is kept, that of its fields is not."""
    field = pa.field("a", pa.utf8(), metadata={EXTENSION: "arrow.json"})

    decoded = decode_schema(encode_schema(pa.schema([field], {"sidelook.names": "exact"})))

    expected = pa.schema({"a": pa.utf8()}, {"sidelook.names": "exact"})
    assert decoded.equals(expected, check_metadata=True)


def test_true_forgeries_are_read() -> None:
    """The forged messages of these tests are valid where they declare the truth."""
    batch = pa.record_batch({"a": pa.array([1, 2], pa.int8()), "b": pa.array([1.5, 2.5])})
    with_null = replace(WITH_BITMAP, nodes=((2, 1),))

    assert decode_schema(forged_schema(ForgedField())) == NUMBERS.schema
    assert decode_batch(TRUE.message(), NUMBERS.schema) == NUMBERS
    assert decode_batch(with_null.message(), NUMBERS.schema).to_pydict() == {"id": [7, None]}
    assert decode_batch(forged(batch).message(), batch.schema) == batch
    text = decode_batch(with_offsets("<3i", 0, 3, 7).message(), pa.schema({"id": pa.utf8()}))
    assert text.to_pydict() == {"id": ["abc", "defg"]}
    assert LIST_MESSAGE.count(LIST_OFFSETS) == 1


@pytest.mark.parametrize(
    ("message", "reason"),
    cases(
        {
            NO_MESSAGE: {
                "no bytes": b"",
                "garbage": b"garbage, and more of it",
                "envelope of Arrow 0.14": BATCH[4:],
                "end of stream": MARKER + struct.pack("<i", 0),
                "negative size": MARKER + struct.pack("<i", -8) + BATCH[8:],
                "size beyond message": MARKER + struct.pack("<i", 2**31 - 8) + BATCH[8:],
            },
            "expected a record batch, got: schema": {"schema": SCHEMA},
            "expected a record batch, got: unknown": {"unknown kind": lie(header=77)},
            "expected a record batch, got: nothing": {
                "no header": forged_arrow.headless(forged_arrow.RECORD_BATCH)
            },
            FOLLOWS: {
                "batch behind": BATCH + BATCH,
                "short body": lie(body_bytes=8),
            },
            "buffers must not be compressed": {
                "lz4": lie(codec=forged_arrow.LZ4),
                "unknown codec": lie(codec=9),
            },
            OTHER_VERSION: {
                "version 4": lie(version=forged_arrow.V4),
                "compression of version 4": lie(
                    version=forged_arrow.V4, metadata={"ARROW:experimental_compression": "zstd"}
                ),
            },
            NO_BATCH: {
                "truncated": BATCH[:-8],
                "negative body": lie(body_bytes=-1),
                "body beyond all memory": lie(body_bytes=2**62),
                "negative length": lie(length=-1, nodes=((-1, 0),)),
                "length of buffer": lie(length=3, nodes=((3, 0),)),
                "largest length": lie(length=2**63 - 1, nodes=((2**63 - 1, 0),)),
                "misaligned buffer": buffer(4, 8),
                "buffer over the end": buffer(8, 16),
                "negative offset": buffer(-8, 16),
                "negative buffer": buffer(0, -16),
                "farthest buffer": buffer(2**63 - 8, 16),
                "largest buffer": buffer(8, 2**63 - 8),
                "nulls without bitmap": lie(nodes=((2, 1),)),
                "too many nulls": replace(WITH_BITMAP, nodes=((2, 2),)),
                "negative nulls of bitmap": replace(WITH_BITMAP, nodes=((2, -5),)),
                "short bitmap": ForgedBatch(9, ((9, 1),), ((72, 1), (0, 72)), bytes(80)),
            },
        }
    ),
)
def test_bad_batches_are_refused(message: bytes, reason: str) -> None:
    """Other bytes than one uncompressed batch of the schema are refused and allocate nothing."""
    allocated = pa.total_allocated_bytes()

    assert refusal(decode_batch, message, NUMBERS.schema) == reason
    assert pa.total_allocated_bytes() == allocated


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (bytes(encode_batch(FLAT.select(["text"]).slice(0, 1))), "1 in 3 buffers"),
        (bytes(encode_batch(LIST)), "2 in 4 buffers"),
        (lie(nodes=((2, 0),) * 2).message(), "2 in 2 buffers"),
        (lie(nodes=()).message(), "0 in 2 buffers"),
        (lie(buffers=()).message(), "1 in 0 buffers"),
        (lie(buffers=((0, 0),)).message(), "1 in 1 buffers"),
        (forged_arrow.hollow(forged_arrow.RECORD_BATCH), "0 in 0 buffers"),
    ],
    ids=["text", "list", "two nodes", "no node", "no buffers", "one buffer", "hollow"],
)
def test_layout_matches_the_schema(message: bytes, found: str) -> None:
    """A batch with other columns or buffers than its schema is refused, not read as integers."""
    detail = refusal(decode_batch, message, NUMBERS.schema)

    reason = "the payload's columns do not match the channel's schema"
    assert detail == f"{reason}: {found}, not 1 in 2"


def test_columns_share_no_bytes() -> None:
    """A batch whose columns use the same bytes is refused: it is larger than its message."""
    message = lie(nodes=((2, 0),) * 2, buffers=((0, 0), (0, 16)) * 2).message()

    detail = refusal(decode_batch, message, pa.schema({"a": pa.int64(), "b": pa.int64()}))

    assert detail == "columns share their bytes"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        *(
            (with_offsets(layout, *offsets).message(), kind)
            for kind, layout in ((pa.utf8(), "<3i"), (pa.large_binary(), "<3q"))
            for offsets in ((0, 7, 3), (-1, 3, 7), (0, 3, 2**31 - 1))
        ),
        *(
            (LIST_MESSAGE.replace(LIST_OFFSETS, struct.pack("<4i", *offsets)), LIST_TYPE)
            for offsets in ((0, 3, 2, 4), (0, 1, 2, 9), (-1, 1, 2, 4), (9, 1, 2, 4))
        ),
        (with_offsets("<3i", 0, 3, 7).message().replace(b"abcdefg", b"abc\xff\xfefg"), pa.utf8()),
        *(
            (two_values(struct.pack(layout, *numbers)), kind)
            for kind, layout, numbers in (
                (pa.decimal32(3, 1), "<ii", (12, 1_000)),
                (pa.decimal64(3, 1), "<qq", (12, -1_000)),
                (pa.decimal128(3, 1), "<qqqq", (12, 0, 1_000, 0)),
                (pa.decimal256(3, 1), "<8q", (12, *[0] * 6, 1)),
                (pa.date64(), "<qq", (DAY_MS, DAY_MS + 1)),
                (pa.time32("s"), "<ii", (0, 86_400)),
                (pa.time64("us"), "<qq", (0, -1)),
            )
        ),
    ],
)  # fmt: skip
def test_bad_values_are_refused(message: bytes, kind: pa.DataType) -> None:
    """Offsets outside the values, text that is not UTF-8 and values out of range are refused."""
    assert refusal(decode_batch, message, pa.schema({"id": kind})) == NO_BATCH


def of_type(kind: pa.DataType, **metadata: str) -> bytes:
    """The message of a schema with one field of this type."""
    found = {name.encode(): value for name, value in metadata.items()} or None
    return pa.schema([pa.field("b", kind, metadata=found)]).serialize().to_pybytes()


def field(**facts: Any) -> bytes:  # noqa: ANN401
    """The message of a forged schema with one field."""
    return forged_schema(ForgedField(**facts))


@pytest.mark.parametrize(
    ("message", "reason"),
    cases(
        {
            NO_MESSAGE: {"no bytes": b"", "garbage": b"garbage"},
            "expected a schema, got: record batch": {"batch": BATCH},
            "expected a schema, got: nothing": {
                "no header": forged_arrow.headless(forged_arrow.SCHEMA)
            },
            "the frame continues after the schema": {"byte behind": SCHEMA + b"x"},
            OTHER_VERSION: {"version 4": forged_schema(ForgedField(), version=forged_arrow.V4)},
            "columns must be little-endian": {
                "big-endian": forged_schema(ForgedField(), endianness=forged_arrow.BIG),
                "unknown order": forged_schema(ForgedField(), endianness=7),
            },
            NO_SCHEMA: {
                "name is no text": field(name=b"\xff"),
                "negative bits": field(numbers=(("<i", -64), ("<B", 1))),
                "negative width": field(kind=forged_arrow.FIXED_SIZE_BINARY, numbers=(("<i", -1),)),
                "precision": field(
                    kind=forged_arrow.DECIMAL, numbers=(("<i", 39), ("<i", 0), ("<i", 128))
                ),
                "width of decimal": field(
                    kind=forged_arrow.DECIMAL, numbers=(("<i", 5), ("<i", 0), ("<i", 77))
                ),
                "list without child": field(kind=forged_arrow.LIST, numbers=(("<i", 0),)),
                "no type": field(kind=0),
                "unknown type": field(kind=99),
            },
        }
    ),
)
def test_bad_schemas_are_refused(message: bytes, reason: str) -> None:
    """Other bytes than one schema are refused, with the byte at which it starts in its frame."""
    assert refusal(decode_schema, message, offset=20) == f"{reason} (at byte 20)"


@pytest.mark.parametrize(
    ("kind", "may_be_nested"),
    [
        *(
            (kind, False)
            for kind in (
                *(pa.list_(pa.int8()), pa.struct({"a": pa.int8()}), pa.map_(pa.int8(), pa.int8())),
                *(pa.dictionary(pa.int8(), pa.utf8()), pa.run_end_encoded(pa.int16(), pa.int8())),
                *(pa.uuid(), pa.string_view(), pa.duration("s"), pa.null(), pa.binary(0)),
                *(decimal(5, scale) for scale in (-1, 6, 2 * 10**9)
                  for decimal in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)),
            )
        ),
        *(
            (kind, True)
            for kind in (
                *(pa.list_(pa.null()), pa.list_(pa.uuid()), pa.list_(pa.binary(0))),
                pa.list_(pa.field("item", pa.int8(), metadata={EXTENSION: "x"})),
                *(pa.list_(pa.int8(), 2), pa.large_list(pa.int8()), pa.list_view(pa.int8())),
                *(pa.struct({"a": pa.uuid()}), pa.struct({}), pa.list_(pa.struct({}))),
                pa.map_(pa.utf8(), pa.int8()),
            )
        ),
    ],
    ids=str,
)  # fmt: skip
def test_only_flat_types_are_allowed(kind: pa.DataType, *, may_be_nested: bool) -> None:
    """Nested, encoded, empty and extension types are refused, with the name of the field."""
    message = encode_schema(pa.schema({"a": pa.int8(), "b": kind}))

    detail = refusal(decode_schema, message, may_be_nested=may_be_nested)

    lists = ", lists and structs" if may_be_nested else ""
    assert detail == f"field 'b' has type {str(kind)[:80]}; only flat types{lists} are allowed"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, pa.utf8()) for name in ("geoarrow.point", "arrow.json", "")),
        ("geoarrow.point", pa.list_(pa.utf8())),
    ],
)
def test_extension_fields_are_refused(name: str, kind: pa.DataType) -> None:
    """A field that is marked as an extension is refused, whether Arrow knows it or not."""
    message = of_type(kind, **{EXTENSION.decode(): name})

    assert "only flat types" in refusal(decode_schema, message, may_be_nested=True)


@pytest.mark.parametrize("depth", [1, 8, 400])
def test_deep_nesting_is_refused(depth: int) -> None:
    """Lists in lists are refused at any depth."""
    nested = ForgedField(name=b"\xff")
    for _ in range(depth):
        nested = ForgedField(kind=forged_arrow.LIST, numbers=(("<i", 0),), children=(nested,))

    assert refusal(decode_schema, forged_schema(nested))


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "Moon/Far"), pa.list_(pa.timestamp("us", "Moon/Far"))]
)
def test_zones_must_be_utf8(kind: pa.DataType) -> None:
    """A time zone that is not UTF-8 is refused, also inside a list."""
    message = of_type(kind).replace(b"Moon/Far", b"Moon/\xffar")

    assert refusal(decode_schema, message, may_be_nested=True) == NO_SCHEMA


def test_schema_and_refusal_are_bounded() -> None:
    """A schema has at most `MAX_FIELDS` fields; the text of a peer in an error is cut."""
    most = pa.schema([(f"f{number}", pa.int8()) for number in range(MAX_FIELDS)])
    message = encode_schema(most.append(pa.field("more", pa.int8())))
    long = pa.schema({"x" * 1_000: pa.struct([*most])}).serialize().to_pybytes()

    assert decode_schema(encode_schema(most)) == most
    assert refusal(decode_schema, message) == "a schema may have 1000 fields, this one has 1001"
    assert len(refusal(decode_schema, long)) < 250


def answer_of(rows: pa.RecordBatch | None, errors: dict[int, ErrorCode] | None = None) -> Answer:
    """An answer for three positions."""
    outcomes = np.array([Outcome.HIT, Outcome.FETCHED, Outcome.STALE], np.uint8)
    positions, ages_ms = np.array([7, 0, 2], np.int32), np.array([5, 0, 9], np.uint32)
    return Answer(positions, outcomes, ages_ms, rows, errors or {})


NOTHING = rowless_answer(np.array([], np.int32), Outcome.HIT)
NAMED_ALIKE = pa.record_batch(
    [pa.array([8, 8, 8]), pa.array([*"abc"]), pa.array([9] * 3)], ["position", "error", "position"]
)


@pytest.mark.parametrize(
    "answer",
    [
        *(answer_of(FLAT.select(columns)) for columns in (["number", "text"], ["text"], [])),
        answer_of(NAMED_ALIKE),  # names of the answer's own columns
        *(answer_of(None, errors) for errors in ({}, {7: ErrorCode.TYPE})),
        answer_of(None, {7: ErrorCode.TYPE, 2: ErrorCode.TIMEOUT}),
        NOTHING,
        replace(NOTHING, rows=NUMBERS.slice(2)),
    ],
)
def test_answers_survive_the_wire(answer: Answer) -> None:
    """Positions, outcomes, ages, and rows or error codes are the same after the wire."""
    schema = ROWLESS if answer.rows is None else result_schema(answer.rows.schema)

    batch = decode_batch(encode_batch(answer_batch(answer)), schema)
    decoded = answer_from_batch(batch, has_rows=answer.rows is not None)

    assert plain(decoded) == plain(answer)
    assert (decoded.rows and decoded.rows.num_rows) == (answer.rows and answer.rows.num_rows)


@pytest.mark.parametrize("column", META.names)
def test_null_in_meta_is_refused(column: str) -> None:
    """A null position, outcome or age is a violation."""
    batch = answer_batch(rowless_answer(np.array([0, 1], np.int32), Outcome.MISSING))
    at = META.get_field_index(column)
    batch = batch.set_column(at, META.field(at), pa.array([0, None], META.field(at).type))

    detail = refusal(answer_from_batch, batch, has_rows=False)

    assert detail == "position, outcome and age must not be null"


def test_unknown_error_code_is_refused() -> None:
    """An error code that is not defined is a violation."""
    batch = answer_batch(rowless_answer(np.array([0], np.int32), Outcome.ERROR))
    batch = batch.set_column(3, ROWLESS.field(3), pa.array(["of tomorrow"]))

    assert refusal(answer_from_batch, batch, has_rows=False) == "an error code is unknown"
