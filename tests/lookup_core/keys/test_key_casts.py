"""Keys as Arrow columns: cast only where no key changes what it equals."""

from collections.abc import Sequence
from datetime import UTC, datetime
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
from lookup_core.keys.key_casts import (
    NO_NUL_FIELD,
    UUID_FIELD,
    check_key_types,
    typed_keys_from_arrow,
)
from lookup_core.keys.typed_keys import TypedKeys

PLAIN = "12345678-9abc-def0-1234-56789abcdef0"
PAIR = pa.schema({"origin": pa.utf8(), "number": pa.int16()})
UUID_KEY = pa.field("id", pa.binary(16), metadata=UUID_FIELD)
TEXT_KEY = pa.field("id", pa.utf8(), metadata=NO_NUL_FIELD)
INTEGERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
]


def dimension(*fields: pa.Field) -> DimensionSchema:
    """A dimension with these key fields."""
    return DimensionSchema(pa.schema(fields), pa.schema([]))


def cast(column: pa.Array, to: pa.DataType | pa.Field) -> TypedKeys:
    """The keys of a column, for a dimension whose key has one field."""
    field = to if isinstance(to, pa.Field) else pa.field("id", to)
    keys = typed_keys_from_arrow(pa.record_batch([column], ["id"]), dimension(field))
    keys.columns.validate(full=True)
    assert keys.columns.schema.types == [field.type]
    return keys


def plain(keys: TypedKeys) -> tuple[list[Any], list[int], dict[int, ErrorCode]]:
    """Values, nulls and faults of keys of one column."""
    return keys.columns.column(0).to_pylist(), keys.nulls.tolist(), keys.faults


def refusal(given: pa.Schema, schema: DimensionSchema) -> str:
    """Why keys of this schema are refused, before and with any keys."""
    with pytest.raises(InvalidRequest) as caught:
        check_key_types(given, schema)
    empty = pa.record_batch([pa.array([], field.type) for field in given], schema=given)
    with pytest.raises(InvalidRequest):
        typed_keys_from_arrow(empty, schema)
    assert caught.value.code is ErrorCode.KEY_TYPE
    return caught.value.detail


@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.data())
def test_integers_fit_or_are_faults(
    given: pa.DataType, to: pa.DataType, data: st.DataObject
) -> None:
    """An integer of any width becomes the same integer, or is a fault where it does not fit."""
    own, target = (np.iinfo(kind.to_pandas_dtype()) for kind in (given, to))
    low, high = int(own.min), int(own.max)
    bounds = [bound for bound in (target.min, target.max) if low <= bound <= high]
    number = st.integers(low, high) | st.sampled_from([0, *map(int, bounds)]) | st.none()
    values = data.draw(st.lists(number, max_size=6))

    found = plain(cast(pa.array(values, given), to))

    fits = [value is not None and target.min <= value <= target.max for value in values]
    nulls = [at for at, value in enumerate(values) if value is None]
    faults = [at for at, fit in enumerate(fits) if not fit and at not in nulls]
    kept = [value if fit else None for value, fit in zip(values, fits, strict=True)]
    assert found == (kept, nulls, dict.fromkeys(faults, ErrorCode.TYPE))


