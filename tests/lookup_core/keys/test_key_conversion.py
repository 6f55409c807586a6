"""Key conversion: JSON values and Arrow columns in the exact types of a dimension's key.

A value that the type cannot hold is the fault of its key; nothing is rounded or guessed.
"""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.typed_keys import (
    EXACT_NAMES,
    NO_BLANKS_FIELD,
    NO_NUL_FIELD,
    UUID_FIELD,
    KeyCasts,
    TypedKeys,
    integer_range,
    named_key,
    typed_keys_from_arrow,
)
from lookup_core.type_texts import type_text
from tests.lookup_core.hypothesis_runs import few_examples

PLAIN = "12345678-9abc-def0-1234-56789abcdef0"
UUID_BYTES = UUID(PLAIN).bytes
INVALID_TEXT = ErrorCode.INVALID_TEXT
PAIR = pa.schema({"origin": pa.utf8(), "number": pa.int16()})
UUID_KEY = pa.field("id", pa.binary(16), metadata=UUID_FIELD)
TEXT_KEY = pa.field("id", pa.utf8(), metadata=NO_NUL_FIELD)
CHAR_KEY = pa.field("id", pa.utf8(), metadata=NO_BLANKS_FIELD)
INTEGERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
]

Plain = tuple[list[Any], list[int], dict[int, ErrorCode]]


def dimension(*fields: pa.Field) -> DimensionSchema:
    """A dimension with these key fields."""
    return DimensionSchema(pa.schema(fields), pa.schema([]))


def field_of(kind: pa.DataType | pa.Field) -> pa.Field:
    """A single key field."""
    return kind if isinstance(kind, pa.Field) else pa.field("id", kind)


def plain(keys: TypedKeys) -> Plain:
    """Values (rows of composite keys), positions of nulls, and faults."""
    keys.columns.validate(full=True)
    rows = [tuple(row.values()) for row in keys.columns.to_pylist()]
    values = [row[0] for row in rows] if keys.columns.num_columns == 1 else rows
    return values, keys.nulls.tolist(), keys.faults


def from_json(values: list[Any], *fields: pa.Field | pa.DataType) -> Plain:
    """Keys of JSON values."""
    schema = dimension(*map(field_of, fields))
    keys = typed_keys_from_json(values, schema)
    assert (keys.columns.schema, keys.size) == (schema.key, len(values))
    return plain(keys)


def cast(column: pa.Array, to: pa.DataType | pa.Field) -> Plain:
    """Keys of an Arrow column."""
    keys = typed_keys_from_arrow(pa.record_batch([column], ["id"]), dimension(field_of(to)))
    assert keys.columns.schema.types == [field_of(to).type]
    return plain(keys)


def faults_at(positions: list[int], code: ErrorCode = ErrorCode.TYPE) -> dict[int, ErrorCode]:
    """The same fault at all positions."""
    return dict.fromkeys(positions, code)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.int8(), -128, -128),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.utf8(), "", ""),
        (pa.utf8(), "é\0", "é\0"),
        (TEXT_KEY, "a ", "a "),
        (CHAR_KEY, " a\t  ", " a\t"),
        (CHAR_KEY, "  ", ""),
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
        *((pa.decimal128(5, 2), zero, Decimal("0.00")) for zero in ("0e-9999999", "-0", "0.0000")),
        (pa.decimal128(38, 38), "0." + "9" * 38, Decimal("0." + "9" * 38)),
        (pa.binary(), "/w==", b"\xff"),
        (pa.binary(), "", b""),
        (UUID_KEY, PLAIN, UUID_BYTES),
        (UUID_KEY, PLAIN.upper(), UUID_BYTES),
        (UUID_KEY, PLAIN.replace("-", ""), UUID_BYTES),
    ],
)
def test_exact_json_values_are_taken(kind: pa.DataType, value: object, expected: object) -> None:
    """A JSON value that the type holds exactly becomes that value."""
    found = from_json([value], kind)

    assert found == ([expected], [], {})
    assert str(found[0][0]) == str(expected)  # also the scale and sign of a decimal


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
        # The parser of Python accepts these:
        (
            pa.decimal128(5, 2),
            ["1_0", " 1", "1 ", "1\n", "\u0661", "0x1", "1e", "+", "1.", "1e1_0"],
        ),
        # Arrow aborts the process for these:
        (pa.decimal128(5, 2), ["1e-9999999", "1e9999999", "1e99999999999999999999", "-1e-999"]),
        (pa.binary(), ["/w=", "/w", "é", "/ w==", "_w==", 5]),
        (UUID_KEY, ["", "1", PLAIN[:-1], PLAIN + "0", PLAIN + "\n", f"{{{PLAIN}}}", 5]),
        (UUID_KEY, [f"urn:uuid:{PLAIN}", "0x" + PLAIN[2:], PLAIN.replace("-", "_")]),
        (UUID_KEY, ["\u0661" + PLAIN[1:], " " + PLAIN[1:]]),
    ],
)
def test_other_json_values_are_faults(kind: pa.DataType, values: list[object]) -> None:
    """A JSON value that would be rounded, cut, guessed or converted is the fault of its key."""
    count = len(values)

    assert from_json(values, kind) == ([None] * count, [], faults_at([*range(count)]))


