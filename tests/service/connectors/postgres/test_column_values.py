"""Decoded values of columns: arrays in PostgreSQL's binary form, JSON documents, decimals."""

import json
import struct
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.type_texts import parsed_type
from service.connectors.postgres.column_types import ColumnReading, column_reading
from service.connectors.postgres.column_values import exact_decimals, parsed_json
from tests.service.connectors.postgres.described_tables import array_of, builtin


def sent(elements: Sequence[bytes | None], *, dimensions: int = 1) -> bytes:
    """An array in the form of `array_send`; the oid of the elements is not read."""
    if not elements:
        return struct.pack(">3i", 0, 0, 25)
    head = struct.pack(">3i", dimensions, None in elements, 25)
    head += struct.pack(">2i", len(elements), 1) * dimensions
    return head + b"".join(
        struct.pack(">i", -1) if each is None else struct.pack(">i", len(each)) + each
        for each in elements
    )


def read(name: str, arrays: Sequence[bytes | None]) -> tuple[list[object], list[int]]:
    """The lists of a column of arrays, and the positions of those that do not fit."""
    reading: ColumnReading = column_reading(array_of(builtin(name)))
    assert reading.decode is not None
    column = reading.decode(pa.array(arrays, reading.sent))
    column.values.validate(full=True)
    assert column.values.type == reading.type
    return column.values.to_pylist(), column.unfit.tolist()


@pytest.mark.parametrize("count", [1, 3, 40])
def test_arrays_become_lists(count: int) -> None:
    """Arrays of any length become lists, whether there are few or many of them."""
    texts = [None if at % 7 == 3 else f"{at}" * (at % 3) for at in range(100)]
    lists = [texts[:size] for size in (0, 1, 5, 100)]
    arrays = [sent([None if text is None else text.encode() for text in each]) for each in lists]

    found = read("text", [*arrays, None] * count)

    assert found == ([*lists, None] * count, [])


def test_several_dimensions_do_not_fit() -> None:
    """An array with several dimensions has no list; the others have theirs."""
    two = sent([b"a"], dimensions=2)

    assert read("text", [sent([b"a"]), two, None]) == ([["a"], None, None], [1])


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("text", b""),
        ("text", sent([b"abc"])[:12]),
        ("text", sent([b"abc"])[:-1]),
        ("text", sent([b"abc", b"d"])[:-5]),
        ("text", struct.pack(">5i", 1, 0, 25, -1, 1)),
        ("text", struct.pack(">5i", 1, 0, 25, 2**31 - 1, 1)),
        ("int4", sent([b"abc"])),
        ("int4", sent([b"abcd"])[:-1]),
    ],
)
def test_malformed_arrays_are_errors(name: str, array: bytes) -> None:
    """Bytes that are no array are an error, and never a value of other bytes."""
    with pytest.raises(ValueError, match=r".+"):
        read(name, [array])


def test_texts_in_arrays_are_utf8() -> None:
    """An element that is not UTF-8 is an error of the table."""
    with pytest.raises(BackendError, match="has no equal in UTF-8") as caught:
        read("text", [sent([b"\xff"])])
    assert caught.value.code is ErrorCode.VALUE_REJECTED


@pytest.mark.parametrize("text", ["1.05", "100", "Infinity", "0." + "0" * 16_000 + "1", "9" * 400])
def test_other_decimals_do_not_fit(text: str) -> None:
    """A number with more digits is not rounded."""
    column = exact_decimals(pa.array(["1", text]), parsed_type("decimal(3,1)"))

    assert (column.values.to_pylist(), column.unfit.tolist()) == ([Decimal("1.0"), None], [1])


def test_documents_fit_wholly() -> None:
    """A document with another type in any place does not fit, nor does one of too many levels."""
    texts = ['{"a": 1}', None, "null", '{"a": 1.5}', "[1]", "[" * 100_000, "{}"]

    column = parsed_json(pa.array(texts), parsed_type("struct<a int>"))

    assert column.values.to_pylist() == [{"a": 1}, None, None, None, None, None, {"a": None}]
    assert column.unfit.tolist() == [3, 4, 5]


NUMBERS = ["1e400", "-1e400", "1e-400", "1e20", "100000000000000000000", "9007199254740994"]
NUMBERS += ["9007199254740993", f"15{'0' * 299}", "0.1", "2e-324", "3e-324", "1e99999999999999999"]


@pytest.mark.parametrize(
    ("kind", "numbers", "expected"),
    [
        ("double", ["0.1", "1e99999999999999999"], [0.1, None]),
        (
            "bigint",
            ["1e2", "100.0", "100.5", "1e18", "1e19", "1e999999999", "-0", "1e-2"],
            [100, 100, None, 10**18, None, None, 0, None],
        ),
        ("decimal(22,1)", ["1e20", "0.25", "1e400", "1e-400"], [Decimal(10**20), None, None, None]),
    ],
)
def test_numbers_fit_in_any_notation(
    kind: str, numbers: list[str], expected: list[float | None]
) -> None:
    """A number in range is its float, or the exact integer or decimal; others do not fit.

    Numbers of other members never matter.
    """
    texts = [
        f'{{"x": {number}, "y": [1e999999999999999999999, {"9" * 5000}]}}' for number in numbers
    ]

    column = parsed_json(pa.array(texts), parsed_type(f"struct<x {kind}>"))

    assert [each and each["x"] for each in column.values.to_pylist()] == expected
    assert column.unfit.tolist() == [at for at, each in enumerate(expected) if each is None]


@pytest.mark.parametrize(
    ("text", "is_null"),
    [
        ("infinity", True),
        ("10000-01-01T00:00:00+00:00", True),
        ("10000-01-01T05:29:59+05:30", False),  # 9999-12-31 23:59:59 UTC
        ("10000-01-02T05:29:59+05:30", True),
        ("10000-01-01T00:00:00-05:00", True),
        ("0001-12-31T19:03:58-04:56:02 BC", False),  # the first moment of year 1
        ("0001-12-30T19:03:58-04:56:02 BC", True),
    ],
)
def test_time_of_another_year_in_utc_is_not_null(text: str, *, is_null: bool) -> None:
    """A time within the years 1 to 9999 of UTC is not null in other time zones."""
    document = json.dumps({"at": text})
    wanted = parsed_type("struct<at timestamp>")

    column = parsed_json(pa.array([document]), wanted, attributes={"at": {}})

    assert column.values.to_pylist() == [{"at": None} if is_null else None]
    assert column.unfit.tolist() == ([] if is_null else [0])
