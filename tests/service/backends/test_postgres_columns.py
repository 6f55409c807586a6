"""Whether what came is what was asked."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.rows import as_described, checked_rows
from tests.service.backends.described_tables import builtin, table_of

TABLE = table_of(builtin("int4"))
COLUMN = pa.array([7, 8], pa.int32())


def test_ordinals_become_positions() -> None:
    """SQL counts from 1; several rows may have the same ordinal."""
    fetched = checked_rows(np.array([2, 2]), [COLUMN], TABLE, key_count=2)

    assert fetched.ordinals.tolist() == [1, 1]
    assert fetched.ordinals.dtype == np.int32
    assert fetched.rows == pa.record_batch([COLUMN], schema=TABLE.schema.columns)


@pytest.mark.parametrize(
    ("ordinals", "columns"),
    [([0, 1], [COLUMN]), ([2, 3], [COLUMN]), ([1], [COLUMN]), ([1, 2], [])],
)
def test_what_was_not_asked_is_refused(ordinals: list[int], columns: list[pa.Array]) -> None:
    """Another key, or columns of another number or length, fail the query."""
    with pytest.raises(BackendError) as caught:
        checked_rows(np.array(ordinals), columns, TABLE, key_count=2)

    assert caught.value.code is ErrorCode.INTERNAL


@pytest.mark.parametrize("error", [TypeError, OverflowError, pa.ArrowInvalid])
def test_misfits_mean_a_change(error: type[Exception]) -> None:
    """Whatever Arrow raises for values of another type."""
    name, reading = TABLE.columns[0]

    with pytest.raises(BackendError) as caught, as_described(name, reading):
        raise error

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED
    assert caught.value.detail == "column c0 no longer holds int32; describe the table anew"
