"""Keys with several rows over any backend: the first row, lists of all rows, or versions."""

import asyncio
import datetime as dt
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import (
    DimensionSchema,
    TableOrigin,
    VersionColumns,
    version_columns,
)
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import ServerEpoch
from lookup_core.settings import Match
from service.connectors.parquet.row_index import RowIndex
from service.connectors.ports.backend import Backend
from service.connectors.several_rows import RowMatch, RowVersions, list_columns
from tests.service.connectors.fake_backend import FakeBackend

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "down")
DAYS = [dt.date(2013, 1, day) for day in range(1, 10)]
SCHEMA = DimensionSchema(
    key=pa.schema({"id": pa.int64()}),
    columns=pa.schema({"name": pa.utf8(), "since": pa.date32(), "until": pa.timestamp("us")}),
)
ROWS = pa.table(
    {
        "id": pa.array([2, 1, 2, 2, 2]),
        "name": ["b", "a", None, "c", "as late"],
        "since": pa.array([DAYS[5], DAYS[1], None, DAYS[3], DAYS[5]], pa.date32()),
        "until": pa.nulls(5, pa.timestamp("us")),
    }
)
VERSIONS = VersionColumns("since", "until")
WRAPPERS: dict[str, Callable[[Backend], Backend]] = {
    "first": lambda backend: RowMatch(backend, Match.FIRST),
    "all": lambda backend: RowMatch(backend, Match.ALL),
    "versions": lambda backend: RowVersions(backend, VERSIONS),
}
EACH_WRAPPER = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


