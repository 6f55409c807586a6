"""Canonical keys: the same bytes exactly for the same keys, whatever the arrays look like."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import (
    CanonicalKeys,
    canonical_keys,
    has_number_keys,
    keys_of_ids,
)

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
# {type: values that differ}; the extremes stand beside what they could be mixed up with
DISTINCT: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, 1, -1, 2**63 - 1, -(2**63), 2**32],
    pa.int16(): [0, 1, -1, 2**15 - 1, -(2**15)],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.bool_(): [True, False],
    pa.date32(): [NOON.date(), date.min, date.max],
    pa.timestamp("us"): [NOON.replace(tzinfo=None), datetime.min, datetime.max],  # noqa: DTZ901
    pa.timestamp("us", "UTC"): [NOON, NOON.replace(microsecond=1)],
    pa.utf8(): ["", "a", "a\0", "\0", "\0\0", "é", "x" * 8, "x" * 16, "x" * 64, "x" * 65],
    pa.binary(): [b"", b"\0", b"\xff", b"y" * 63, b"y" * 200, b"y" * 199 + b"z"],
    pa.binary(16): [b"\0" * 16, b"\0" * 15 + b"\1", b"\1" + b"\0" * 15],
    pa.decimal128(10, 2): [Decimal(0), Decimal("0.01"), Decimal("-0.01"), Decimal(-1)],
}


def keys_of(*columns: tuple[pa.DataType, Sequence[Any]], seed: int = 0) -> CanonicalKeys:
    """The canonical form of keys of these columns."""
    arrays = [pa.array(values, kind) for kind, values in columns]
    names = [f"k{index}" for index in range(len(columns))]
    return canonical_keys(pa.record_batch(arrays, names), seed=seed)


def is_same(first: CanonicalKeys, second: CanonicalKeys) -> bool:
    """Whether two runs of keys are the same, in hashes and in bytes."""
    return first.ids() == second.ids() and first.hashes.tolist() == second.hashes.tolist()


@pytest.mark.parametrize("kind", DISTINCT, ids=str)
def test_different_values_differ(kind: pa.DataType) -> None:
    """Different values of a type have different bytes, and here no equal hashes either."""
    keys = keys_of((kind, DISTINCT[kind]))

    assert len(set(keys.ids())) == len(set(keys.hashes.tolist())) == len(DISTINCT[kind])


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("kind", DISTINCT, ids=str)
def test_slices_are_read_in_their_bounds(kind: pa.DataType, width: int) -> None:
    """A slice of an array gives the same keys as a copy of it, alone and in a composite key."""
    values = DISTINCT[kind]
    batch = pa.record_batch([pa.array(values * 3, kind)] * width, ["a", "b"][:width])

    sliced = canonical_keys(batch.slice(len(values) - 1, 3))

    copied = keys_of(*[(kind, (values * 2)[len(values) - 1 :][:3])] * width)
    assert is_same(sliced, copied)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("kind", DISTINCT, ids=str)
def test_no_keys_are_fine(kind: pa.DataType, width: int) -> None:
    """An empty batch has no keys, of whatever type, also as the end of a slice."""
    batch = pa.record_batch([pa.array(DISTINCT[kind], kind)] * width, ["a", "b"][:width])

    for empty in (batch.slice(0, 0), batch.slice(batch.num_rows)):
        keys = canonical_keys(empty)
        assert (keys.size, list(keys.ids())) == (0, [])


def test_number_is_its_own_key() -> None:
    """A key of at most eight bytes keeps no bytes: equal hashes prove equal keys."""
    keys = keys_of((pa.int64(), range(-1_000, 1_000)))

    assert keys.parts is None
    assert keys.ids() == keys.hashes.tolist()
    assert len(set(keys.ids())) == 2_000


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), unique=True, max_size=50))
def test_parts_do_not_run_together(pairs: list[tuple[str, str]]) -> None:
    """("ab", "c") and ("a", "bc") are different keys: parts carry their length."""
    keys = keys_of(*((pa.utf8(), [pair[at] for pair in pairs]) for at in (0, 1)))

    assert len(set(keys.ids())) == len(pairs)


def test_famous_pairs_differ() -> None:
    """The pairs that joined strings mix up are kept apart."""
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("a|b", "c"), ("a", "b|c")]

    keys = keys_of(*((pa.utf8(), [pair[at] for pair in pairs]) for at in (0, 1)))

    assert len(set(keys.ids())) == len(pairs)


@given(st.data(), st.lists(st.sampled_from(list(DISTINCT)), min_size=1, max_size=3))
def test_same_key_exactly_for_same_values(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    """Keys are equal exactly when all their values are, and then their hashes are, too."""
    row = st.tuples(*(st.sampled_from(DISTINCT[kind]) for kind in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=20))

    keys = keys_of(*((kind, [row[at] for row in rows]) for at, kind in enumerate(kinds)))

    key_of = dict(zip(rows, keys.ids(), strict=True))
    assert len(set(key_of.values())) == len(key_of)
    assert [key_of[row] for row in rows] == list(keys.ids())
    assert len(set(zip(keys.ids(), keys.hashes.tolist(), strict=True))) == len(key_of)


@given(st.lists(st.binary(max_size=80) | st.binary(min_size=60, max_size=200), max_size=20))
def test_hash_depends_on_own_bytes(values: list[bytes]) -> None:
    """A key has the same hash alone and among others, also behind and before long ones."""
    together = keys_of((pa.binary(), values))

    alone = [keys_of((pa.binary(), [value])).hashes.item() for value in values]
    assert together.hashes.tolist() == alone


@pytest.mark.parametrize("kind", DISTINCT, ids=str)
def test_seed_changes_hashes(kind: pa.DataType) -> None:
    """Who does not know the seed cannot choose keys that meet in the index."""
    values = DISTINCT[kind]

    plain, seeded = keys_of((kind, values)), keys_of((kind, values), seed=0x1234_5678_9ABC_DEF1)

    assert not set(plain.hashes.tolist()) & set(seeded.hashes.tolist())
    assert len(set(seeded.hashes.tolist())) == len(values)


@pytest.mark.parametrize("kind", [pa.int64(), pa.utf8()])
def test_hashes_spread_in_low_bits(kind: pa.DataType) -> None:
    """Consecutive keys do not crowd into few places of a table."""
    hashes = keys_of((kind, [str(n) if kind == pa.utf8() else n for n in range(4_096)])).hashes

    counts = np.bincount((hashes & np.uint64(1023)).astype(np.int64), minlength=1_024)

    assert counts.max() < 20  # four on average; as many as this is as good as impossible


@pytest.mark.parametrize("kind", DISTINCT, ids=str)
def test_taken_keys_are_the_same(kind: pa.DataType) -> None:
    """Taking keys gives what the keys at these positions would give themselves."""
    values = DISTINCT[kind]
    positions = np.array([1, 0, 1], np.int32)

    taken = keys_of((kind, values)).take(positions)

    assert is_same(taken, keys_of((kind, [values[at] for at in positions])))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ({"a": pa.int32()}, True),
        ({"a": pa.bool_()}, True),
        ({"a": pa.date32()}, True),
        ({"a": pa.timestamp("us")}, True),
        ({"a": pa.utf8()}, False),
        ({"a": pa.decimal128(5)}, False),
        ({"a": pa.int32(), "b": pa.int32()}, False),
    ],
)
def test_number_keys_are_told_by_schema(key: dict[str, pa.DataType], expected: bool) -> None:  # noqa: FBT001
    """Whether bytes are kept is known from the schema, and agrees with the keys themselves."""
    schema = pa.schema(key)
    batch = pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)

    assert has_number_keys(DimensionSchema(schema, pa.schema([]))) is expected
    assert (canonical_keys(batch).parts is None) is expected


@pytest.mark.parametrize(
    ("kind", "values"), [(pa.int64(), [3, -1]), (pa.utf8(), ["ä", ""]), (pa.int64(), [])], ids=str
)
def test_keys_are_made_again_from_ids(kind: pa.DataType, values: list[Any]) -> None:
    """What stands for a key in flight tells the whole key, and its hash under the same seed."""
    keys = keys_of((kind, values), seed=7)

    assert is_same(keys_of_ids(keys.ids(), seed=7), keys)