@pytest.mark.parametrize(
    ("values", "fields", "expected"),
    [
        ([], [pa.int64()], ([], [], {})),
        ([], PAIR, ([], [], {})),
        ([None, 1], [pa.int64()], ([None, 1], [0], {})),
        ([1, "1", 1, None, 2.5], [pa.int64()], ([1, None, 1, None, None], [3], faults_at([1, 4]))),
        ([["JFK", 1], ["", -1]], PAIR, ([("JFK", 1), ("", -1)], [], {})),
        (["JFK", 1, {}, [], True], PAIR, ([(None, None)] * 5, [], faults_at([*range(5)]))),
        (
            [["JFK"], ["JFK", 1, 1], [["JFK", 1]]],
            PAIR,
            ([(None, None)] * 3, [], faults_at([0, 1, 2])),
        ),
        ([None, [None, None], [None, "x"]], PAIR, ([(None, None)] * 3, [0, 1, 2], {})),
        ([[None, 1], ["JFK", None]], PAIR, ([(None, 1), ("JFK", None)], [0, 1], {})),
        (["\ud800", "a\udfff"], [pa.utf8()], ([None] * 2, [], faults_at([0, 1], INVALID_TEXT))),
        (["\ud800", "a"], [pa.date32()], ([None] * 2, [], {0: INVALID_TEXT, 1: ErrorCode.TYPE})),
        (["a\0", "\0"], [TEXT_KEY], ([None] * 2, [], faults_at([0, 1], INVALID_TEXT))),
        ([["\ud800", 1.5]], PAIR, ([(None, None)], [], faults_at([0], INVALID_TEXT))),
        ([[5, "\ud800"]], PAIR, ([(None, None)], [], faults_at([0]))),
    ],
)
def test_faults_stay_with_their_keys(
    values: list[Any], fields: list[pa.Field], expected: Plain
) -> None:
    """A key has the fault of its first part; a key with a NULL part is null, whatever the rest.

    A composite key that is not a list with a value for each field is a fault.
    """
    assert from_json(values, *fields) == expected


@pytest.mark.parametrize("kind", [pa.float64(), pa.large_utf8(), pa.binary(16), pa.time64("us")])
def test_type_without_json_form_is_refused(kind: pa.DataType) -> None:
    """A key type without an exact form in JSON refuses the whole request."""
    with pytest.raises(InvalidRequest) as caught:
        from_json([1], kind)

    assert caught.value.code is ErrorCode.KEY_TYPE
    assert caught.value.detail == f"key 'id' is {kind}, which has no exact form in JSON"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
JSON_TYPES = [
    *(pa.int64(), pa.int16(), pa.utf8(), pa.bool_(), pa.date32(), pa.timestamp("us")),
    *(pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.binary()),
]


@few_examples
@given(
    st.lists(json_values, max_size=8), st.lists(st.sampled_from(JSON_TYPES), min_size=1, max_size=2)
)
def test_any_json_is_key_null_or_fault(values: list[Any], kinds: list[pa.DataType]) -> None:
    """Any JSON value is exactly one of a typed key, a null and a fault."""
    fields = [pa.field(f"k{index}", kind) for index, kind in enumerate(kinds)]

    found, nulls, faults = from_json(json.loads(json.dumps(values)), *fields)

    whole = [at for at, row in enumerate(found) if row is not None and None not in [*_parts(row)]]
    assert sorted([*nulls, *faults, *whole]) == list(range(len(values)))


