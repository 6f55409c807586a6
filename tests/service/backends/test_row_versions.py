"""Keys with versions: all of them as lists, oldest first, over any backend."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import (
    DimensionSchema,
    TableOrigin,
    VersionColumns,
    version_columns,
)
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.backend import FakeBackend
from service.connectors.ports.backend import FetchedRows
from service.connectors.ports.several_rows import RowVersions, list_columns

DAYS = [dt.date(2013, 1, day) for day in range(1, 10)]
SCHEMA = DimensionSchema(
    key=pa.schema({"id": pa.int64()}),
    columns=pa.schema({"name": pa.utf8(), "since": pa.date32(), "until": pa.timestamp("us")}),
)
ROWS = pa.table(
    {
        "id": pa.array([2, 1, 2, 2, 2]),
        "name": ["b", "a", "from ever", "c", "as late"],
        "since": pa.array([DAYS[5], DAYS[1], None, DAYS[3], DAYS[5]], pa.date32()),
        "until": pa.nulls(5, pa.timestamp("us")),
    }
)
VERSIONS = VersionColumns("since", "until")


def backend(versions: VersionColumns = VERSIONS) -> RowVersions:
    """Versions in memory."""
    return RowVersions(FakeBackend(ROWS, SCHEMA), versions)


def keys(*ids: int) -> pa.RecordBatch:
    """These keys."""
    return pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA.key)


async def names(fetched: FetchedRows) -> dict[int, Any]:
    """The names of the versions, by ordinal."""
    rows = fetched.rows.column("name").to_pylist()
    return dict(zip(fetched.ordinals.tolist(), rows, strict=True))


async def test_versions_come_oldest_first() -> None:
    """By when they begin, NULL before all; those that begin together in the backend's order."""
    async with backend() as asked:
        schema = await asked.describe(timeout_s=1.0)
        fetched = await asked.fetch(keys(3, 2, 1), timeout_s=1.0)

    assert await names(fetched) == {1: ["from ever", "c", "b", "as late"], 2: ["a"]}
    assert fetched.rows.schema.equals(schema.columns, check_metadata=True)


async def test_times_of_versions_are_marked() -> None:
    """Who describes the dimension learns which columns they are; the others are lists, too."""
    schema = await backend().describe(timeout_s=1.0)

    assert schema.columns.equals(list_columns(SCHEMA.columns))
    assert version_columns(schema.columns) == VERSIONS


async def test_versions_are_not_the_tables_rows() -> None:
    """A row in the table's changelog is one version, where all of them are kept."""
    origin = TableOrigin("public", "t", tells_rows=True, has_full_identity=True)
    store = FakeBackend(ROWS, replace(SCHEMA, origin=origin))

    schema = await RowVersions(store, VERSIONS).describe(timeout_s=1.0)

    assert schema.origin == origin.without_rows()


async def test_no_rows_have_the_right_types() -> None:
    """Keys without a version are not there."""
    described = await backend().describe(timeout_s=1.0)

    fetched = await backend().fetch(keys(7), timeout_s=1.0)

    assert (fetched.ordinals.tolist(), fetched.rows.schema) == ([], described.columns)


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        (VersionColumns("Since"), r"no column Since among those offered; did you mean since\?"),
        (VersionColumns("since", "id"), "no column id among those offered"),
        (VersionColumns("name"), "column name is string; it must be a date or a timestamp"),
    ],
)
async def test_columns_without_times_are_refused(versions: VersionColumns, why: str) -> None:
    """A dimension whose versions have no times is not fit, and says why."""
    with pytest.raises(BackendError, match=why) as caught:
        await backend(versions).describe(timeout_s=1.0)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE


async def test_backend_is_asked_for_the_rest() -> None:
    """Probes, failures and the index are the backend's own."""
    inner = FakeBackend(ROWS, SCHEMA)
    outer = RowVersions(inner, VERSIONS)
    await outer.probe(timeout_s=1.0)
    inner.fail_next(1, BackendError(ErrorCode.TIMEOUT, "late"))

    with pytest.raises(BackendError, match="late"):
        await outer.fetch(keys(1), timeout_s=1.0)

    assert (inner.probes_total, outer.uses_index) == (1, True)
