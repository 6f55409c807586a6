"""Record batches and schemas that lie: about lengths, offsets, nulls and types.

None of them reaches a reader, and none ends the process.
"""

import struct
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.arrow_payload import decode_batch, decode_schema
from tools.fuzz import forged_arrow
from tools.fuzz.forged_arrow import (
    ForgedBatch,
    ForgedField,
    forged,
    forged_schema,
)

NO_BATCH = "the payload is not a record batch of the channel's schema"
NO_SCHEMA = "the schema is not an Arrow schema message"
NUMBERS = pa.schema({"id": pa.int64()})
TWO = pa.schema({"a": pa.int64(), "b": pa.int64()})
TRUTH = ForgedBatch()
WITH_BITMAP = replace(TRUTH, buffers=((16, 1), (0, 16)), body=TRUTH.body + b"\1" + bytes(7))
DAY_MS = 86_400_000


def refusal(lie: ForgedBatch, schema: pa.Schema = NUMBERS) -> str:
    """Why a batch is a bad frame."""
    with pytest.raises(ProtocolViolation) as caught:
        decode_batch(lie.message(), schema)
    assert caught.value.code is ErrorCode.BAD_FRAME
    return caught.value.detail


def schema_refusal(message: bytes) -> str:
    """Why a schema is a bad frame."""
    with pytest.raises(ProtocolViolation) as caught:
        decode_schema(message)
    assert caught.value.code is ErrorCode.BAD_FRAME
    return caught.value.detail


def test_truth_is_read() -> None:
    """What the lies below are made from is read, with and without nulls."""
    assert decode_batch(TRUTH.message(), NUMBERS).to_pydict() == {"id": [7, 8]}
    nulls = replace(WITH_BITMAP, nodes=((2, 1),))
    assert decode_batch(nulls.message(), NUMBERS).to_pydict() == {"id": [7, None]}


@pytest.mark.parametrize(
    "lie",
    [
        replace(TRUTH, length=-1, nodes=((-1, 0),)),
        replace(TRUTH, length=3),
        replace(TRUTH, length=3, nodes=((3, 0),)),
        replace(TRUTH, length=2**62, nodes=((2**62, 0),)),
        replace(TRUTH, length=2**63 - 1, nodes=((2**63 - 1, 0),)),
        replace(TRUTH, nodes=()),
        replace(TRUTH, buffers=()),
        replace(TRUTH, buffers=((0, 0),)),
    ],
    ids=["negative", "node", "buffer", "huge", "largest", "no node", "no buffers", "one buffer"],
)
def test_lengths_are_checked(lie: ForgedBatch) -> None:
    """Rows, the nodes of the columns and their buffers say the same, or nothing is read."""
    assert refusal(lie) == NO_BATCH


@pytest.mark.parametrize(
    "place",
    [(4, 8), (8, 16), (-8, 16), (0, -16), (0, 2**40), (2**40, 16), (2**63 - 8, 16), (8, 2**63 - 8)],
)
def test_buffers_lie_inside(place: tuple[int, int]) -> None:
    """A buffer that is misaligned, negative, or reaches beyond the body is refused."""
    assert refusal(replace(TRUTH, buffers=((0, 0), place))) == NO_BATCH


@pytest.mark.parametrize(
    "lie",
    [
        replace(TRUTH, nodes=((2, 1),)),
        replace(TRUTH, nodes=((2, -5),)),
        replace(WITH_BITMAP, nodes=((2, 2),)),
        replace(WITH_BITMAP, nodes=((2, 3),)),
        replace(WITH_BITMAP, nodes=((2, -5),)),
        ForgedBatch(9, ((9, 1),), ((72, 1), (0, 72)), bytes(80)),
    ],
    ids=["no bitmap", "negative", "too many", "more than rows", "both", "short bitmap"],
)
def test_nulls_are_counted(lie: ForgedBatch) -> None:
    """The number of nulls is that of the bitmap, which has a bit for each row."""
    assert refusal(lie) == NO_BATCH


def test_columns_share_no_bytes() -> None:
    """Columns that all point to the same bytes would be worth more than what they cost."""
    lie = replace(TRUTH, nodes=((2, 0),) * 2, buffers=((0, 0), (0, 16)) * 2)

    assert refusal(lie, TWO) == "columns share their bytes"