def _parts(row: object) -> list[object]:
    return [*row] if isinstance(row, tuple) else [row]


@pytest.mark.parametrize("given_type", INTEGERS, ids=str)
@pytest.mark.parametrize("to", INTEGERS, ids=str)
def test_integers_fit_or_are_faults(given_type: pa.DataType, to: pa.DataType) -> None:
    """An integer becomes the same integer of another width, or is a fault."""
    own, target = integer_range(given_type), integer_range(to)
    edges = {0, own[0], own[-1], target[0], target[-1], target[0] - 1, target[-1] + 1}
    values = [None, *sorted(each for each in edges if each in own)]

    found = cast(pa.array(values, given_type), to)

    fits = [value is not None and value in target for value in values]
    kept = [value if fit else None for value, fit in zip(values, fits, strict=True)]
    assert found == (kept, [0], faults_at([at for at, fit in enumerate(fits) if at and not fit]))


TIMES = [0, 1, -1, 1_000, 1_500, -1_500, 10**6, 2**62, -(2**62), None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "Moon/Far"])
def test_moments_stay_or_are_faults(unit: str, zone: str | None) -> None:
    """A timestamp of any unit and zone is the same moment, or a fault beyond microseconds."""
    field = field_of(pa.timestamp("us", None if zone is None else "UTC"))
    batch = pa.record_batch([pa.array(TIMES, pa.timestamp(unit, zone))], ["id"])

    keys = typed_keys_from_arrow(batch, dimension(field))

    nanoseconds = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    moments = [None if time is None else divmod(time * nanoseconds, 1_000) for time in TIMES]
    exact = [
        moment[0] if moment and not moment[1] and -(2**63) <= moment[0] < 2**63 else None
        for moment in moments
    ]
    faults = [at for at in range(9) if exact[at] is None]
    assert keys.columns.column(0).view(pa.int64()).to_pylist() == exact
    assert (keys.nulls.tolist(), keys.faults) == ([9], faults_at(faults))


@pytest.mark.parametrize(
    "kind", [pa.decimal32(9, 3), pa.decimal64(18, 3), pa.decimal128(38, 3), pa.decimal256(76, 3)]
)
def test_decimals_fit_or_are_faults(kind: pa.DataType) -> None:
    """A decimal keeps its value in the key's scale, or is a fault: nothing is rounded."""
    numbers = [Decimal(text) for text in ("1.5", "99.99", "-99.99", "1.005", "100", "0")]

    found = cast(pa.array([*numbers, None], kind), pa.decimal128(4, 2))

    assert found == ([*numbers[:3], None, None, Decimal(0), None], [6], faults_at([3, 4]))
    whole = pa.array([numbers[0], None], kind)
    assert cast(whole, pa.decimal128(38, 10)) == ([numbers[0], None], [1], {})


@pytest.mark.parametrize("kind", [pa.utf8(), pa.large_utf8()])
def test_uuid_is_read_from_text(kind: pa.DataType) -> None:
    """A uuid may be text in any case, with hyphens or without; other text is a fault."""
    texts = [
        "bad",
        PLAIN,
        None,
        PLAIN.upper(),
        PLAIN.replace("-", ""),
        PLAIN + "\n",
        f"{{{PLAIN}}}",
    ]

    for start in range(len(texts) + 1):
        found = cast(pa.array(texts, kind).slice(start), UUID_KEY)

        is_uuid = [at in {1, 3, 4} for at in range(start, 7)]
        kept = [UUID_BYTES if fits else None for fits in is_uuid]
        nulls = [2 - start] if start <= 2 else []
        faults = [at for at, fits in enumerate(is_uuid) if not fits and at not in nulls]
        assert found == (kept, nulls, faults_at(faults))
    assert cast(pa.array(["bad", None], kind), UUID_KEY) == ([None, None], [1], faults_at([0]))


