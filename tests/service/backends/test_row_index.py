"""The index finds what a dictionary of lists would find, for any keys."""

from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connectors.ports.row_index import RowIndex

NUMBERS = (None, -1, 0, 1)
TEXTS = (None, "", "a", "é")
SCHEMA = pa.schema({"number": pa.int64(), "text": pa.utf8()})


def index_of(rows: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> RowIndex:
    """An index over rows of key parts."""
    return RowIndex(pa.Table.from_batches([keys_of(rows, schema)]).columns)


def keys_of(rows: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """A batch of keys."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


@given(stored=st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from(TEXTS))))
def test_finds_what_a_dictionary_finds(stored: list[tuple[Any, ...]]) -> None:
    """Composite keys, repeated keys and keys with NULL parts match exactly the equal rows."""
    asked = list(product(NUMBERS, TEXTS))
    positions = defaultdict(list)
    for position, key in enumerate(stored):
        positions[key].append(position)

    matches = index_of(stored).find(keys_of(asked))

    expected = [
        (ordinal, position)
        for ordinal, key in enumerate(asked)
        for position in (positions[key] if None not in key else [])
    ]
    assert list(zip(matches.ordinals.tolist(), matches.positions.tolist(), strict=True)) == expected


def test_key_beyond_the_largest_is_absent() -> None:
    """A key that sorts after all others has no row, like one that sorts before."""
    schema = pa.schema({"k": pa.int64()})

    matches = index_of([(5,), (7,)], schema).find(keys_of([(9,), (1,), (7,)], schema))

    assert matches.ordinals.tolist() == [2]
    assert matches.positions.tolist() == [1]


@pytest.mark.parametrize(
    ("kind", "stored", "absent"),
    [
        (pa.binary(2), b"\x00\x01", b"\x00\x02"),
        (pa.decimal128(38, 2), Decimal("-1.50"), Decimal("1.50")),
        (pa.bool_(), True, False),
        (
            pa.timestamp("us", "UTC"),
            datetime(2013, 1, 1, tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
        ),
    ],
    ids=str,
)
def test_types_without_an_order_are_found(
    kind: pa.DataType, stored: object, absent: object
) -> None:
    """Types that Arrow cannot search as they are have their keys found all the same."""
    schema = pa.schema({"k": kind})

    matches = index_of([(stored,)], schema).find(keys_of([(absent,), (stored,), (None,)], schema))

    assert (matches.ordinals.tolist(), matches.positions.tolist()) == ([1], [0])


def test_columns_in_chunks_are_one() -> None:
    """A table in several chunks is indexed as a whole."""
    column = pa.chunked_array([[1, 2], [], [3]], pa.int64())

    matches = RowIndex([column]).find(pa.record_batch({"k": [3, 1]}))

    assert matches.positions.tolist() == [2, 0]
