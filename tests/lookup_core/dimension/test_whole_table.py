"""A table that is held whole: how lookups wait for it, and what it knows of keys."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import RowChanges, TableChange
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.full_mode import FullMode, TableLoad
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings
from lookup_core.statistics import InvalidationOrigin

SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
NOBODY = np.zeros(0, np.uint32)
SEES_ALL = TableSnapshot(900, 900, NOBODY)
BEFORE_700 = TableSnapshot(600, 700, NOBODY)


@pytest.fixture
def state() -> DimensionState:
    """A dimension in mode full, of which nothing is loaded."""
    settings = DimensionSettings("customers", cache=CacheSettings(mode=CacheMode.FULL))
    return DimensionState(settings, SCHEMA)


@pytest.fixture
def whole(state: DimensionState) -> FullMode:
    """Its table."""
    assert state.whole is not None
    return state.whole


def changes(names: dict[int, str | None], *, transaction_id: int = 700) -> RowChanges:
    """These customers are called so now; None: nobody says how."""
    return RowChanges(
        keys=ids(*names),
        has_row=np.array([name is not None for name in names.values()], np.bool_),
        is_gone=np.zeros(len(names), np.bool_),
        rows=pa.record_batch([pa.array(list(names.values()), pa.utf8())], schema=SCHEMA.columns),
        transaction_ids=np.full(len(names), transaction_id, np.uint32),
    )


def ids(*keys: int) -> pa.RecordBatch:
    """Keys as a query asks for them."""
    return pa.record_batch([pa.array(keys, pa.int64())], schema=SCHEMA.key)


def tell(state: DimensionState, *told: RowChanges | TableChange, now: float = 1.0) -> None:
    """Let changes be told."""
    state.changes.on_changes(told, InvalidationOrigin.CHANGELOG, now)


def read(load: TableLoad, names: dict[int, str | None], snapshot: TableSnapshot | None) -> None:
    """Let a picture show these customers."""
    load.take([changes(names)], snapshot, now=2.0)


def known(whole: FullMode, *keys: int) -> dict[int, str] | None:
    """The names of those keys that have a row; None if not all is known."""
    rows = whole.rows_of(ids(*keys), now=5.0)
    if rows is None:
        return None
    names = rows.rows.column("name").to_pylist()
    return {keys[at]: name for at, name in zip(rows.ordinals.tolist(), names, strict=True)}


def test_picture_counts_when_it_is_whole(whole: FullMode) -> None:
    """Before its end nothing of it is known, then all is, absences included."""
    load = whole.begin_load(1.0)
    read(load, {1: "Ada"}, SEES_ALL)
    before = (whole.is_whole, known(whole, 1))
    read(load, {2: "Bob"}, SEES_ALL)

    assert load.finish(2.0)
    assert (before, load.row_count) == ((False, None), 2)
    assert known(whole, 2, 9, 1) == {2: "Bob", 1: "Ada"}


def test_dropped_load_changes_nothing(whole: FullMode) -> None:
    """What it brought is gone, and it cannot be finished."""
    load = whole.begin_load(1.0)
    read(load, {1: "Ada"}, SEES_ALL)

    whole.end_load()

    assert not load.finish(2.0)
    assert known(whole, 1) is None


def test_change_that_a_picture_does_not_show_wins(state: DimensionState, whole: FullMode) -> None:
    """The event was told first, its row not yet visible to the picture: the key stays unknown."""
    tell(state, changes({1: None}))
    load = whole.begin_load(2.0)
    read(load, {1: "Ada", 2: "Bob"}, BEFORE_700)

    assert load.finish(3.0)
    assert (known(whole, 1), known(whole, 2)) == (None, {2: "Bob"})


def test_change_during_a_load_wins(state: DimensionState, whole: FullMode) -> None:
    """What the picture shows of that key is older, whenever its row is read."""
    load = whole.begin_load(1.0)
    tell(state, changes({1: "Zoe"}))
    read(load, {1: "Ada"}, SEES_ALL)

    assert load.finish(2.0)
    assert known(whole, 1) == {1: "Zoe"}


def test_doubt_outdates_a_load(state: DimensionState, whole: FullMode) -> None:
    """A picture that does not show what may have changed anything is of no use."""
    load = whole.begin_load(1.0)
    tell(state, TableChange("truncated", 700), now=1.5)
    read(load, {1: "Ada"}, BEFORE_700)

    assert not load.finish(2.0)
    assert not whole.is_whole


def test_picture_after_a_doubt_is_taken_late_enough(state: DimensionState, whole: FullMode) -> None:
    """Where no transaction is told, only time can say that a picture shows it."""
    tell(state, TableChange("nobody knows"), now=1.0)

    assert whole.loads_from(2.0) == 6.0
    assert whole.loads_from(7.0) == 7.0


def test_untrusted_table_knows_nothing(state: DimensionState, whole: FullMode) -> None:
    """Its rows may have changed without a word; they are there again with the trust."""
    load = whole.begin_load(1.0)
    read(load, {1: "Ada"}, None)
    assert load.finish(2.0)

    state.changes.trust(is_trusted=False)
    untrusted = known(whole, 1)
    state.changes.trust(is_trusted=True)

    assert (untrusted, known(whole, 1)) == (None, {1: "Ada"})


def test_hole_is_not_known(state: DimensionState, whole: FullMode) -> None:
    """One key that has to be fetched lets all of its query be."""
    load = whole.begin_load(1.0)
    read(load, {1: "Ada", 2: "Bob"}, None)
    assert load.finish(2.0)

    tell(state, changes({1: None}), now=3.0)

    assert (known(whole, 1, 2), known(whole, 2)) == (None, {2: "Bob"})


def test_hold_ends_with_the_load(state: DimensionState, whole: FullMode) -> None:
    """No query is sent before, and the time till then is not asked for again."""
    whole.hold_until(10.0)
    held = (whole.holds(1.0), whole.held_until, state.next_deadline())
    load = whole.begin_load(1.0)
    whole.end_load()
    after_failure = whole.held_until
    load = whole.begin_load(2.0)
    load.finish(3.0)
    whole.end_load()

    assert held == (True, 10.0, 10.0)
    assert (after_failure, whole.held_until, whole.holds(3.0)) == (10.0, None, False)


def test_hold_ends_in_time(whole: FullMode) -> None:
    """A table that cannot be loaded does not hold lookups for ever."""
    whole.hold_until(10.0)

    assert [whole.holds(9.9), whole.holds(10.0), whole.holds(9.9)] == [True, False, False]


def test_proof_of_the_feed_makes_rows_younger(state: DimensionState, whole: FullMode) -> None:
    """What is told up to a moment shows that all rows were the table's then."""
    load = whole.begin_load(1.0)
    read(load, {1: "Ada"}, None)
    load.finish(2.0)

    whole.confirm(4.0)

    assert (whole.row_count, state.oldest_row_age_s(5.0)) == (1, 1.0)