@pytest.mark.parametrize("kind", [pa.utf8(), pa.large_utf8()])
def test_nul_is_a_fault_on_request(kind: pa.DataType) -> None:
    """A key with U+0000 is a fault if the database cannot store it, otherwise a text."""
    column = pa.array(["a", "\0", None, "b\0c"], kind)

    faults = faults_at([1, 3], INVALID_TEXT)
    assert cast(column, pa.utf8()) == (["a", "\0", None, "b\0c"], [2], {})
    assert cast(column, TEXT_KEY) == (["a", None, None, None], [2], faults)
    assert cast(column.slice(2, 1), TEXT_KEY) == ([None], [0], {})
    assert cast(column.slice(0, 1), TEXT_KEY) == (["a"], [], {})


def test_char_keys_ignore_trailing_blanks() -> None:
    """Keys of char(n) have no trailing blanks; other white space counts."""
    column = pa.array(["a", "a  ", " a\t ", "", None, "a\0 "])

    found = cast(column, CHAR_KEY)

    assert found == (["a", "a", " a\t", "", None, None], [4], {5: INVALID_TEXT})


@pytest.mark.parametrize(
    ("kind", "to", "value"),
    [
        (pa.binary(), pa.binary(), b"\xff"),
        (pa.large_binary(), pa.binary(), b"\xff"),
        (pa.large_utf8(), pa.utf8(), "é"),
        (pa.bool_(), pa.bool_(), False),
        (pa.date32(), pa.date32(), date(1970, 1, 1)),
        (pa.binary(16), UUID_KEY, UUID_BYTES),
    ],
)
def test_columns_of_same_kind_are_taken(kind: pa.DataType, to: pa.DataType, value: object) -> None:
    """A column of the key's own kind keeps its values, nulls included."""
    assert cast(pa.array([value, None], kind), to) == ([value, None], [1], {})


def refusal(given_schema: pa.Schema, schema: DimensionSchema) -> str:
    """The reason why keys of this schema are refused, before any batch and for an empty one."""
    with pytest.raises(InvalidRequest) as caught:
        KeyCasts(given_schema, schema)
    empty = [pa.array([], field.type) for field in given_schema]
    with pytest.raises(InvalidRequest, match=r"key|key_type"):
        typed_keys_from_arrow(pa.record_batch(empty, schema=given_schema), schema)
    assert caught.value.code is ErrorCode.KEY_TYPE
    return caught.value.detail


@pytest.mark.parametrize(
    ("kind", "to", "name"),
    [
        (pa.float64(), pa.int64(), "bigint"),
        (pa.int64(), pa.float64(), "double"),
        (pa.utf8(), pa.int64(), "bigint"),
        (pa.int64(), pa.utf8(), "string"),
        (pa.bool_(), pa.int64(), "bigint"),
        (pa.int64(), pa.bool_(), "boolean"),
        (pa.utf8(), pa.binary(), "binary"),
        (pa.binary(), pa.utf8(), "string"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "timestamp"),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), "timestamp_ntz"),
        (pa.timestamp("us"), pa.date32(), "date"),
        (pa.date64(), pa.date32(), "date"),
        (pa.int64(), pa.decimal128(20), "decimal(20,0)"),
        (pa.decimal128(5), pa.int64(), "bigint"),
        (pa.binary(), UUID_KEY, "uuid"),
        (pa.dictionary(pa.int8(), pa.utf8()), pa.utf8(), "string"),
    ],
)
def test_inexact_types_are_refused(kind: pa.DataType, to: pa.DataType, name: str) -> None:
    """A type without an exact conversion is refused; the error names both types."""
    detail = refusal(pa.schema({"id": kind}), dimension(field_of(to)))

    assert detail == (
        f'key "id" is {name}, the given column is {type_text(kind)}, which does not convert to it'
        f" exactly; cast it to {name}"
    )


@pytest.mark.parametrize(
    "names", [["number"], ["origin"], [], ["origin", "number", "more"], ["origin", "origin"]]
)
def test_batch_has_exactly_the_key_fields(names: list[str]) -> None:
    """A batch of keys has all key fields, once each, and no others."""
    detail = refusal(pa.schema([(name, pa.utf8()) for name in names]), dimension(*PAIR))

    assert detail == f"the key is (origin, number), not ({', '.join(names)})"


