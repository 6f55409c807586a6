"""What a table that is held whole answers, and what changes do to it."""

import numpy as np
import pytest

from lookup_core.errors import BackendError
from lookup_core.statistics import EvictionReason
from tests.lookup_core.cache.row_caches import KINDS, CacheKind
from tests.lookup_core.table.full_tables import CHANGED, GONE, NOTHING_UNSEEN, ROOMY, NumberTable

NUMBER = KINDS["number"]
TEXT = KINDS["text"]
LOADED = {1: 10, 2: 20}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension."""
    return KINDS[request.param]


def test_nothing_is_known_before_the_first_load(kind: CacheKind) -> None:
    """A table that was never loaded knows neither rows nor absences, nor does a change help."""
    table = NumberTable.empty(kind)

    table.apply([(1, 10)])

    assert table.found([1, 2]) == [None, None]
    assert table.hit(1) is None
    assert not table.table.is_whole
    assert table.table.oldest_age_s(5.0) is None


def test_whole_table_knows_every_key(kind: CacheKind) -> None:
    """A key that is not in the table has no row, and none has to be asked for."""
    table = NumberTable.loaded(kind, LOADED)

    assert table.found([1, 2, 3]) == [*table.rows([10, 20]), "missing"]
    assert table.hit(2) == kind.row(20)
    assert table.hit(3) is None
    assert table.table.is_whole


def test_first_load_is_not_seen_before_its_end() -> None:
    """Rows that are read are no answers until the table is whole."""
    table = NumberTable.empty(NUMBER)
    reload = table.table.begin_reload(0.0)
    table.read(reload, [(1, 10)])

    assert table.found([1, 2]) == [None, None]
    assert reload.row_count == 1


def test_changes_are_followed_in_their_order(kind: CacheKind) -> None:
    """Of several changes of a key in one batch the last one counts."""
    table = NumberTable.loaded(kind, LOADED)

    table.apply([(1, 11), (3, 30), (1, GONE), (2, GONE), (2, 22), (4, 40), (4, CHANGED)])

    assert table.found([1, 2, 3, 4]) == ["missing", *table.rows([22, 30]), None]


def test_hole_is_closed_by_what_a_query_brings(kind: CacheKind) -> None:
    """A key that changed without its row is unknown until it was read, whatever was read."""
    table = NumberTable.loaded(kind, LOADED)
    table.apply([(1, CHANGED), (2, CHANGED), (3, CHANGED)])
    assert table.found([1, 2, 3]) == [None] * 3
    assert table.table.hole_count == 3

    table.fill({1: 11, 3: 33}, missing=[2])

    assert table.found([1, 2, 3]) == [*table.rows([11]), "missing", *table.rows([33])]
    assert table.table.hole_count == 0


def test_query_teaches_nothing_beyond_holes(kind: CacheKind) -> None:
    """What is read for another reason, as while the table was loaded, changes no row."""
    table = NumberTable.loaded(kind, LOADED)

    table.fill({1: 11, 3: 33}, missing=[2])

    assert table.found([1, 2, 3]) == [*table.rows([10, 20]), "missing"]


def test_key_with_several_rows_stays_a_hole(kind: CacheKind) -> None:
    """It is unknown, so that each lookup of it is a query, and later loads do not change that."""
    table = NumberTable.empty(kind)
    for _ in range(2):
        reload = table.table.begin_reload(0.0)
        table.read(reload, [(1, 10), (2, 20), (1, 11)])
        table.read(reload, [(2, 20), (3, 30), (2, 20)])
        table.read(reload, [(2, 20), (4, 40)])

        assert table.table.finish_reload(reload, unseen=NOTHING_UNSEEN)

        assert table.found([1, 2, 3, 4]) == [None, None, *table.rows([30, 40])]
        assert table.table.hole_count == 2


def test_row_that_gets_a_second_one_is_a_hole(kind: CacheKind) -> None:
    """A row is no answer any more once a picture shows another one beside it."""
    table = NumberTable.loaded(kind, LOADED)
    reload = table.table.begin_reload(0.0)
    table.read(reload, [(1, 10), (2, 20)])
    table.read(reload, [(1, 10)])

    assert table.table.finish_reload(reload, unseen=NOTHING_UNSEEN)

    assert table.found([1, 2]) == [None, *table.rows([20])]


def test_change_later_than_the_picture_is_a_suspect() -> None:
    """A key whose noted change the picture does not show is asked for, with a row or without."""
    table = NumberTable.empty(TEXT)
    reload = table.table.begin_reload(0.0)
    table.read(reload, [(1, 10), (2, 20)])

    assert table.table.finish_reload(reload, unseen=TEXT.keys([1, 3]).hashes)

    assert table.found([1, 2, 3]) == [None, *table.rows([20]), None]
    table.fill({1: 11}, missing=[3])
    assert table.found([1, 3]) == [*table.rows([11]), None]
    table.apply([(3, GONE)])
    assert table.found([3]) == ["missing"]


def test_invalidated_keys_are_holes(kind: CacheKind) -> None:
    """Whoever says that a key may have changed makes it unknown, also one without a row."""
    table = NumberTable.loaded(kind, LOADED)

    assert table.table.invalidate(kind.keys([1, 3, 1])) == 1

    assert table.found([1, 2, 3]) == [None, *table.rows([20]), None]


def test_cleared_table_is_loaded_anew() -> None:
    """After everything may have changed nothing is known, and a load under way is given up."""
    table = NumberTable.loaded(NUMBER, LOADED)
    reload = table.table.begin_reload(1.0)

    assert table.table.clear() == 2

    assert table.found([1, 3]) == [None, None]
    assert not table.table.finish_reload(reload, unseen=NOTHING_UNSEEN)
    assert table.reload({1: 11}, now=2.0)
    assert table.found([1, 3], now=2.0) == [*table.rows([11]), "missing"]


def test_ages_count_from_what_is_certain() -> None:
    """A row is as old as the last proof that it is the table's, or as its own change if later."""
    table = NumberTable.loaded(NUMBER, LOADED, now=1.0)
    table.apply([(2, 22)], now=3.0)

    assert table.table.probe(NUMBER.keys([1, 2, 9]), 5.0).ages_s.tolist() == [4.0, 2.0, 4.0]

    table.table.confirm(4.0)
    table.table.confirm(3.5)
    assert table.table.probe(NUMBER.keys([1, 2, 9]), 5.0).ages_s.tolist() == [1.0, 1.0, 1.0]
    assert table.table.oldest_age_s(5.0) == 1.0


