"""Keys as JSON values: taken only if they are exactly of the key's type, never coerced."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.key_casts import NO_NUL_FIELD, UUID_FIELD
from lookup_core.keys.typed_keys import TypedKeys

PLAIN = "12345678-9abc-def0-1234-56789abcdef0"
PAIR = pa.schema({"origin": pa.utf8(), "number": pa.int16()})
UUID_KEY = pa.field("id", pa.binary(16), metadata=UUID_FIELD)


def typed(values: list[Any], *fields: pa.Field) -> TypedKeys:
    """The keys of a dimension with these key fields."""
    return typed_keys_from_json(values, DimensionSchema(pa.schema(fields), pa.schema([])))


def key(kind: pa.DataType) -> pa.Field:
    """A single key field."""
    return pa.field("id", kind)


def only(value: object, field: pa.Field) -> object:
    """What one value becomes: a value of the key's type, or a fault."""
    keys = typed([value], field)
    assert keys.nulls.tolist() == []
    return keys.faults.get(0, keys.columns.column(0)[0].as_py())


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.int8(), -128, -128),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.utf8(), "", ""),
        (pa.utf8(), "é\0", "é\0"),
        (pa.bool_(), False, False),
        (pa.date32(), "2013-01-31", date(2013, 1, 31)),
        (pa.timestamp("us"), "2013-01-31T05:00:00.000001", datetime(2013, 1, 31, 5, 0, 0, 1)),  # noqa: DTZ001
        (pa.timestamp("s"), "2013-01-31T05:00:00", datetime(2013, 1, 31, 5)),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), "2013-01-31T05:00Z", datetime(2013, 1, 31, 5, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "2013-01-31T05+01", datetime(2013, 1, 31, 4, tzinfo=UTC)),
        (pa.decimal128(5, 2), "1.5", Decimal("1.50")),
        (pa.decimal128(5, 2), "-999.99", Decimal("-999.99")),
        (pa.decimal128(5, 2), "1.500", Decimal("1.50")),
        (pa.decimal128(5, 2), "15e-1", Decimal("1.50")),
        (pa.decimal128(5, 2), 999, Decimal("999.00")),
        (pa.decimal128(38, 38), "0." + "9" * 38, Decimal("0." + "9" * 38)),
        (pa.binary(), "/w==", b"\xff"),
        (pa.binary(), "", b""),
    ],
)
def test_exact_values_are_taken(kind: pa.DataType, value: object, expected: object) -> None:
    """A value that the type holds exactly becomes that value."""
    assert only(value, key(kind)) == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1.0, 1.5, True, "1", [1], {}, 2**63, -(2**63) - 1, 10**4_000]),
        (pa.int8(), [128, -129]),
        (pa.uint64(), [-1]),
        (pa.utf8(), [1, True, ["a"]]),
        (pa.bool_(), [0, 1, "true"]),
        (pa.date32(), ["2013-1-31", "2013-02-29", "", 15_706, "2013-01-31T00:00", "10000-01-01"]),
        (pa.timestamp("us"), ["2013-01-31T05:00Z", "", "now", 0, "2013-01-31T05:00:00.0000001"]),
        (pa.timestamp("us", "UTC"), ["2013-01-31T05:00", "2013-01-31T05:00Europe/Berlin"]),
        (pa.timestamp("us", "UTC"), ["0001-01-01T00:00+01:00", "9999-12-31T23:59-00:01"]),
        (pa.timestamp("s"), ["2013-01-31T05:00:00.5"]),
        (pa.decimal128(5, 2), ["1000", "1.005", 1000, 1.5, True, "NaN", "Infinity", "", "1,5"]),
        (pa.binary(), ["/w=", "/w", "é", "/ w==", "_w==", 5]),
    ],
)
def test_other_values_are_faults(kind: pa.DataType, values: list[object]) -> None:
    """What would have to be rounded, cut, guessed or converted is the fault of that key."""
    assert [only(value, key(kind)) for value in values] == [ErrorCode.TYPE] * len(values)


@pytest.mark.parametrize(
    "text", ["1_0", " 1", "1 ", "1\n", "\u0661", "0x1", "1e", "+", "1.", "1e1_0"]
)
def test_decimal_is_plain_digits(text: str) -> None:
    """Spellings that only Python's own parser takes are faults."""
    assert only(text, key(pa.decimal128(5, 2))) is ErrorCode.TYPE


@pytest.mark.parametrize("text", ["1e-9999999", "1e9999999", "1e99999999999999999999", "-1e-999"])
def test_far_exponents_are_harmless(text: str) -> None:
    """An exponent far beyond the type is a fault; it once ended the process inside Arrow."""
    assert only(text, key(pa.decimal128(5, 2))) is ErrorCode.TYPE


def test_zero_has_any_exponent() -> None:
    """Nothing is lost of a zero, however it is written; it has no sign."""
    zeros = [only(text, key(pa.decimal128(5, 2))) for text in ("0e-9999999", "-0", "0.0000")]

    assert [str(zero) for zero in zeros] == ["0.00"] * 3


