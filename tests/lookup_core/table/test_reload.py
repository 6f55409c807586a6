"""How a table comes into memory, and what it takes."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.settings import CacheSettings
from lookup_core.table.full_table import FullTable
from tests.lookup_core.cache.row_caches import KINDS, CacheKind
from tests.lookup_core.table.full_tables import CHANGED, GONE, NOTHING_UNSEEN, NumberTable

NUMBER = KINDS["number"]
ROWS = 100_000
BATCH = 10_000
KEY = pa.schema({"name": pa.utf8()})
COLUMNS = pa.schema({"x": pa.int64(), "text": pa.utf8(), "ratio": pa.float64()})


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension."""
    return KINDS[request.param]


def large_table() -> FullTable:
    """An empty table of texts."""
    settings = CacheSettings(max_bytes=64 * 2**20)
    return FullTable(DimensionSchema(KEY, COLUMNS), settings)


def load(table: FullTable, *, changed: int = 0) -> int:
    """Load the table, the first rows with other values than usual; the most bytes meanwhile."""
    reload = table.begin_reload(0.0)
    most_bytes = 0
    for start in range(0, ROWS, BATCH):
        numbers = np.arange(start, start + BATCH)
        names = pa.array([f"name {number}" for number in numbers])
        values = pa.array(np.where(numbers < changed, -1, numbers))
        ratios = pa.array(np.where(numbers % 7, numbers, np.nan), mask=numbers % 5 == 0)
        rows = pa.record_batch([values, names, ratios], schema=COLUMNS)
        reload.add(canonical_keys(pa.record_batch([names], schema=KEY)), rows)
        most_bytes = max(most_bytes, table.bytes)
    assert table.finish_reload(reload, unseen=NOTHING_UNSEEN)
    return max(most_bytes, table.bytes)


def test_reload_shows_the_new_picture(kind: CacheKind) -> None:
    """At its end changed rows are others, new ones are here and those that went are not."""
    table = NumberTable.loaded(kind, {1: 10, 2: 20, 3: 30, 4: 40})
    reload = table.table.begin_reload(1.0)
    table.read(reload, [(1, 10), (2, 21)])
    table.read(reload, [(5, 50), (4, 40)])
    assert table.found(range(1, 6)) == [*table.rows([10, 20, 30, 40]), "missing"]

    assert table.table.finish_reload(reload, unseen=NOTHING_UNSEEN)

    expected = [*table.rows([10, 21]), "missing", *table.rows([40, 50])]
    if not len(kind.schema.columns):
        expected[2] = "missing"
    assert table.found(range(1, 6), now=1.0) == expected


def test_given_up_reload_leaves_the_old_state(kind: CacheKind) -> None:
    """What was read until then is forgotten, and nothing that was here is."""
    table = NumberTable.loaded(kind, {1: 10, 2: 20})
    reload = table.table.begin_reload(1.0)
    table.read(reload, [(1, 11), (3, 30)])

    table.table.abort_reload()

    assert not table.table.finish_reload(reload, unseen=NOTHING_UNSEEN)
    assert table.found([1, 2, 3]) == [*table.rows([10, 20]), "missing"]


def test_changes_meanwhile_outdo_the_picture(kind: CacheKind) -> None:
    """A key that changed since the reload began is as it changed, read before or after."""
    table = NumberTable.loaded(kind, dict.fromkeys(range(1, 7), 0))
    reload = table.table.begin_reload(1.0)
    table.read(reload, [(1, 1), (2, 1), (3, 1)])
    table.apply([(1, 5), (2, GONE), (3, CHANGED), (4, 5), (5, GONE), (6, CHANGED)], now=1.0)
    table.read(reload, [(4, 1), (5, 1), (6, 1)])

    assert table.table.finish_reload(reload, unseen=NOTHING_UNSEEN)

    row = table.rows([5])
    assert table.found(range(1, 7), now=1.0) == [*row, "missing", None, *row, "missing", None]


def test_changes_during_the_first_load_count(kind: CacheKind) -> None:
    """The same holds while nothing is known yet."""
    table = NumberTable.empty(kind)
    reload = table.table.begin_reload(1.0)
    table.apply([(1, 5), (2, GONE), (3, CHANGED)], now=1.0)
    table.fill({3: 6}, now=1.0)
    table.read(reload, [(1, 1), (2, 1), (3, 1), (4, 1)])

    assert table.table.finish_reload(reload, unseen=NOTHING_UNSEEN)

    assert table.found(range(1, 5), now=1.0) == [
        *table.rows([5]),
        "missing",
        *table.rows([6, 1]),
    ]


def test_unchanged_reload_takes_little_memory() -> None:
    """A picture that shows what is here, nulls and NaN included, takes 5 % more at the most."""
    table = large_table()
    load(table)
    held_bytes = table.bytes

    most_bytes = load(table)

    assert most_bytes < 1.05 * held_bytes
    assert table.bytes == held_bytes


def test_reload_takes_what_has_changed() -> None:
    """Beside the table only the changed rows are held."""
    table = large_table()
    load(table)
    held_bytes = table.bytes

    most_bytes = load(table, changed=ROWS // 10)

    assert most_bytes < 1.2 * held_bytes
    assert table.bytes < 1.2 * held_bytes


def test_table_that_does_not_fit_is_refused() -> None:
    """The load fails with the bound, where it was reached, and the remedy; the old state stays."""
    table = NumberTable.loaded(NUMBER, {1: 10}, max_bytes=100_000)
    reload = table.table.begin_reload(0.0)

    table.read(reload, [(key, key) for key in range(1_000)])
    with pytest.raises(BackendError) as caught:
        table.read(reload, [(key, key) for key in range(1_000, 1_500)])

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert caught.value.detail == (
        "the table needs more than the 0 MiB that cache.max_bytes and limits.memory leave it:"
        " full at row 1,500, beside 1 rows of the former load; raise them"
    )
    table.table.abort_reload()
    assert table.found([1, 2]) == [*table.rows([10]), "missing"]
