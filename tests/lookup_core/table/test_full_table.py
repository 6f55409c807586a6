"""The full table: loads, changes, unknown keys, ages and memory."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.settings import CacheSettings, ReloadSettings
from lookup_core.statistics import EvictionReason
from lookup_core.table.full_table import FullTable
from lookup_core.table.reload import next_load_at, same_rows
from tests.lookup_core.cache.row_caches import KINDS, CacheKind
from tests.lookup_core.table.full_tables import CHANGED, GONE, NOTHING_UNSEEN, ROOMY, NumberTable

NUMBER = KINDS["number"]
TEXT = KINDS["text"]
LOADED = {1: 10, 2: 20}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension."""
    return KINDS[request.param]


@pytest.mark.parametrize("count", [3, 50])
def test_reload_shows_the_new_rows_at_its_end(kind: CacheKind, count: int) -> None:
    """The former rows are served until the end of a reload, then the new ones."""
    table = NumberTable.loaded(kind, {1: 10, 2: 20, 3: 30, 4: 40})
    new = dict.fromkeys(range(10, 10 + count), 7)
    reload = table.table.begin_reload(1.0)
    held_bytes = table.table.bytes
    table.read(reload, [(1, 10), (2, 21), *new.items()])
    table.read(reload, [(4, 40)])
    assert table.table.bytes > held_bytes
    assert table.found([1, 2, 3, 4, 10]) == [*table.rows(10, 20, 30, 40), "missing"]

    table.finish(reload)

    assert table.found([1, 2, 3, 4]) == [*table.rows(10, 21), "missing", *table.rows(40)]
    assert table.found([*new]) == table.rows(*new.values())
    assert len(table.table) == 3 + count


def test_key_with_several_rows_stays_a_hole(kind: CacheKind) -> None:
    """A key with several rows is unknown, so each lookup queries it, after each load."""
    table = NumberTable.loaded(kind, {5: 50})
    for _ in range(2):
        table.reload(
            [(1, 10), (2, 20), (1, 11), (5, 50)], [(2, 20), (3, 30), (2, 20)], [(2, 20), (5, 50)]
        )

        assert table.found([1, 2, 3, 4, 5]) == [None, None, *table.rows(30), "missing", None]
        assert table.table.hole_count == 3


@pytest.mark.parametrize("name", ["text", "equal hashes"])
def test_unseen_changes_make_suspects(name: str) -> None:
    """All keys with the hash of a change that the load does not show are unknown."""
    table = NumberTable.empty(KINDS[name])
    reload = table.table.begin_reload(0.0)
    table.read(reload, [(key, key) for key in range(100) if key != 3])
    unseen = table.kind.keys([1, 3]).hashes
    hashes = table.kind.keys(range(100)).hashes

    table.finish(reload, unseen=unseen)

    unknown = [key for key, found in enumerate(table.found(range(100))) if found is None]
    assert unknown == np.flatnonzero(np.isin(hashes, unseen)).tolist()
    assert table.table.hole_count == 2
    table.fill({1: 11}, missing=[3])
    assert table.found([1, 3]) == [*table.rows(11), None]
    held_bytes = table.table.bytes
    table.apply([(3, GONE)])
    assert (table.found([3]), table.table.bytes) == (["missing"], held_bytes - 8)  # of a hash
    table.reload([(2, 2)])
    assert table.found([1, 2, 3]) == ["missing", *table.rows(2), "missing"]


@pytest.mark.parametrize(
    ("settings", "jitter", "due_at"),
    [
        (ReloadSettings(), 0.5, None),
        (ReloadSettings(every_s=60.0), 0.5, 65.0),
        (ReloadSettings(at_s=46_800.0), 0.0, 3605.0),
        (ReloadSettings(at_s=46_800.0), 0.5, 3635.0),
        (ReloadSettings(at_s=39_600.0), 0.0, 82_805.0),
        (ReloadSettings(at_s=43_200.0), 0.0, 86_405.0),
    ],
)
def test_next_load_follows_the_settings(
    settings: ReloadSettings, jitter: float, due_at: float | None
) -> None:
    """After a load at noon the next one follows a pause, in a minute of the day, or not at all."""
    noon_s = 1000 * 86_400.0 + 43_200.0

    assert next_load_at(settings, now=5.0, wall_s=noon_s, jitter=jitter) == due_at