@pytest.mark.parametrize("text", [PLAIN, PLAIN.upper(), PLAIN.replace("-", "")])
def test_uuid_is_read_in_any_case(text: str) -> None:
    """A uuid may be in upper or lower case, with hyphens or without."""
    assert only(text, UUID_KEY) == UUID(PLAIN).bytes


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", PLAIN[:-1], PLAIN + "0", PLAIN + "\n", f"{{{PLAIN}}}", f"urn:uuid:{PLAIN}"),
        *("0x" + PLAIN[2:], PLAIN.replace("-", "_"), "\u0661" + PLAIN[1:], " " + PLAIN[1:]),
    ],
)
def test_other_uuid_spellings_are_faults(text: str) -> None:
    """Spellings that only Python's own parser takes could name another key by mistake."""
    assert only(text, UUID_KEY) is ErrorCode.TYPE


@pytest.mark.parametrize("value", ["\ud800", "a\udfff"])
def test_half_surrogates_are_no_text(value: str) -> None:
    """A lone surrogate, which JSON can escape, is a fault of its own kind."""
    assert only(value, key(pa.utf8())) is ErrorCode.INVALID_TEXT
    assert only(value, key(pa.date32())) is ErrorCode.INVALID_TEXT


def test_nul_is_a_fault_on_request() -> None:
    """Where the store's texts hold no U+0000, a key with one is a fault."""
    field = pa.field("id", pa.utf8(), metadata=NO_NUL_FIELD)

    assert [only("a\0", field), only("a", field)] == [ErrorCode.INVALID_TEXT, "a"]


def test_null_is_no_fault() -> None:
    """A NULL key is not wrong, it only matches nothing."""
    keys = typed([None, 1], key(pa.int64()))

    assert (keys.nulls.tolist(), keys.faults) == ([0], {})
    assert keys.columns.to_pydict() == {"id": [None, 1]}


def test_faults_stay_with_their_keys() -> None:
    """One wrong key among others does not touch them; duplicates stay duplicates."""
    keys = typed([1, "1", 1, None, 2.5], key(pa.int64()))

    assert keys.columns.to_pydict() == {"id": [1, None, 1, None, None]}
    assert keys.nulls.tolist() == [3]
    assert keys.faults == {1: ErrorCode.TYPE, 4: ErrorCode.TYPE}


def test_composite_key_is_a_list() -> None:
    """A composite key has one value for each field, in the order of the configuration."""
    keys = typed([["JFK", 1], ["", -1]], *PAIR)

    assert keys.columns.to_pydict() == {"origin": ["JFK", ""], "number": [1, -1]}
    assert keys.columns.schema == PAIR
    assert (keys.nulls.tolist(), keys.faults) == ([], {})


@pytest.mark.parametrize("value", ["JFK", 1, {}, [], ["JFK"], ["JFK", 1, 1], [["JFK", 1]], True])
def test_composite_key_needs_all_parts(value: object) -> None:
    """What is not a list of as many values as fields is a fault, not a NULL."""
    keys = typed([["JFK", 1], value], *PAIR)

    assert keys.faults == {1: ErrorCode.TYPE}
    assert (keys.nulls.tolist(), keys.size) == ([], 2)


@pytest.mark.parametrize("value", [None, [None, 1], ["JFK", None], [None, None], [None, "x"]])
def test_null_part_matches_nothing(value: object) -> None:
    """A composite key with any NULL part matches nothing, whatever the other parts are."""
    keys = typed([value], *PAIR)

    assert (keys.nulls.tolist(), keys.faults) == ([0], {})


def test_first_fault_of_a_key_counts() -> None:
    """A key with several wrong parts has one fault, that of the first."""
    keys = typed([["\ud800", 1.5], [5, 1.5]], *PAIR)

    assert keys.faults == {0: ErrorCode.INVALID_TEXT, 1: ErrorCode.TYPE}


@pytest.mark.parametrize("fields", [[key(pa.int64())], list(PAIR)])
def test_no_keys_are_typed_too(fields: list[pa.Field]) -> None:
    """An empty list gives no keys, in the dimension's types."""
    keys = typed([], *fields)

    assert (keys.size, keys.columns.schema, keys.nulls.tolist()) == (0, pa.schema(fields), [])


@pytest.mark.parametrize("kind", [pa.float64(), pa.large_utf8(), pa.binary(16), pa.time64("us")])
def test_type_that_json_lacks_is_refused(kind: pa.DataType) -> None:
    """A key type without an exact form in JSON refuses the whole request, naming the field."""
    with pytest.raises(InvalidRequest) as caught:
        typed([1], key(kind))

    assert caught.value.code is ErrorCode.KEY_TYPE
    assert caught.value.detail == f"key 'id' is {kind}, which JSON cannot name exactly"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
KINDS = [
    *(pa.int64(), pa.int16(), pa.utf8(), pa.bool_(), pa.date32(), pa.timestamp("us")),
    *(pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.binary()),
]


@given(st.lists(json_values, max_size=8), st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
def test_any_json_is_a_key_or_not(values: list[Any], kinds: list[pa.DataType]) -> None:
    """Whatever JSON comes, each key is typed, null or faulty, and exactly one of these."""
    fields = [pa.field(f"k{index}", kind) for index, kind in enumerate(kinds)]

    keys = typed(json.loads(json.dumps(values)), *fields)

    nulls, faults = set(keys.nulls.tolist()), set(keys.faults)
    whole = {at for at, row in enumerate(keys.columns.to_pylist()) if None not in row.values()}
    keys.columns.validate(full=True)
    assert sorted([*nulls, *faults, *whole]) == list(range(len(values)))
