"""Records on their way to Arrow."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.rows import rows_of_records
from tests.service.backends.described_tables import builtin, table_of

LAST_INSTANT = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)
TABLE = table_of(builtin("text"), builtin("int4"))
COLUMNS = TABLE.schema.columns


def test_records_become_columns() -> None:
    """Ordinals, which count from 1 in SQL, become positions; values go to their columns."""
    fetched = rows_of_records([(3, "a", 1), (1, None, 2)], TABLE, key_count=3)

    assert fetched.ordinals.tolist() == [2, 0]
    assert fetched.rows == pa.record_batch(
        [["a", None], pa.array([1, 2], pa.int32())], schema=COLUMNS
    )


def test_snapshot_comes_with_the_rows() -> None:
    """Where the query tells what it saw, the rows are those without the one that tells."""
    records = [(None, None, None, "f 7:9:7"), (2, "a", 1, None)]

    fetched = rows_of_records(records, TABLE, key_count=3, tells_snapshot=True)
    alone = rows_of_records(records[:1], TABLE, key_count=3, tells_snapshot=True)

    assert (fetched.ordinals.tolist(), fetched.rows["c1"].to_pylist()) == ([1], [1])
    assert alone.ordinals.tolist() == []
    assert [each.snapshot and each.snapshot.xmax for each in (fetched, alone)] == [9, 9]


def test_no_records_are_empty_columns() -> None:
    """Without records there is an empty batch of the right schema."""
    fetched = rows_of_records([], TABLE, key_count=3)

    assert fetched.ordinals.tolist() == []
    assert fetched.rows.schema == COLUMNS


@pytest.mark.parametrize("records", [[(0, "a", 1)], [(4, "a", 1)], [(1, "a")], [(1, "a", 1, 1)]])
def test_impossible_answers_are_never_guessed_at(records: list[tuple[Any, ...]]) -> None:
    """An ordinal that was not asked, or another number of columns, is an error inside."""
    with pytest.raises(BackendError) as caught:
        rows_of_records(records, TABLE, key_count=3)

    assert caught.value.code is ErrorCode.INTERNAL


@pytest.mark.parametrize("value", ["text", 2**31, 1.5, True, Decimal(1)])
def test_other_types_mean_a_changed_table(value: Any) -> None:  # noqa: ANN401
    """A value that does not fit the described column says that the table has changed."""
    with pytest.raises(BackendError) as caught:
        rows_of_records([(1, "a", value)], TABLE, key_count=1)

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED
    assert "column c1 no longer holds int32" in caught.value.detail


def test_zone_of_a_timestamp_is_part_of_its_type() -> None:
    """A timestamp with a zone does not pass for one without: it would be read hours off."""
    with pytest.raises(BackendError) as caught:
        rows_of_records([(1, LAST_INSTANT)], table_of(builtin("timestamp")), key_count=1)

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED


def test_column_of_nulls_has_its_type() -> None:
    """Nothing but nulls fits any column."""
    fetched = rows_of_records([(1, None, None)], TABLE, key_count=1)

    assert fetched.rows.to_pylist() == [{"c0": None, "c1": None}]
    assert fetched.rows.schema == COLUMNS