def test_ages_count_from_the_last_proof() -> None:
    """A row is as old as the last proof that it is current, or as its own change if later."""
    table = NumberTable.loaded(NUMBER, LOADED, now=1.0)
    table.apply([(2, 22)], now=3.0)
    ages_s = [table.table.probe(NUMBER.keys([1, 2, 9]), 5.0).ages_s.tolist()]
    hits = [table.table.hit(NUMBER.key(number), 5.0) for number in (1, 2)]

    for confirmed_at in (4.0, 3.5):
        table.table.confirm(confirmed_at)
        ages_s.append(table.table.peek(NUMBER.keys([1, 2, 9]), 5.0).ages_s.tolist())

    assert ages_s == [[4.0, 2.0, 4.0], [1.0] * 3, [1.0] * 3]
    assert [hit.age_s for hit in hits if hit is not None] == [4.0, 2.0]
    assert table.table.oldest_age_s(5.0) == 1.0
    table.reload([(1, 10)], now=2.0)
    assert table.table.oldest_age_s(5.0) == 1.0


def test_lost_rows_are_counted_by_reason() -> None:
    """Rows that were replaced, and rows that became unknown, are counted apart."""
    table = NumberTable.loaded(NUMBER, {1: 10, 2: 20, 3: 30, 4: 40})
    table.apply([(1, 11), (2, GONE), (9, GONE)])
    table.table.invalidate(NUMBER.keys([3]))
    table.reload([(1, 11), (4, 41)])
    table.table.clear()

    statistics = table.table.statistics()

    reasons = {EvictionReason.REPLACED: 2, EvictionReason.INVALIDATED: 4}
    assert statistics.evictions == dict.fromkeys(EvictionReason, 0) | reasons
    assert (statistics.rows, statistics.max_bytes) == (0, ROOMY)
    assert statistics.bytes == table.table.bytes


def test_row_without_room_becomes_a_hole(kind: CacheKind) -> None:
    """A change beyond the bound is remembered without its row; nothing is evicted."""
    table = NumberTable.loaded(kind, LOADED)
    table.table.set_max_bytes(table.table.bytes)

    table.apply([(1, 11), (3, 30)])
    assert table.found([1, 2, 3]) == [None, *table.rows(20), None]
    table.fill({1: 11}, missing=[3])
    assert table.found([1, 3]) == [None, None]

    table.table.set_max_bytes(ROOMY)
    table.fill({1: 11}, missing=[3])
    assert table.found([1, 3]) == [*table.rows(11), "missing"]


def test_too_many_holes_make_all_unknown() -> None:
    """If not even holes fit, the whole table has to be loaded again."""
    table = NumberTable.loaded(TEXT, {1: 10}, max_bytes=60_000)

    for first in range(100, 2000, 100):
        table.apply([(key, CHANGED) for key in range(first, first + 100)])

    assert not table.table.is_whole
    assert table.found([1, 3]) == [None, None]
    assert table.table.bytes <= 60_000


def test_lower_bound_drops_nothing() -> None:
    """A lower bound keeps all rows; a reload needs room when it reads."""
    table = NumberTable.loaded(NUMBER, LOADED)
    table.table.set_max_bytes(0)
    assert table.found([1, 2, 3]) == [*table.rows(10, 20), "missing"]
    with pytest.raises(BackendError, match="needs more than"):
        table.reload([(1, 11)])

    reload = table.table.begin_reload(0.0)
    table.table.set_max_bytes(ROOMY)
    table.read(reload, [(1, 11)])
    table.finish(reload)

    assert table.found([1]) == table.rows(11)


def test_load_beyond_the_bound_is_refused() -> None:
    """The error names the bound, the row and the remedy; the former rows stay."""
    table = NumberTable.loaded(NUMBER, {1: 10}, max_bytes=100_000)
    reload = table.table.begin_reload(0.0)
    table.read(reload, [(key, key) for key in range(1000)])

    with pytest.raises(BackendError) as caught:
        table.read(reload, [(key, key) for key in range(1000, 1500)])

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert caught.value.detail == (
        "the table needs more than the 0 MiB that cache.max_bytes and limits.memory leave it:"
        " full at row 1,500, next to 1 rows of the former load; raise them"
    )
    table.table.abort_reload(reload)
    assert table.found([1, 2]) == [*table.rows(10), "missing"]


@pytest.mark.parametrize("name", ["text", "equal hashes", "number, no columns"])
def test_updates_take_bounded_memory(name: str) -> None:
    """The memory for new rows of all keys does not grow with the number of rounds."""
    keys = range(300)
    table = NumberTable.loaded(KINDS[name], dict.fromkeys(keys, 0))
    held_bytes = table.table.bytes

    for value in range(30):
        table.apply([(key, value) for key in keys], now=float(value))

    assert table.table.bytes <= 1.5 * held_bytes
    assert table.found(keys, now=29.0) == table.rows(29) * len(keys)


def test_room_is_made_by_compaction() -> None:
    """The memory of removed rows is reused for new rows."""
    table = NumberTable.loaded(TEXT, dict.fromkeys(range(2000), 7))
    table.table.set_max_bytes(table.table.bytes)
    table.apply([(key, GONE) for key in range(600)])

    table.apply([(key, 8) for key in range(5000, 5300)])

    assert table.found([0, 5000, 5299]) == ["missing", *table.rows(8, 8)]
    assert table.table.bytes <= table.table.statistics().max_bytes