def test_hit_leads_back_to_its_row() -> None:
    """A bookmark finds its row until that changes."""
    table = NumberTable.loaded(NUMBER, LOADED)
    marks = [table.table.hit(NUMBER.key(key), 1.0) for key in (1, 2)]
    first, second = [hit.bookmark for hit in marks if hit is not None]
    assert table.table.revisit(second, 3.0) == 3.0

    table.apply([(1, 11)], now=2.0)
    assert table.table.revisit(first, 3.0) is None


def test_bookmark_does_not_outlive_a_clear() -> None:
    """A row of a table that is gone is found no more, not even where another one stands now."""
    table = NumberTable.loaded(NUMBER, LOADED)
    hit = table.table.hit(NUMBER.key(1), 1.0)
    assert hit is not None
    table.table.clear()
    table.reload({1: 11})

    assert table.table.revisit(hit.bookmark, 3.0) is None


def test_row_without_room_becomes_a_hole(kind: CacheKind) -> None:
    """A change that would go beyond the bound is remembered, its row is not; nothing is evicted."""
    table = NumberTable.loaded(kind, LOADED)
    table.table.set_max_bytes(table.table.bytes)

    table.apply([(1, 11), (3, 30)])

    assert table.found([1, 2, 3]) == [None, *table.rows([20]), None]
    table.fill({1: 11}, missing=[3])
    assert table.found([1, 3]) == [None, None]
    table.table.set_max_bytes(ROOMY)
    table.fill({1: 11}, missing=[3])
    assert table.found([1, 3]) == [*table.rows([11]), "missing"]


def test_too_many_holes_make_all_unknown() -> None:
    """Where not even holes fit, the whole table is to be loaded anew."""
    table = NumberTable.empty(TEXT, max_bytes=60_000)
    table.reload({1: 10})

    for first in range(100, 2_000, 100):
        table.apply([(key, CHANGED) for key in range(first, first + 100)])

    assert not table.table.is_whole
    assert table.found([1, 3]) == [None, None]
    assert table.table.bytes <= 60_000


def test_lower_bound_drops_nothing() -> None:
    """Memory that is short takes nothing from a table that is held whole."""
    table = NumberTable.loaded(NUMBER, LOADED)

    table.table.set_max_bytes(0)

    assert table.found([1, 2, 3]) == [*table.rows([10, 20]), "missing"]
    with pytest.raises(BackendError, match="needs more than"):
        table.reload({1: 11})
    reload = table.table.begin_reload(0.0)
    table.table.set_max_bytes(ROOMY)
    table.read(reload, [(1, 11)])
    assert table.table.finish_reload(reload, unseen=NOTHING_UNSEEN)
    assert table.found([1]) == table.rows([11])


def test_memory_stays_bounded_over_updates(kind: CacheKind) -> None:
    """A hundred rounds of new rows for all keys take no more than a few of them."""
    keys = range(500)
    table = NumberTable.loaded(kind, dict.fromkeys(keys, 0))
    held_bytes = table.table.bytes

    for value in range(100):
        table.apply([(key, value) for key in keys], now=float(value))

    assert table.table.bytes <= 1.5 * held_bytes
    assert table.found(keys, now=99.0) == table.rows([99]) * len(keys)


def test_what_went_is_counted() -> None:
    """Rows that were replaced, or that nobody knows any more, are counted by their reason."""
    table = NumberTable.loaded(NUMBER, {1: 10, 2: 20, 3: 30, 4: 40})
    table.apply([(1, 11), (2, GONE), (9, GONE)])
    table.table.invalidate(NUMBER.keys([3]))
    table.reload({1: 11, 4: 41})

    statistics = table.table.statistics()

    expected = dict.fromkeys(EvictionReason, 0) | {
        EvictionReason.REPLACED: 2,
        EvictionReason.INVALIDATED: 2,
    }
    assert (statistics.rows, statistics.evictions) == (2, expected)
    assert len(table.table) == statistics.rows
    assert (statistics.bytes, statistics.max_bytes) == (table.table.bytes, ROOMY)


def test_empty_batches_change_nothing(kind: CacheKind) -> None:
    """Nothing to read, to change or to close is no fault."""
    table = NumberTable.loaded(kind, {})
    table.apply([])
    table.fill({})

    assert table.found([]) == []
    assert table.found([1]) == ["missing"]
    assert np.array_equal(table.table.probe(kind.keys([]), 0.0).ages_s, [])
