"""What a peer was told when it opened its channel."""

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.stream.stream_lookup import ChannelSchema

KEY = pa.schema({"id": pa.int64()})
NARROW_KEY = pa.schema({"id": pa.int16()})
NAME = pa.schema({"name": pa.utf8()})


@pytest.fixture
def promise() -> ChannelSchema:
    """The name of customers, to a peer with narrower keys."""
    return ChannelSchema(NARROW_KEY, DimensionSchema(KEY, NAME))


def test_keys_come_in_the_dimensions_type(promise: ChannelSchema) -> None:
    """The peer's keys are cast, also after columns have come that it was not told of."""
    keys = pa.record_batch([pa.array([7, None], pa.int16())], schema=NARROW_KEY)
    wider = DimensionSchema(KEY, pa.schema({"tier": pa.int32(), "name": pa.utf8()}))

    for schema in (DimensionSchema(KEY, NAME), wider):
        typed = promise.casts(schema).typed_keys(keys)

        assert typed.columns == pa.record_batch([pa.array([7, None], pa.int64())], schema=KEY)
        assert typed.nulls.tolist() == [1]


def test_same_schema_is_checked_once(promise: ChannelSchema) -> None:
    """As long as the dimension's schema is the same object, nothing is worked out anew."""
    schema = DimensionSchema(KEY, NAME)

    assert promise.casts(schema) is promise.casts(schema)


def test_broken_promise_is_an_error(promise: ChannelSchema) -> None:
    """Without a column that the peer was told of, its keys are not cast, until it is back."""
    schema = DimensionSchema(KEY, NAME)
    promise.casts(schema)

    with pytest.raises(BackendError) as caught:
        promise.casts(DimensionSchema(KEY, pa.schema({"name": pa.int32()})))

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED
    assert (
        promise.casts(schema)
        .typed_keys(pa.record_batch([pa.array([1], pa.int16())], NARROW_KEY))
        .size
        == 1
    )
