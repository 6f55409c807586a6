"""Keys on their way to asyncpg, and records on their way to Arrow."""

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.key_casts import UUID_FIELD
from service.backends.postgres_rows import fetched_rows, key_arguments

LAST_US = 253_402_300_799_999_999
LAST_INSTANT = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)
COLUMNS = pa.schema({"name": pa.utf8(), "n": pa.int32()})


def test_keys_become_one_list_per_column() -> None:
    """The columns of a composite key are parallel lists of Python values."""
    keys = pa.record_batch({"a": [1, 2], "b": [Decimal("1.50"), Decimal("2.00")], "c": [b"", b"x"]})

    assert key_arguments(keys, keys.schema) == [
        [1, 2],
        [Decimal("1.50"), Decimal("2.00")],
        [b"", b"x"],
    ]


def test_uuid_keys_become_uuids() -> None:
    """The sixteen bytes of a uuid key are sent as a uuid."""
    uuid = UUID("00112233-4455-6677-8899-aabbccddeeff")
    schema = pa.schema([pa.field("id", pa.binary(16), metadata=UUID_FIELD)])

    keys = pa.record_batch([pa.array([uuid.bytes, None], pa.binary(16))], ["id"])

    assert key_arguments(keys, schema) == [[uuid, None]]


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.date32(), "0001-01-01", "9999-12-31"),
        (pa.timestamp("us"), "0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999"),
        (pa.timestamp("us", "UTC"), "0001-01-01 00:00:00.000000Z", "9999-12-31 23:59:59.999999Z"),
    ],
    ids=str,
)
def test_times_become_texts(kind: pa.DataType, first: str, last: str) -> None:
    """A time is sent in full; beyond the years 1 to 9999 as NULL, so that its batch goes on."""
    width = pa.int32() if kind == pa.date32() else pa.int64()
    limits = (-719_162, 2_932_896) if kind == pa.date32() else (-(10**6) * 62_135_596_800, LAST_US)
    numbers = pa.array([limits[0] - 1, limits[0], limits[1], limits[1] + 1, None], width)

    keys = pa.record_batch([numbers.cast(kind)], ["t"])
    arguments = key_arguments(keys, keys.schema)

    assert arguments == [[None, first, last, None, None]]


def test_records_become_columns() -> None:
    """Ordinals, which count from 1 in SQL, become positions; values go to their columns."""
    fetched = fetched_rows([(3, "a", 1), (1, None, 2)], COLUMNS, key_count=3)

    assert fetched.ordinals.tolist() == [2, 0]
    assert fetched.rows == pa.record_batch(
        [["a", None], pa.array([1, 2], pa.int32())], schema=COLUMNS
    )


def test_no_records_are_empty_columns() -> None:
    """Without records there is an empty batch of the right schema."""
    fetched = fetched_rows([], COLUMNS, key_count=3)

    assert fetched.ordinals.tolist() == []
    assert fetched.rows.schema == COLUMNS


@pytest.mark.parametrize("records", [[(0, "a", 1)], [(4, "a", 1)], [(1, "a")], [(1, "a", 1, 1)]])
def test_impossible_answers_are_never_guessed_at(records: list[tuple[Any, ...]]) -> None:
    """An ordinal that was not asked, or another number of columns, is an error inside."""
    with pytest.raises(BackendError) as caught:
        fetched_rows(records, COLUMNS, key_count=3)

    assert caught.value.code is ErrorCode.INTERNAL


@pytest.mark.parametrize("value", ["text", 2**31, 1.5, True, Decimal(1)])
def test_other_types_mean_a_changed_table(value: Any) -> None:  # noqa: ANN401
    """A value that does not fit the described column says that the table has changed."""
    with pytest.raises(BackendError) as caught:
        fetched_rows([(1, "a", value)], COLUMNS, key_count=1)

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED
    assert "column n no longer holds int32" in caught.value.detail


def test_zone_of_a_timestamp_is_part_of_its_type() -> None:
    """A timestamp with a zone does not pass for one without: it would be read hours off."""
    schema = pa.schema({"t": pa.timestamp("us")})

    with pytest.raises(BackendError) as caught:
        fetched_rows([(1, LAST_INSTANT)], schema, key_count=1)

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED


def test_column_of_nulls_has_its_type() -> None:
    """Nothing but nulls fits any column."""
    fetched = fetched_rows([(1, None, None)], COLUMNS, key_count=1)

    assert fetched.rows.to_pylist() == [{"name": None, "n": None}]
    assert fetched.rows.schema == COLUMNS
