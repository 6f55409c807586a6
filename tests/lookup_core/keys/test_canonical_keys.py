"""Canonical keys: equal bytes and hashes exactly for equal keys, alone or in batches.

Also the stable hashes and groups that divide work, and sets of hashes.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import (
    NULL_HASH,
    CanonicalKeys,
    SingleKey,
    SingleKeys,
    canonical_keys,
    is_among,
    key_groups,
    key_hashes,
    keys_of_ids,
    shards_of_groups,
)
from lookup_core.keys.restored_keys import restored_keys
from lookup_core.keys.typed_keys import NO_BLANKS_FIELD, NO_NUL_FIELD, UUID_FIELD
from tests.lookup_core.hypothesis_runs import few_examples

SEED = 0x1234_5678_9ABC_DEF1
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
# {type: values that differ}; next to each extreme the value that it could be confused with
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
each_type = pytest.mark.parametrize("kind", DISTINCT, ids=str)


def batch_of(*columns: tuple[pa.DataType, Sequence[Any]]) -> pa.RecordBatch:
    """Keys of these columns."""
    arrays = [pa.array(values, kind) for kind, values in columns]
    return pa.record_batch(arrays, [f"k{index}" for index in range(len(columns))])


def keys_of(*columns: tuple[pa.DataType, Sequence[Any]], seed: int = 0) -> CanonicalKeys:
    """The canonical form of keys of these columns."""
    return canonical_keys(batch_of(*columns), seed=seed)


def plain(keys: CanonicalKeys) -> tuple[list[int], list[int | bytes]]:
    """Hashes and ids."""
    return keys.hashes.tolist(), list(keys.ids())


def schema_of(*fields: pa.Field) -> DimensionSchema:
    """A dimension with this key."""
    return DimensionSchema(pa.schema(fields), pa.schema([]))


@pytest.mark.parametrize("width", [1, 2])
@each_type
def test_slices_are_read_in_their_bounds(kind: pa.DataType, width: int) -> None:
    """A slice of a batch, an empty one included, has the keys of a copy of it."""
    values = DISTINCT[kind] * 3
    batch = batch_of(*[(kind, values)] * width)

    for part in (slice(1, 5), slice(0, 0), slice(len(values), len(values))):
        sliced = canonical_keys(batch.slice(part.start, part.stop - part.start))

        assert plain(sliced) == plain(keys_of(*[(kind, values[part])] * width))
        assert sliced.size == part.stop - part.start


@each_type
def test_keys_can_be_taken_and_restored(kind: pa.DataType) -> None:
    """Taken keys, and keys made from ids under the same seed, are the same keys."""
    values = DISTINCT[kind]
    keys = keys_of((kind, values), seed=7)

    taken = keys.take(np.array([1, 0, 1], np.int32))

    assert plain(taken) == plain(keys_of((kind, [values[at] for at in (1, 0, 1)]), seed=7))
    assert plain(keys_of_ids(keys.ids(), seed=7)) == plain(keys)
    assert plain(keys_of_ids([])) == ([], [])


@few_examples
@given(st.data(), st.lists(st.sampled_from(list(DISTINCT)), min_size=1, max_size=3))
def test_same_key_exactly_for_same_values(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    """Keys are equal exactly when all their values are, and then their hashes are equal."""
    row = st.tuples(*(st.sampled_from(DISTINCT[kind]) for kind in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=20))

    keys = keys_of(*((kind, [row[at] for row in rows]) for at, kind in enumerate(kinds)))

    key_of = dict(zip(rows, keys.ids(), strict=True))
    assert len(set(key_of.values())) == len(key_of)
    assert [key_of[row] for row in rows] == list(keys.ids())
    assert len(set(zip(keys.ids(), keys.hashes.tolist(), strict=True))) == len(key_of)


@pytest.mark.parametrize("values", [range(4_096), [*map(str, range(4_096))]])
def test_hashes_spread_in_low_bits(values: Sequence[Any]) -> None:
    """The low bits of consecutive keys are spread evenly over the places of a table."""
    keys = canonical_keys(pa.record_batch([pa.array(values)], ["key"]))

    counts = np.bincount((keys.hashes & np.uint64(1023)).astype(np.int64), minlength=1_024)

    assert counts.max() < 20  # four on average


def single(field: pa.Field, value: object, seed: int = 0) -> SingleKey | None:
    """The key of a single value."""
    return SingleKeys(schema_of(field), seed=seed).of(value)


def in_batch(value: object, kind: pa.DataType, seed: int = 0) -> SingleKey:
    """The key of the same value in a batch."""
    keys = keys_of((kind, [value]), seed=seed)
    return SingleKey(int(keys.hashes[0]), None if keys.parts is None else keys.parts[0].as_py())


@few_examples
@given(number=st.integers(-(2**63), 2**64 - 1), seed=st.integers(0, 2**63 - 1))
@example(number=-1, seed=SEED)
@example(number=2**64 - 1, seed=0)
def test_single_number_is_as_in_batch(number: int, seed: int) -> None:
    """A single whole number has the hash that it has in a batch, under any seed."""
    kind = pa.int64() if number < 2**63 else pa.uint64()

    assert single(pa.field("key", kind), number, seed) == in_batch(number, kind, seed)


@few_examples
@given(text=st.text(max_size=90).filter(str.isprintable), seed=st.integers(0, 2**63 - 1))
@example(text="x" * 64, seed=SEED)
@example(text="x" * 65, seed=SEED)
@example(text="\0", seed=0)
def test_single_text_is_as_in_batch(text: str, seed: int) -> None:
    """A single text of any length has the hash and the bytes that it has in a batch."""
    assert single(pa.field("key", pa.utf8()), text, seed) == in_batch(text, pa.utf8(), seed)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((pa.int8(), 128), (pa.uint8(), -1), (pa.int64(), True), (pa.int64(), 1.0)),
        *((pa.int64(), "1"), (pa.int64(), None), (pa.utf8(), 1), (pa.utf8(), "\ud800")),
        *((pa.utf8(), None), (pa.bool_(), True), (pa.bool_(), 1), (pa.float64(), 1)),
        (pa.date32(), "2013-01-01"),
    ],
)
def test_other_values_are_no_single_keys(kind: pa.DataType, value: object) -> None:
    """Values of another type than the key, and keys of other types, are left to batches."""
    assert single(pa.field("key", kind), value) is None


def test_other_schemas_have_no_single_keys() -> None:
    """Composite keys, uuids, and U+0000 where a text must not have it, are left to batches."""
    pair = SingleKeys(schema_of(pa.field("a", pa.int64()), pa.field("b", pa.int64())), seed=0)
    uuid = pa.field("key", pa.binary(16)).with_metadata(UUID_FIELD)
    text = pa.field("key", pa.utf8()).with_metadata(NO_NUL_FIELD)

    assert pair.of(1) is None
    assert single(uuid, "00010203-0405-0607-0809-0a0b0c0d0e0f") is None
    assert single(text, "a\0") is None
    assert single(text, "a ") == in_batch("a ", pa.utf8())
    assert single(text.with_metadata(NO_BLANKS_FIELD), "a ") == in_batch("a", pa.utf8())


@each_type
def test_equal_keys_have_equal_hashes(kind: pa.DataType) -> None:
    """Equal keys have one hash, others another; a key with a NULL part has the hash of NULL."""
    values = [*DISTINCT[kind][:2], None, DISTINCT[kind][0]]

    first, second, null, again = key_hashes(batch_of((kind, values))).tolist()
    pairs = key_hashes(batch_of((kind, values), (pa.utf8(), ["a", "a", "a", None]))).tolist()

    assert first == again != second
    assert null == NULL_HASH
    assert len(set(pairs)) == 3
    assert pairs[2:] == [NULL_HASH, NULL_HASH]


def test_stable_hashes_never_change() -> None:
    """Hashes and groups are the same in every version, because data is partitioned by them."""
    numbers, texts = (pa.int64(), [1, 2, None, 10**12]), (pa.utf8(), ["a", "b", "", "EWR"])

    assert key_hashes(batch_of(numbers)).tolist()[:2] == [6238072747940578789, 15839785061582574730]
    assert key_hashes(batch_of(texts)).tolist()[:2] == [7598327460739756453, 7838554613024368338]
    assert key_hashes(batch_of(numbers, texts)).tolist()[0] == 16332390250329569900
    assert key_hashes(batch_of((pa.int64(), []))).dtype == np.uint64
    assert key_groups(batch_of(numbers)).tolist() == [1509, 1162, 0, 2095]
    assert key_groups(batch_of(texts)).tolist() == [421, 1746, 0, 1156]


def test_shards_follow_the_formula() -> None:
    """The shard of a group is group * shards / groups, rounded down; 1 to 4096 shards are valid."""
    groups = np.array([0, 1365, 1366, 2730, 2731, 4095], np.int32)

    assert shards_of_groups(groups, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert shards_of_groups(groups, 1).tolist() == [0] * 6
    assert shards_of_groups(groups, 4096).tolist() == groups.tolist()
    for shard_count in (0, 4097):
        with pytest.raises(ValueError, match="1 to 4096 shards"):
            shards_of_groups(groups, shard_count)


hashes = st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**16, 2**16 + 1]))


@few_examples
@given(ours=hashes, others=hashes)
@example(ours=[0] * 9, others=[])
@example(ours=[], others=[0] * 9)
@example(ours=[1, 2**16, 2**16 + 1, 0], others=[0, 2**16 + 1])
def test_membership_is_that_of_sets(ours: list[int], others: list[int]) -> None:
    """A hash is among others exactly if it is in the set of them, duplicates included."""
    found = is_among(np.array(ours, np.uint64), np.array(others, np.uint64))

    assert found.tolist() == [each in set(others) for each in ours]


@pytest.mark.parametrize("seed", [0, SEED])
@each_type
def test_keys_are_restored_from_hashes(kind: pa.DataType, seed: int) -> None:
    """Canonical keys lead back to the columns, alone and among several."""
    values = DISTINCT[kind]
    single = batch_of((kind, values))
    several = batch_of(
        (kind, values), (pa.utf8(), [str(at) for at in range(len(values))]), (kind, values[::-1])
    )

    for batch in (single, several):
        keys = canonical_keys(batch, seed=seed)
        assert restored_keys(keys, batch.schema, seed=seed).equals(batch)
