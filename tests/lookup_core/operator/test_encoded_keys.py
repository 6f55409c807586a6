"""Distinct keys of a run of rows, and which row asks for which."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.operator.encoded_keys import encoded_keys

texts = st.one_of(st.none(), st.text(max_size=3))
numbers = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2))
records = st.lists(st.tuples(texts, numbers, texts), max_size=40)


def schema_of(*types: pa.DataType) -> pa.Schema:
    """Fields named by their position."""
    return pa.schema([pa.field(f"k{index}", kind) for index, kind in enumerate(types)])


def test_single_column_is_dictionary_encoded() -> None:
    """Each distinct key stands once, in the order of first occurrence, NULL like any other."""
    column = pa.array(["b", "a", None, "b", None])

    encoded = encoded_keys([column], schema_of(pa.utf8()))

    assert encoded.keys == pa.record_batch([pa.array(["b", "a", None])], ["k0"])
    assert encoded.codes.tolist() == [0, 1, 2, 0, 2]


def test_sliced_columns_are_encoded_alone() -> None:
    """What stands outside a slice of a column does not become a key."""
    column = pa.array([9, 1, 2, 1, 9]).slice(1, 3)

    encoded = encoded_keys([column], schema_of(pa.int64()))

    assert encoded.keys.column(0).to_pylist() == [1, 2]
    assert encoded.codes.tolist() == [0, 1, 0]


@given(records)
def test_composite_keys_give_back_every_row(
    rows: list[tuple[str | None, int | None, str | None]],
) -> None:
    """The keys are distinct, and each row's code leads to its own values."""
    schema = schema_of(pa.utf8(), pa.int64(), pa.utf8())
    columns = [
        pa.array([row[index] for row in rows], field.type) for index, field in enumerate(schema)
    ]

    encoded = encoded_keys(columns, schema)

    keys = list(zip(*(column.to_pylist() for column in encoded.keys.columns), strict=True))
    assert keys == list(dict.fromkeys(rows))
    assert [keys[code] for code in encoded.codes] == rows


@pytest.mark.parametrize("count", [4095, 5000])
def test_many_numbers_are_encoded_alike(count: int) -> None:
    """However many there are, each number stands once, in the order in which they first occur."""
    numbers = np.random.default_rng(7).integers(-1000, 1000, count)

    encoded = encoded_keys([pa.array(numbers)], pa.schema({"id": pa.int64()}))

    distinct = list(dict.fromkeys(numbers.tolist()))
    assert encoded.keys.column("id").to_pylist() == distinct
    assert np.array(distinct)[encoded.codes].tolist() == numbers.tolist()