@pytest.mark.parametrize(("kind", "layout"), [(pa.utf8(), "<3i"), (pa.large_binary(), "<3q")])
@pytest.mark.parametrize("offsets", [(0, 300, 7), (0, 7, 3), (-1, 3, 7), (0, 3, 2**31 - 1)])
def test_offsets_lead_forward_inside(
    kind: pa.DataType, layout: str, offsets: tuple[int, int, int]
) -> None:
    """Offsets that point outside their values, or backwards, never reach a reader."""
    packed = struct.pack(layout, *offsets)
    packed += bytes(-len(packed) % 8)
    places = ((0, 0), (0, struct.calcsize(layout)), (len(packed), 7))
    lie = ForgedBatch(2, ((2, 0),), places, packed + b"abcdefg\0")

    assert refusal(lie, pa.schema({"id": kind})) == NO_BATCH


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.decimal32(3, 1), struct.pack("<ii", 12, 1_000)),
        (pa.decimal64(3, 1), struct.pack("<qq", 12, -1_000)),
        (pa.decimal128(3, 1), struct.pack("<qqqq", 12, 0, 1_000, 0)),
        (pa.decimal256(3, 1), struct.pack("<8q", 12, *[0] * 6, 1)),
        (pa.date64(), struct.pack("<qq", DAY_MS, DAY_MS + 1)),
        (pa.time32("s"), struct.pack("<ii", 0, 86_400)),
        (pa.time64("us"), struct.pack("<qq", 0, -1)),
    ],
    ids=str,
)
def test_values_lie_within_their_type(kind: pa.DataType, values: bytes) -> None:
    """Numbers beyond a decimal's precision, dates within a day, times beyond it: all refused."""
    lie = ForgedBatch(buffers=((0, 0), (0, len(values))), body=values)

    assert refusal(lie, pa.schema({"id": kind})) == NO_BATCH


def test_forgeries_of_flat_types_are_read() -> None:
    """The forger's columns are those of Arrow where they tell the truth, whatever their width."""
    batch = pa.record_batch({"a": pa.array([1, 2], pa.int8()), "b": pa.array([1.5, 2.5])})

    assert decode_batch(forged(batch).message(), batch.schema) == batch


@pytest.mark.parametrize(
    "field",
    [
        ForgedField(name=b"\xff"),
        ForgedField(numbers=(("<i", 7), ("<B", 1))),
        ForgedField(numbers=(("<i", -64), ("<B", 1))),
        ForgedField(kind=forged_arrow.FIXED_SIZE_BINARY, numbers=(("<i", -1),)),
        ForgedField(kind=forged_arrow.DECIMAL, numbers=(("<i", 39), ("<i", 0), ("<i", 128))),
        ForgedField(kind=forged_arrow.DECIMAL, numbers=(("<i", 5), ("<i", 0), ("<i", 77))),
        ForgedField(kind=forged_arrow.LIST, numbers=(("<i", 0),)),
        ForgedField(kind=0),
        ForgedField(kind=99),
    ],
    ids=["name", "bits", "sign", "width", "precision", "decimal", "no child", "none", "unknown"],
)
def test_impossible_fields_are_refused(field: ForgedField) -> None:
    """Types that cannot be, and names that are no text, make no schema."""
    assert schema_refusal(forged_schema(field)) == NO_SCHEMA


@pytest.mark.parametrize("depth", [1, 8, 9, 50, 200, 400])
def test_nesting_is_refused_at_any_depth(depth: int) -> None:
    """Lists in lists are refused, however deep, before anything is built from them."""
    field = ForgedField(name=b"\xff")
    for _ in range(depth):
        field = ForgedField(kind=forged_arrow.LIST, numbers=(("<i", 0),), children=(field,))

    with pytest.raises(ProtocolViolation):
        decode_schema(forged_schema(field))


@pytest.mark.parametrize("name", ["geoarrow.point", "arrow.json", ""])
def test_extensions_of_flat_types_stay_home(name: str) -> None:
    """A field that says it is of an extension type is refused, whether Arrow knows it or not."""
    field = pa.field("a", pa.utf8(), metadata={"ARROW:extension:name": name})
    message = pa.schema([field]).serialize().to_pybytes()

    assert "only flat types may travel" in schema_refusal(message)


def test_values_take_bytes() -> None:
    """A column whose values take no bytes could claim any number of rows."""
    message = pa.schema({"a": pa.binary(0)}).serialize().to_pybytes()

    assert "only flat types may travel" in schema_refusal(message)


def test_quoted_names_are_cut() -> None:
    """What a peer wrote is told, but not at any length: it goes to a log."""
    fields = [(f"child {number}", pa.int8()) for number in range(1_000)]
    message = pa.schema({"x" * 1_000: pa.struct(fields)}).serialize().to_pybytes()

    assert len(schema_refusal(message)) < 250
