"""Nothing that a backend brings is believed before it was checked."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension.dimension_events import QueryOrder
from lookup_core.dimension.flight_table import BatchId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.backend import FakeBackend
from service.connectors.ports.backend import FetchedRows
from service.engine.backend_call import checked_fetch
from tests.service.engine.running import ROWS, SCHEMA, customers, typed

ORDER = QueryOrder(BatchId(1), typed(7, 8).columns, 1.0)
TWO = ROWS.select(SCHEMA.columns.names).slice(2, 2).combine_chunks().to_batches()[0]


class LyingBackend(FakeBackend):
    """Brings the same whatever it is asked."""

    def __init__(self, fetched: FetchedRows) -> None:
        super().__init__(ROWS, SCHEMA)
        self._fetched = fetched

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """Lie."""
        del keys, timeout_s
        return self._fetched


def rows(*ordinals: int, batch: pa.RecordBatch = TWO) -> FetchedRows:
    """Rows that are said to belong to these keys."""
    return FetchedRows(np.array(ordinals, np.int32), batch)


async def test_honest_rows_come_through() -> None:
    """The rows of the order's keys, with their ordinals; the backend gets the order's time."""
    store = customers()

    fetched = await checked_fetch(store, ORDER, SCHEMA)

    assert fetched.ordinals.tolist() == [0, 1]
    assert fetched.rows["name"].to_pylist() == ["Ada", "Bert"]
    assert store.batches == [ORDER.keys]


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        (rows(0, 2), ErrorCode.INTERNAL),
        (rows(-1, 0), ErrorCode.INTERNAL),
        (rows(0), ErrorCode.INTERNAL),
        (rows(0, 1, batch=TWO.select(["name"])), ErrorCode.SCHEMA_CHANGED),
        (rows(0, 1, batch=TWO.rename_columns(["name", "level"])), ErrorCode.SCHEMA_CHANGED),
        (FetchedRows(np.zeros(0, np.int32), None), ErrorCode.INTERNAL),
    ],
    ids=["unknown key", "negative", "count", "column gone", "column renamed", "no rows at all"],
)
async def test_lies_fail_the_query(lie: FetchedRows, code: ErrorCode) -> None:
    """Rows of other keys, of another number or shape, are an error and reach nobody."""
    with pytest.raises(BackendError) as caught:
        await checked_fetch(LyingBackend(lie), ORDER, SCHEMA)

    assert caught.value.code is code


async def test_no_columns_need_no_rows() -> None:
    """In a dimension without columns the ordinals alone say which keys there are."""
    schema = DimensionSchema(SCHEMA.key, pa.schema([]))
    found = rows(1, batch=pa.record_batch([], schema=schema.columns))

    fetched = await checked_fetch(LyingBackend(found), ORDER, schema)

    assert fetched.ordinals.tolist() == [1]
