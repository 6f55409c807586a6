"""Keys with several rows: the first of them, or all as lists, over any backend."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import Match
from service.connectors.memory.backend import FakeBackend
from service.connectors.ports.backend import FetchedRows
from service.connectors.ports.several_rows import RowMatch

SCHEMA = DimensionSchema(
    key=pa.schema({"id": pa.int64()}), columns=pa.schema({"name": pa.utf8(), "size": pa.int32()})
)
ROWS = pa.table(
    {
        "id": pa.array([2, 1, 2, 2]),
        "name": ["b", "a", None, "c"],
        "size": pa.array([1, 2, 3, None], pa.int32()),
    }
)


def backend(match: Match, rows: pa.Table = ROWS) -> RowMatch:
    """The rule, around a store in memory."""
    return RowMatch(FakeBackend(rows, SCHEMA), match)


async def fetch(match: Match, ids: list[int], rows: pa.Table = ROWS) -> FetchedRows:
    """What is fetched for the ids."""
    async with backend(match, rows) as asked:
        keys = pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA.key)
        return await asked.fetch(keys, timeout_s=1.0)


def pairs(fetched: FetchedRows) -> list[tuple[int, dict[str, Any]]]:
    """Each ordinal with its row."""
    return list(zip(fetched.ordinals.tolist(), fetched.rows.to_pylist(), strict=True))


async def test_first_row_of_a_key_counts() -> None:
    """Of several rows the first in the backend's order is kept; the types stay."""
    schema = await backend(Match.FIRST).describe(timeout_s=1.0)
    fetched = await fetch(Match.FIRST, [3, 2, 1])

    assert schema == SCHEMA
    assert fetched.rows.schema == SCHEMA.columns
    assert pairs(fetched) == [(1, {"name": "b", "size": 1}), (2, {"name": "a", "size": 2})]


@pytest.mark.parametrize("match", list(Match))
async def test_rows_of_the_table_are_not_its_own(match: Match) -> None:
    """A row in the table's changelog is not what is made of all rows of its key."""
    origin = TableOrigin("public", "t", tells_rows=True, has_full_identity=True)
    store = FakeBackend(ROWS, replace(SCHEMA, origin=origin))

    schema = await RowMatch(store, match).describe(timeout_s=1.0)

    assert schema.origin == origin.without_rows()


async def test_all_rows_of_a_key_are_lists() -> None:
    """Each column becomes a list, all of a row equally long, in the backend's order."""
    schema = await backend(Match.ALL).describe(timeout_s=1.0)
    fetched = await fetch(Match.ALL, [3, 2, 1])

    assert schema.columns == fetched.rows.schema
    assert schema.columns.types == [pa.list_(pa.utf8()), pa.list_(pa.int32())]
    assert pairs(fetched) == [
        (1, {"name": ["b", None, "c"], "size": [1, 3, None]}),
        (2, {"name": ["a"], "size": [2]}),
    ]


@pytest.mark.parametrize("match", Match)
@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(0, 0)], ids=["rows", "none"])
async def test_no_rows_have_the_right_types(match: Match, rows: pa.Table) -> None:
    """Keys without a row are not there, whatever the rule is."""
    described = await backend(match).describe(timeout_s=1.0)

    fetched = await fetch(match, [7, 8], rows)

    assert fetched.ordinals.tolist() == []
    assert fetched.rows.schema == described.columns


class Shuffled(FakeBackend):
    """Gives its rows in the order of the table, as a database may, not of the keys."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table, SCHEMA)
        self._table = table

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """All rows of the table, as if the keys were the numbers from 0 on."""
        del keys, timeout_s
        ordinals = self._table["id"].to_numpy().astype("int32")
        (rows,) = self._table.select(SCHEMA.columns.names).to_batches()
        return FetchedRows(ordinals, rows, "one")


async def test_order_of_keys_does_not_matter() -> None:
    """Rows of one key may stand apart; the store that answered stays known."""
    keys = pa.record_batch([pa.array([0, 1, 2])], schema=SCHEMA.key)

    fetched = await RowMatch(Shuffled(ROWS), Match.ALL).fetch(keys, timeout_s=1.0)

    assert fetched.store == "one"
    assert [(ordinal, row["name"]) for ordinal, row in pairs(fetched)] == [
        (1, ["a"]),
        (2, ["b", None, "c"]),
    ]


@given(ids=st.lists(st.integers(0, 5)), asked=st.lists(st.integers(0, 7), unique=True))
async def test_no_row_is_lost(ids: list[int], asked: list[int]) -> None:
    """Whatever the rows are, lists hold all of them, and the first is the first of them."""
    names = [f"row {number}" for number in range(len(ids))]
    table = pa.table(
        [pa.array(ids, pa.int64()), pa.array(names, pa.utf8()), pa.nulls(len(ids), pa.int32())],
        names=["id", "name", "size"],
    )
    expected = {
        ordinal: found
        for ordinal, key in enumerate(asked)
        if (found := [name for name, each in zip(names, ids, strict=True) if each == key])
    }

    everything, first = [await fetch(match, asked, table) for match in (Match.ALL, Match.FIRST)]

    assert {ordinal: row["name"] for ordinal, row in pairs(everything)} == expected
    assert {ordinal: [row["name"]] for ordinal, row in pairs(first)} == {
        ordinal: found[:1] for ordinal, found in expected.items()
    }


async def test_order_holds_for_many_rows() -> None:
    """Rows of one key keep the backend's order however many there are, and beside others."""
    names = [f"row {number}" for number in range(2_000)]
    table = pa.table(
        [pa.array([1, 0] * 1_000), pa.array(names), pa.nulls(2_000, pa.int32())],
        names=["id", "name", "size"],
    )
    keys = pa.record_batch([pa.array([0, 1])], schema=SCHEMA.key)

    fetched = await RowMatch(Shuffled(table), Match.ALL).fetch(keys, timeout_s=1.0)

    assert [row["name"] for _, row in pairs(fetched)] == [names[1::2], names[::2]]


async def test_backend_is_asked_for_the_rest() -> None:
    """Probes, failures and the index are the backend's own."""
    inner = FakeBackend(ROWS, SCHEMA)
    outer = RowMatch(inner, Match.ALL)
    await outer.probe(timeout_s=1.0)
    inner.fail_next(1, BackendError(ErrorCode.TIMEOUT, "late"))

    with pytest.raises(BackendError, match="late"):
        await outer.fetch(pa.record_batch([pa.array([1])], schema=SCHEMA.key), timeout_s=1.0)

    assert (inner.probes_total, outer.uses_index) == (1, True)