TIMES = [0, 1, -1, 1_000, 1_500, -1_500, 10**6, 2**62, -(2**62), None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_moments_stay_or_are_faults(unit: str, zone: str | None) -> None:
    """A timestamp of any unit and zone is the same moment, or a fault where microseconds end."""
    to = pa.timestamp("us", None if zone is None else "UTC")

    keys = cast(pa.array(TIMES, pa.timestamp(unit, zone)), to)

    nanoseconds = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    moments = [None if time is None else divmod(time * nanoseconds, 1_000) for time in TIMES]
    exact = [
        moment[0] if moment and not moment[1] and -(2**63) <= moment[0] < 2**63 else None
        for moment in moments
    ]
    faults = [at for at in range(9) if exact[at] is None]
    assert keys.columns.column(0).view(pa.int64()).to_pylist() == exact
    assert (keys.nulls.tolist(), keys.faults) == ([9], dict.fromkeys(faults, ErrorCode.TYPE))


def test_unknown_zone_does_not_matter() -> None:
    """A moment is the same under whatever name its zone has."""
    column = pa.array([0], pa.timestamp("us", "Moon/Far"))

    values, _, _ = plain(cast(column, pa.timestamp("us", "UTC")))

    assert values == [datetime.fromtimestamp(0, UTC)]


@pytest.mark.parametrize(
    "given", [pa.decimal32(9, 3), pa.decimal64(18, 3), pa.decimal128(38, 3), pa.decimal256(76, 3)]
)
def test_decimals_fit_or_are_faults(given: pa.DataType) -> None:
    """A decimal keeps its value in the key's scale, or is a fault: nothing is rounded."""
    numbers = [Decimal(text) for text in ("1.5", "99.99", "-99.99", "1.005", "100", "0")]

    found = plain(cast(pa.array([*numbers, None], given), pa.decimal128(4, 2)))

    kept = [*numbers[:3], None, None, Decimal(0), None]
    assert found == (kept, [6], {3: ErrorCode.TYPE, 4: ErrorCode.TYPE})


def test_decimals_that_all_fit_are_cast_at_once() -> None:
    """Without a fault the whole column is widened."""
    column = pa.array([Decimal("1.5"), None], pa.decimal128(4, 1))

    assert plain(cast(column, pa.decimal128(38, 10))) == ([Decimal("1.5"), None], [1], {})


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

    for start in range(len(texts)):
        found = plain(cast(pa.array(texts, kind).slice(start), UUID_KEY))

        is_uuid = [at in {1, 3, 4} for at in range(start, 7)]
        kept = [UUID(PLAIN).bytes if fits else None for fits in is_uuid]
        nulls = [2 - start] if start <= 2 else []
        faults = [at for at, fits in enumerate(is_uuid) if not fits and at not in nulls]
        assert found == (kept, nulls, dict.fromkeys(faults, ErrorCode.TYPE))


@pytest.mark.parametrize("texts", [[], [None], ["bad"], [None, "bad"]])
def test_no_uuid_at_all_is_fine(texts: list[str | None]) -> None:
    """A column without a single uuid gives keys without values."""
    values, nulls, faults = plain(cast(pa.array(texts, pa.utf8()), UUID_KEY))

    assert values == [None] * len(texts)
    assert len(nulls) + len(faults) == len(texts)


def test_uuid_bytes_are_taken_as_they_are() -> None:
    """Sixteen bytes are a uuid already."""
    column = pa.array([UUID(PLAIN).bytes, None], pa.binary(16))

    assert plain(cast(column, UUID_KEY)) == ([UUID(PLAIN).bytes, None], [1], {})


@pytest.mark.parametrize("kind", [pa.utf8(), pa.large_utf8()])
def test_nul_is_a_fault_on_request(kind: pa.DataType) -> None:
    """Where the store's texts hold no U+0000, a key with one is a fault; elsewhere it is text."""
    column = pa.array(["a", "\0", None, "b\0c"], kind)

    assert plain(cast(column, pa.utf8())) == (["a", "\0", None, "b\0c"], [2], {})
    faults = {1: ErrorCode.INVALID_TEXT, 3: ErrorCode.INVALID_TEXT}
    assert plain(cast(column, TEXT_KEY)) == (["a", None, None, None], [2], faults)


@pytest.mark.parametrize("texts", [[], [None, None], ["a", "é"]])
def test_text_without_nul_is_untouched(texts: list[str | None]) -> None:
    """Where no text has a U+0000, all stay."""
    values, _, faults = plain(cast(pa.array(texts, pa.utf8()), TEXT_KEY))

    assert (values, faults) == (texts, {})


@pytest.mark.parametrize(
    ("given", "to", "values"),
    [
        (pa.binary(), pa.binary(), [b"\xff", b"", None]),
        (pa.large_binary(), pa.binary(), [b"\xff", b"", None]),
        (pa.large_utf8(), pa.utf8(), ["é", "", None]),
        (pa.bool_(), pa.bool_(), [True, False, None]),
        (pa.date32(), pa.date32(), [datetime.fromtimestamp(0, UTC).date(), None]),
    ],
)
def test_equal_kinds_are_taken(given: pa.DataType, to: pa.DataType, values: Sequence[Any]) -> None:
    """A column of the key's own kind keeps its values, nulls included."""
    column = pa.array(values, given)

    assert plain(cast(column, to)) == (values, [len(values) - 1], {})


@pytest.mark.parametrize(
    ("given", "to", "name"),
    [
        (pa.float64(), pa.int64(), "int64"),
        (pa.int64(), pa.float64(), "double"),
        (pa.utf8(), pa.int64(), "int64"),
        (pa.int64(), pa.utf8(), "string"),
        (pa.bool_(), pa.int64(), "int64"),
        (pa.int64(), pa.bool_(), "bool"),
        (pa.utf8(), pa.binary(), "binary"),
        (pa.binary(), pa.utf8(), "string"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "timestamp[us, tz=UTC]"),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), "timestamp[us]"),
        (pa.timestamp("us"), pa.date32(), "date32[day]"),
        (pa.date64(), pa.date32(), "date32[day]"),
        (pa.int64(), pa.decimal128(20), "decimal128(20, 0)"),
        (pa.decimal128(5), pa.int64(), "int64"),
        (pa.binary(), UUID_KEY, "uuid"),
        (pa.dictionary(pa.int8(), pa.utf8()), pa.utf8(), "string"),
    ],
)
def test_guesses_are_refused(given: pa.DataType, to: pa.DataType | pa.Field, name: str) -> None:
    """What could only be converted by a guess is refused for all keys, naming both types."""
    field = to if isinstance(to, pa.Field) else pa.field("id", to)

    detail = refusal(pa.schema({"id": given}), dimension(field))

    assert detail == (
        f"key 'id' is {name}, and {given} does not convert to it exactly; cast the records' column"
    )


