"""A key alone has the canonical form that it has among others."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.keys.key_casts import NO_NUL_FIELD, UUID_FIELD
from lookup_core.keys.single_keys import SingleKey, SingleKeys

KINDS = st.sampled_from([pa.int8(), pa.int64(), pa.uint32(), pa.uint64()])
SEEDS = st.integers(0, 2**63 - 1)


def schema_of(*fields: pa.Field) -> DimensionSchema:
    """A dimension with this key."""
    return DimensionSchema(pa.schema(fields), pa.schema([]))


def single(field: pa.Field, value: object, seed: int = 0) -> SingleKey | None:
    """What is made of a value."""
    return SingleKeys(schema_of(field), seed=seed).of(value)


def among_others(value: object, kind: pa.DataType, seed: int) -> SingleKey:
    """What batches make of it."""
    keys = canonical_keys(pa.record_batch([pa.array([value], kind)], ["key"]), seed=seed)
    part = None if keys.parts is None else keys.parts[0].as_py()
    return SingleKey(int(keys.hashes[0]), part)


@given(data=st.data(), kind=KINDS, seed=SEEDS)
def test_numbers_are_as_in_batches(data: st.DataObject, kind: pa.DataType, seed: int) -> None:
    """A whole number of any type has the same hash, whatever the seed is."""
    least = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
    value = data.draw(st.integers(least, least + 2**kind.bit_width - 1))

    assert single(pa.field("key", kind), value, seed) == among_others(value, kind, seed)


@given(value=st.text(max_size=90).filter(lambda text: text.isprintable()), seed=SEEDS)
def test_texts_are_as_in_batches(value: str, seed: int) -> None:
    """A text of any length has the same hash and the same bytes."""
    assert single(pa.field("key", pa.utf8()), value, seed) == among_others(value, pa.utf8(), seed)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 128),
        (pa.uint8(), -1),
        (pa.int64(), True),
        (pa.int64(), 1.0),
        (pa.int64(), "1"),
        (pa.int64(), None),
        (pa.utf8(), 1),
        (pa.utf8(), "\ud800"),
        (pa.utf8(), None),
        (pa.bool_(), True),
        (pa.date32(), "2013-01-01"),
    ],
)
def test_what_is_not_plain_is_left(kind: pa.DataType, value: object) -> None:
    """Values of another type than the key, and keys of other types, are looked at elsewhere."""
    assert single(pa.field("key", kind), value) is None


def test_nul_is_left_where_it_may_not_be() -> None:
    """A text with U+0000 is a key only where the store can hold one."""
    field = pa.field("key", pa.utf8())

    assert single(field, "a\0") == among_others("a\0", pa.utf8(), 0)
    assert single(field.with_metadata(NO_NUL_FIELD), "a\0") is None


def test_other_keys_are_left() -> None:
    """Keys of several columns, and uuids, are looked at elsewhere."""
    pair = SingleKeys(schema_of(pa.field("a", pa.int64()), pa.field("b", pa.int64())), seed=0)
    uuid = pa.field("key", pa.binary(16)).with_metadata(UUID_FIELD)

    assert pair.of(1) is None
    assert single(uuid, "00010203-0405-0607-0809-0a0b0c0d0e0f") is None
