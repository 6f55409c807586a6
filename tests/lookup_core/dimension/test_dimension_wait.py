"""Which lookups wait for changes, and which of their keys a change wakes."""

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import RowChanges, TableChange
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import DimensionSettings

SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))


def dimension(wait_s: float = 5.0) -> DimensionState:
    """A dimension of customers, of which nothing is cached."""
    return DimensionState(DimensionSettings("customers", wait_for_dimension_s=wait_s), SCHEMA)


def asked(*keys: int, at_ms: int | None = 1_000, deadline_s: float = 10.0) -> LookupRequest:
    """A lookup of records of that time."""
    columns = pa.record_batch([pa.array(keys, pa.int64())], schema=SCHEMA.key)
    typed = TypedKeys(columns, np.zeros(0, np.int32), {})
    return LookupRequest(LookupId(1), ChannelId(1), typed, ("name",), deadline_s, at_ms)


def changed(*keys: int) -> RowChanges:
    """Something of these customers has changed."""
    nothing = np.zeros(len(keys), np.bool_)
    names = pa.record_batch([pa.nulls(len(keys), pa.utf8())], schema=SCHEMA.columns)
    ids = pa.record_batch([pa.array(keys, pa.int64())], schema=SCHEMA.key)
    return RowChanges(ids, nothing, nothing, names, np.zeros(len(keys), np.uint32))


def test_records_ahead_of_the_dimension_wait() -> None:
    """Those of a time before its watermark do not, nor do those without one."""
    wait = dimension().wait
    wait.on_watermark(1_000)

    assert [wait.is_ahead(asked(7, at_ms=at_ms)) for at_ms in (999, 1_000, None)] == [
        False,
        True,
        False,
    ]


def test_nobody_waits_unless_it_is_wished() -> None:
    """Without the setting, and without keys, all is asked at once."""
    assert not dimension(wait_s=0.0).wait.is_ahead(asked(7))
    assert not dimension().wait.is_ahead(asked())


def test_wait_ends_before_the_lookup() -> None:
    """Who has less time than the wait may take is looked up while a part of it is left."""
    wait = dimension().wait
    wait.hold(asked(7, deadline_s=2.0), now=1.0)

    assert wait.held.next_deadline() == 1.75


def test_watermark_never_goes_back() -> None:
    """What was told once is told."""
    wait = dimension().wait
    wait.hold(asked(7), now=1.0)

    assert [len(wait.on_watermark(at_ms)) for at_ms in (900, 1_001, 900)] == [0, 1, 0]
    assert not wait.is_ahead(asked(7))


def test_change_wakes_the_keys_that_it_names() -> None:
    """A change of the whole table names none."""
    wait = dimension().wait
    before = wait.on_changes([changed(8)])
    wait.hold(asked(7, 8), now=1.0)

    released = wait.on_changes([TableChange("truncated"), changed(8, 9)])

    assert before == []
    assert [each.positions.tolist() for each in released] == [[1]]