@pytest.mark.parametrize(
    "names", [["number"], ["origin"], [], ["origin", "number", "more"], ["origin", "origin"]]
)
def test_fields_are_exactly_the_key(names: list[str]) -> None:
    """A key has all its fields, once each, and no others."""
    given = pa.schema([(name, pa.utf8()) for name in names])

    assert (
        refusal(given, dimension(*PAIR)) == f"the key is (origin, number), not ({', '.join(names)})"
    )


def test_fields_may_come_in_any_order() -> None:
    """Fields are found by name, and put into the order of the dimension's key."""
    batch = pa.record_batch({"number": pa.array([1, 2], pa.int64()), "origin": ["JFK", "LGA"]})

    keys = typed_keys_from_arrow(batch, dimension(*PAIR))

    assert keys.columns.schema == PAIR
    assert keys.columns.to_pydict() == {"origin": ["JFK", "LGA"], "number": [1, 2]}


def test_null_part_outweighs_a_fault() -> None:
    """A key with a NULL part matches nothing, whatever is wrong with its other parts."""
    batch = pa.record_batch(
        {"origin": ["JFK", None, None, "LGA"], "number": pa.array([2**20, 2**20, None, 5])}
    )

    keys = typed_keys_from_arrow(batch, dimension(*PAIR))

    assert (keys.nulls.tolist(), keys.faults) == ([1, 2], {0: ErrorCode.TYPE})
    assert keys.columns.to_pylist()[3] == {"origin": "LGA", "number": 5}


def test_slices_keep_their_positions() -> None:
    """Positions of nulls and faults are those of the slice, not of what it was cut from."""
    column = pa.array([None, 1, 2**20, None, 2]).slice(1, 3)

    assert plain(cast(column, pa.int16())) == ([1, None, None], [2], {1: ErrorCode.TYPE})