class ShuffledBackend(FakeBackend):
    """Returns its rows in the order of the table, as a database may; keys count from 0."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table, SCHEMA)
        self._table = table

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """All rows of the table."""
        del keys, timeout_s
        (rows,) = self._table.select(SCHEMA.columns.names).to_batches()
        return FetchedRows(self._table["id"].to_numpy().astype("int32"), rows, ServerEpoch(1))


def keys_of(*ids: int) -> pa.RecordBatch:
    """A batch of keys."""
    return pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA.key)


def table_of(ids: list[int]) -> pa.Table:
    """Rows of these ids with numbered names."""
    names = pa.array([f"row {number}" for number in range(len(ids))], pa.utf8())
    columns = [pa.array(ids, pa.int64()), names, *(pa.nulls(len(ids), each) for each in (
        pa.date32(), pa.timestamp("us")))]  # fmt: skip
    return pa.table(columns, names=ROWS.column_names)


async def names(backend: Backend, *ids: int) -> dict[int, Any]:
    """The name, or the list of names, of each ordinal."""
    fetched = await backend.fetch(keys_of(*ids), timeout_s=1.0)
    return dict(zip(fetched.ordinals.tolist(), fetched.rows["name"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("first", {1: "b", 2: "a"}),
        ("all", {1: ["b", None, "c", "as late"], 2: ["a"]}),
        ("versions", {1: [None, "c", "b", "as late"], 2: ["a"]}),  # oldest first, NULL before all
    ],
)
async def test_rows_of_key_become_one(kind: str, expected: dict[int, Any]) -> None:
    """Each key with rows has one row, of the described types."""
    async with WRAPPERS[kind](FakeBackend(ROWS, SCHEMA)) as backend:
        schema = await backend.describe(timeout_s=1.0)
        fetched = await backend.fetch(keys_of(3, 2, 1), timeout_s=1.0)
        none = await backend.fetch(keys_of(7, 8), timeout_s=1.0)
        found = await names(backend, 3, 2, 1)

    lists = schema.columns == list_columns(SCHEMA.columns)
    assert (found, lists, schema.key) == (expected, kind != "first", SCHEMA.key)
    assert fetched.rows.schema.equals(schema.columns, check_metadata=True)
    assert (none.ordinals.tolist(), none.rows.schema) == ([], schema.columns)
    assert version_columns(schema.columns) == (VERSIONS if kind == "versions" else None)


@EACH_WRAPPER
async def test_wrapper_passes_other_calls(wrap: Callable[[Backend], Backend]) -> None:
    """All but the rows of the changelog, which are not made of all rows of a key, is passed on."""
    origin = TableOrigin("public", "t", reports_rows=True, has_full_identity=True)
    changing = wrap(FakeBackend(ROWS, replace(SCHEMA, origin=origin)))
    inner = FakeBackend(ROWS, SCHEMA)
    inner.probe_error = DOWN
    inner.fail_next(1, DOWN)
    outer = wrap(inner)

    failed = await asyncio.gather(
        outer.probe(timeout_s=1.0), names(outer, 1), return_exceptions=True
    )
    shuffled = await wrap(ShuffledBackend(ROWS)).fetch(keys_of(0, 1, 2), timeout_s=1.0)

    assert (await changing.describe(timeout_s=1.0)).origin == origin.without_rows()
    assert (failed, inner.probes_total, outer.uses_index) == ([DOWN, DOWN], 1, True)
    assert (shuffled.server.number, shuffled.ordinals.tolist()) == (1, [1, 2])


@settings(max_examples=30)
@given(ids=st.lists(st.integers(0, 5)), wanted=st.lists(st.integers(0, 7), unique=True))
async def test_no_row_is_lost(ids: list[int], wanted: list[int]) -> None:
    """Lists have all rows of their keys in their order, and the first row is the first of them."""
    rows = FakeBackend(table_of(ids), SCHEMA)
    expected = {
        ordinal: found
        for ordinal, key in enumerate(wanted)
        if (found := [f"row {number}" for number, each in enumerate(ids) if each == key])
    }

    answers: list[Any] = [await names(wrap(rows), *wanted) for wrap in WRAPPERS.values()]

    first = {ordinal: each[0] for ordinal, each in expected.items()}
    assert answers == [first, expected, expected]


async def test_order_holds_for_many_rows() -> None:
    """Many rows of one key keep their order, also between rows of others."""
    table = table_of([1, 0] * 1_000)

    found = await names(RowMatch(ShuffledBackend(table), Match.ALL), 0, 1)

    every = table["name"].to_pylist()
    assert [*found.values()] == [every[1::2], every[::2]]


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (
            VersionColumns("Since"),
            r"no column Since among the dimension's columns; did you mean since\?",
        ),
        (VersionColumns("since", "id"), "no column id among the dimension's columns"),
        (VersionColumns("name"), "column name is string; name a date or a timestamp"),
    ],
)
async def test_versions_need_times(versions: VersionColumns, reason: str) -> None:
    """Version columns that are missing or hold no times are refused with a reason."""
    with pytest.raises(BackendError, match=reason) as caught:
        await RowVersions(FakeBackend(ROWS, SCHEMA), versions).describe(timeout_s=1.0)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE


def found_by(index: list[pa.Array], keys: list[pa.Array]) -> list[tuple[int, int]]:
    """(ordinal, position) of all matches of an index over these columns."""
    fields = [f"k{number}" for number in range(len(keys))]
    matches = RowIndex([pa.chunked_array([each]) for each in index]).find(
        pa.record_batch(keys, fields)
    )
    return list(zip(matches.ordinals.tolist(), matches.positions.tolist(), strict=True))


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from([None, -1, 0, 1]), st.sampled_from([None, "", "a", "é"])))
)
def test_index_finds_equal_keys(stored: list[tuple[int | None, str | None]]) -> None:
    """Composite, repeated and NULL keys match exactly the equal keys without NULL."""
    kinds = (pa.int64(), pa.utf8())
    wanted = list(product([None, -1, 0, 1], [None, "", "a", "é"]))
    positions = defaultdict(list)
    for position, key in enumerate(stored):
        positions[key].append(position)

    found = found_by(*(
        [pa.array([key[part] for key in keys], kind) for part, kind in enumerate(kinds)]
        for keys in (stored, wanted)
    ))  # fmt: skip

    assert found == [
        (ordinal, position)
        for ordinal, key in enumerate(wanted)
        if None not in key
        for position in positions[key]
    ]


def test_index_finds_uuids_and_chunks() -> None:
    """Keys of fixed size are found; a column in several chunks is indexed as one."""
    wanted = pa.array([b"\x00\x02", b"\x00\x01", None], pa.binary(2))
    chunks = RowIndex([pa.chunked_array([[1, 2], [], [3]], pa.int64())])

    assert found_by([wanted[1:2]], [wanted]) == [(1, 0)]
    assert chunks.find(pa.record_batch({"k": [3, 1]})).positions.tolist() == [2, 0]
