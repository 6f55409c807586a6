"""Keys in paths mean what they say, composite or not, with any character."""

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from yarl import URL

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from service.http.routes.single_row import path_key, path_value
from tests.service.http.serving import Served

ROWS = "/v1/dimensions/weather/rows"


@pytest.mark.parametrize(
    ("key", "temperature"),
    [
        ("JFK,1970-01-01T00:00:00Z", 1.5),
        ("JFK,1970-01-01T01%3A00%3A00%2B01:00", 1.5),
        ("a%2Cb,1970-01-01T01:00:00Z", None),
        ("a%2Fb,1970-01-01T00:00:00Z", 3.5),
    ],
)
async def test_parts_are_parted_by_plain_commas(
    service: Served, key: str, temperature: float | None
) -> None:
    """A percent-encoded comma or slash belongs to its part."""
    async with service.unix.get(URL(f"{ROWS}/{key}", encoded=True)) as response:
        assert await response.json() == {"temperature": temperature}


@pytest.mark.parametrize("key", ["JFK", "JFK,1970-01-01T00:00:00Z,x", "JFK,1970-01-01"])
async def test_other_numbers_of_parts_are_refused(service: Served, key: str) -> None:
    """A key with parts missing or over is refused with the key that is expected."""
    async with service.unix.get(f"{ROWS}/{key}") as response:
        problem = await response.json()

    assert (response.status, problem["code"]) == (400, "type")
    assert "origin: string, hour: timestamp[us, tz=UTC]" in problem["detail"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "-42", -42),
        (pa.utf8(), "42", "42"),
        (pa.utf8(), "", ""),
        (pa.utf8(), "a,b%20%C3%A9", "a,b \u00e9"),
        (pa.bool_(), "true", True),
        (pa.decimal128(5, 2), "1.50", Decimal("1.50")),
        (pa.date32(), "2013-01-02", date(2013, 1, 2)),
        (pa.binary(), "%2FwA=", b"\xff\x00"),
    ],
)
def test_text_is_read_as_the_keys_type(kind: pa.DataType, text: str, value: object) -> None:
    """The type of the key says what a text means; a single key may hold commas."""
    keys = path_key(f"/v1/dimensions/x/rows/{text}", _schema(kind))

    assert keys.columns.to_pylist() == [{"key": value}]
    assert (keys.nulls.tolist(), keys.faults) == ([], {})


@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        (pa.int64(), "1.0", ErrorCode.TYPE),
        (pa.int64(), "9" * 5000, ErrorCode.TYPE),
        (pa.int8(), "128", ErrorCode.TYPE),
        (pa.bool_(), "yes", ErrorCode.TYPE),
        (pa.utf8(), "%ff", ErrorCode.INVALID_TEXT),
    ],
)
def test_other_texts_are_refused(kind: pa.DataType, text: str, code: ErrorCode) -> None:
    """What is not of the key's type is refused, not made to fit and then found missing."""
    with pytest.raises(InvalidRequest) as caught:
        path_key(f"/{text}", _schema(kind))

    assert caught.value.code is code


def _schema(kind: pa.DataType) -> DimensionSchema:
    return DimensionSchema(pa.schema({"key": kind}), pa.schema({"name": pa.utf8()}))


@pytest.mark.parametrize(
    ("kind", "segment", "value"),
    [
        (pa.int64(), "42", 42),
        (pa.int64(), "x", "x"),
        (pa.utf8(), "a%2Cb,c", "a,b,c"),
        (pa.bool_(), "true", True),
    ],
)
def test_value_of_a_key_is_told(kind: pa.DataType, segment: str, value: object) -> None:
    """A key of one column is named by a value, which may turn out to be none of its type."""
    schema = DimensionSchema(pa.schema({"id": kind}), pa.schema([]))

    assert path_value(f"/v1/dimensions/customers/rows/{segment}", schema) == value


def test_composite_key_has_no_value() -> None:
    """A key of several columns is not one value."""
    schema = DimensionSchema(pa.schema({"a": pa.int64(), "b": pa.int64()}), pa.schema([]))

    assert path_value("/v1/dimensions/pairs/rows/1,2", schema) is None