@pytest.mark.parametrize(("kept", "is_shrunk"), [(4000, False), (100, True)])
def test_sparse_table_shrinks(kept: int, *, is_shrunk: bool) -> None:
    """A reload that leaves few of many keys frees memory."""
    table = NumberTable.loaded(NUMBER, dict.fromkeys(range(20_000), 7), max_bytes=2**24)
    slots = table.table._table.slot_count

    table.reload([(key, 7) for key in range(kept)])

    assert (table.table._table.slot_count < slots) is is_shrunk
    assert table.found([0, kept - 1, kept]) == [*table.rows(7, 7), "missing"]


@pytest.mark.parametrize(("changed", "share"), [(0, 1.05), (2000, 1.2)])
def test_reload_holds_changed_rows_only(changed: int, share: float) -> None:
    """A reload needs memory for changed rows only; equal nulls and NaN are unchanged."""
    columns = pa.schema({"x": pa.int64(), "text": pa.utf8(), "ratio": pa.float64()})
    key = pa.schema({"name": pa.utf8()})
    table = FullTable(DimensionSchema(key, columns), CacheSettings(max_bytes=2**26))
    held_bytes = most_bytes = 0
    for below in (0, changed):
        held_bytes = table.bytes
        reload = table.begin_reload(0.0)
        for start in range(0, 20_000, 2000):
            numbers = np.arange(start, start + 2000)
            names = pa.array([f"name {number}" for number in numbers])
            values = pa.array(np.where(numbers < below, -1, numbers))
            ratios = pa.array(np.where(numbers % 7, numbers, np.nan), mask=numbers % 5 == 0)
            rows = pa.record_batch([values, names, ratios], schema=columns)
            keys = canonical_keys(pa.record_batch([names], schema=key))
            reload.add(keys, rows, np.ones(keys.size, np.bool_))
            most_bytes = table.bytes
        assert table.finish_reload(reload, unseen=NOTHING_UNSEEN)

    assert most_bytes < share * held_bytes
    assert table.bytes == held_bytes if not changed else table.bytes < share * held_bytes


NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "left", "right", "expected"),
    [
        (pa.int32(), [1, 2, None, None], [1, 3, None, 4], [True, False, True, False]),
        (pa.utf8(), ["a", "", None, "b"], ["a", None, None, "c"], [True, False, True, False]),
        (pa.float64(), [NAN, 0.0, None, 1.5], [NAN, -0.0, NAN, 1.5], [True, False, False, True]),
        (pa.float32(), [NAN, 0.5], [1.0, 0.5], [False, True]),
        (pa.bool_(), [True, False, None], [True, True, None], [True, False, True]),
        (pa.binary(16), [b"x" * 16, None], [b"x" * 16, b"y" * 16], [True, False]),
        (pa.decimal128(5, 2), [Decimal("1.00"), None], [Decimal("1.00"), None], [True, True]),
        (pa.timestamp("us", "UTC"), [1, 2], [1, 3], [True, False]),
        (
            pa.list_(pa.float64()),
            [[NAN, None], [1.0], None, [], None, [1.0, 2.0], [3.0]],
            [[NAN, None], [2.0], None, [], [], [1.0], [3.0]],
            [True, False, True, True, False, False, True],
        ),
        (pa.list_(pa.utf8()), [None, []], [[], []], [False, True]),
        (
            pa.list_(pa.struct({"a": pa.utf8(), "b": pa.list_(pa.int8())})),
            [[{"a": "x", "b": [1]}], [None], [{"a": None, "b": None}], None],
            [[{"a": "x", "b": [2]}], [None], [None], None],
            [False, True, False, True],
        ),
    ],
)
def test_equal_values_are_unchanged(
    kind: pa.DataType, left: list[object], right: list[object], expected: list[bool]
) -> None:
    """Null equals null, NaN equals NaN, and all other values are compared by value."""
    ours, theirs = (pa.record_batch({"x": pa.array(values, kind)}) for values in (left, right))
    wide = [pa.record_batch([each.column(0), [1] * len(left)], ["x", "y"]) for each in (ours, ours)]
    other = pa.record_batch([theirs.column(0), [1] * len(left)], ["x", "y"])

    assert same_rows(ours, theirs).tolist() == expected
    assert same_rows(ours.slice(1), theirs.slice(1)).tolist() == expected[1:]
    assert same_rows(wide[0], other).tolist() == expected
    assert same_rows(wide[0], wide[1]).all()
    assert same_rows(ours.select([]), theirs.select([])).tolist() == [True] * len(left)