def test_fields_may_come_in_any_order() -> None:
    """Fields are found by name; a key with a NULL part is null, whatever its other parts are."""
    numbers = pa.array([2**20, 2**20, None, 5], pa.int64())
    batch = pa.record_batch({"number": numbers, "origin": ["JFK", None, None, "LGA"]})

    keys = typed_keys_from_arrow(batch, dimension(*PAIR))
    part = typed_keys_from_arrow(batch.slice(1, 3), dimension(*PAIR))

    assert keys.columns.schema == PAIR
    rows = [("JFK", None), (None, None), (None, None), ("LGA", 5)]
    assert plain(keys) == (rows, [1, 2], faults_at([0]))
    assert plain(part) == (rows[1:], [0, 1], {})


def test_parts_keep_nulls_and_faults() -> None:
    """A part of keys, by range or by positions, has the nulls and faults that lie in it."""
    columns = pa.record_batch({"id": pa.array([7, None, None, 8, None])})
    faults = {2: ErrorCode.TYPE, 4: ErrorCode.KEY_TOO_LARGE}
    keys = TypedKeys(columns, np.array([1], np.int32), faults)

    assert keys.part(0, 5) is keys
    assert plain(keys.part(0, 2)) == ([7, None], [1], {})
    assert plain(keys.part(1, 2)) == ([None, None], [0], {1: ErrorCode.TYPE})
    rest = {0: ErrorCode.TYPE, 2: ErrorCode.KEY_TOO_LARGE}
    assert plain(keys.part(2, 10)) == ([None, 8, None], [], rest)
    assert keys.taken(np.arange(5, dtype=np.int32)) is keys
    assert plain(keys.taken(np.array([1, 3, 4], np.int32))) == (
        [None, 8, None],
        [0],
        {2: ErrorCode.KEY_TOO_LARGE},
    )


WEATHER = DimensionSchema(
    pa.schema({"origin": pa.utf8(), "time_hour": pa.int64()}), pa.schema({"wind": pa.float64()})
)


def named(*names: str) -> pa.Schema:
    """Fields whose types show their original position."""
    return pa.schema([*zip(names, (pa.int8(), pa.int16(), pa.int32()), strict=False)])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("origin", "time_hour"), ("origin", "time_hour")),
        *((names, ("origin", "time_hour")) for names in [("a", "b"), ("origin", "b")]),
        *((names, ("origin", "time_hour")) for names in [("a", "time_hour"), ("a", "a")]),
    ],
)
def test_fields_count_by_position(names: tuple[str, str], expected: tuple[str, str]) -> None:
    """Fields without exact names count by position, with their types."""
    assert named_key(named(*names), WEATHER) == named(*expected)


def test_exact_fields_count_by_name() -> None:
    """Fields with exact names may be in any order."""
    fields = named("time_hour", "origin").with_metadata(EXACT_NAMES)

    assert named_key(fields, WEATHER) == fields


@pytest.mark.parametrize(
    ("names", "is_exact", "hint"),
    [
        *(
            (names, False, "; give all 2 in this order, in on= or as arguments of the function")
            for names in [("a",), ("origin",), ("a", "b", "c"), ()]
        ),
        *(
            (names, False, "; the order is unclear: name the key column of each in on=")
            for names in [("time_hour", "b"), ("a", "origin"), ("time_hour", "origin")]
        ),
        (("origan", "time_hour"), True, "; did you mean origin?"),
        (("a", "b"), True, "; available: origin, time_hour"),
        (("origin", "origin"), True, "; on= lacks time_hour"),
        (("origin",), True, "; on= lacks time_hour"),
    ],
)
def test_ambiguous_fields_are_refused(names: tuple[str, ...], is_exact: bool, hint: str) -> None:  # noqa: FBT001
    """Too few or many fields, a swapped name, and a wrong name among exact ones are errors."""
    fields = named(*names).with_metadata(EXACT_NAMES) if is_exact else named(*names)

    with pytest.raises(InvalidRequest) as caught:
        named_key(fields, WEATHER)

    assert caught.value.code is ErrorCode.KEY_TYPE
    assert caught.value.detail == f"the key is (origin, time_hour), not ({', '.join(names)}){hint}"
