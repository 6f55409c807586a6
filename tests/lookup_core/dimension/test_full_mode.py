"""Full mode: loads, lookups that wait for the first one, and what the table knows."""

from collections.abc import Mapping

import pyarrow as pa
import pytest

from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.settings import CacheMode
from lookup_core.table.full_table import FullTable
from lookup_core.table.table_load import TableLoad
from tests.lookup_core.dimension.scenario import Order, Scenario, columns_of, row_changes, settings

SEES_ALL = TableSnapshot.parse("900:900:")
BEFORE_700 = TableSnapshot.parse("600:700:")


class FullScenario(Scenario):
    """A dimension in full mode, of which nothing is loaded."""

    @property
    def table(self) -> FullTable:
        """Its table."""
        assert isinstance(self.state.local.cache, FullTable)
        return self.state.local.cache

    def begin_load(self, now: float) -> TableLoad:
        """Begin a load."""
        return self.state.begin_load(self.table, now)

    def read(
        self,
        load: TableLoad,
        names: Mapping[int, str | None],
        snapshot: TableSnapshot | None = None,
    ) -> None:
        """A load reads some rows."""
        load.add_changes([row_changes(names)], snapshot, now=self.now)

    def load(self, names: Mapping[int, str | None]) -> None:
        """Load the whole table."""
        load = self.begin_load(self.now)
        self.read(load, names)
        assert load.finish(self.now)
        self.state.end_load(load)

    def known(self, *keys: int) -> dict[int, str] | None:
        """The names of the keys that have a row; None if some key is unknown."""
        rows = self.state.local.known_rows(columns_of(*keys), self.now)
        if rows is None:
            return None
        names = rows.rows.column("name").to_pylist()
        return {keys[at]: name for at, name in zip(rows.ordinals.tolist(), names, strict=True)}


@pytest.fixture
def scenario() -> FullScenario:
    """Nothing is loaded; it is 1 s."""
    scenario = FullScenario(settings(mode=CacheMode.FULL))
    scenario.now = 1.0
    return scenario


def test_load_counts_at_its_end(scenario: FullScenario) -> None:
    """Before its end a load answers nothing; then all keys are known, missing ones included."""
    load = scenario.begin_load(1.0)
    scenario.read(load, {1: "Ada"}, SEES_ALL)
    assert (scenario.table.is_whole, scenario.known(1)) == (False, None)
    scenario.read(load, {2: "Bob"}, SEES_ALL)

    assert load.finish(2.0)

    assert (load.reload.row_count, len(scenario.table)) == (2, 2)
    assert scenario.known(2, 9, 1) == {2: "Bob", 1: "Ada"}
    assert scenario.look_up(1, 1, 9) == {0: "hit Ada", 1: "missing"}
    assert scenario.known() == {}


def test_invisible_change_leaves_the_key_unknown(scenario: FullScenario) -> None:
    """A reported change that the snapshot of the load does not show makes its key unknown."""
    scenario.change(1, by=700)
    load = scenario.begin_load(2.0)
    scenario.read(load, {1: "Ada", 2: "Bob"}, BEFORE_700)
    scenario.read(load, {3: "Cleo"}, SEES_ALL)  # all pieces have the snapshot of the first

    assert load.finish(3.0)
    assert [scenario.known(key) for key in (1, 2, 3)] == [None, {2: "Bob"}, {3: "Cleo"}]


def test_changed_table_outdates_a_load(scenario: FullScenario) -> None:
    """A load whose snapshot does not show a change of the whole table is discarded."""
    load = scenario.begin_load(1.0)
    scenario.change(by=700)
    scenario.read(load, {1: "Ada"}, BEFORE_700)

    assert not load.finish(2.0)
    assert not scenario.table.is_whole


def test_flushed_load_takes_no_more_rows(scenario: FullScenario) -> None:
    """A load that a flush has dropped reads no further rows, and its memory is free."""
    empty_bytes = scenario.table.bytes
    load = scenario.begin_load(1.0)
    scenario.read(load, {1: "Ada"}, SEES_ALL)
    scenario.change(by=700)

    assert not load.add_changes([row_changes({2: "Bob"})], SEES_ALL, now=1.0)
    assert not load.finish(2.0)
    assert (load.reload.row_count, scenario.table.bytes) == (1, empty_bytes)


def test_former_load_ends_no_later_one(scenario: FullScenario) -> None:
    """The end of a load that another one has replaced does not drop the latter."""
    replaced, load = scenario.begin_load(1.0), scenario.begin_load(1.0)
    scenario.read(load, {1: "Ada"}, SEES_ALL)

    scenario.state.end_load(replaced)

    assert load.finish(2.0)
    assert scenario.known(1) == {1: "Ada"}


def test_late_event_restores_no_row(scenario: FullScenario) -> None:
    """Rows of events from before a load, or before a change of the table, are fetched instead."""
    scenario.change(by=600)
    load = scenario.begin_load(1.0)
    scenario.apply(row_changes({1: "former", 2: "former"}, by=500))
    scenario.read(load, {1: "glad", 2: "glad", 3: "glad"}, SEES_ALL)
    assert load.finish(2.0)
    scenario.apply(row_changes({3: "former"}, by=700), row_changes({2: "new"}, by=900))

    assert [scenario.known(key) for key in (1, 2, 3)] == [None, {2: "new"}, None]


def test_stalled_feed_makes_all_unknown(scenario: FullScenario) -> None:
    """While the feed is stalled no key is known; afterwards the rows are back."""
    scenario.load({1: "Ada"})

    scenario.trust(is_trusted=False)
    stalled = (scenario.known(1), scenario.look_up(1, 1, 9))
    scenario.trust(is_trusted=True)

    assert (stalled, scenario.known(1)) == ((None, {}), {1: "Ada"})


def test_unknown_key_is_fetched(scenario: FullScenario) -> None:
    """A key that changed without its row is unknown until a query fetches it."""
    scenario.load({1: "Ada", 2: "Bob"})
    scenario.change(1, by=700)
    assert (scenario.known(1, 2), scenario.known(2)) == (None, {2: "Bob"})
    assert scenario.look_up(1, 2, 1) == {0: "hit Bob"}
    batch = scenario.resend()

    scenario.land(batch, {1: "Zoe"}, snapshot=SEES_ALL)

    assert scenario.known(1, 2) == {1: "Zoe", 2: "Bob"}


def test_feed_confirms_the_age(scenario: FullScenario) -> None:
    """Rows are as old as the load, or as the time up to which all changes are reported."""
    scenario.load({1: "Ada"})
    scenario.now = 5.0
    loaded = scenario.state.local.known_rows(columns_of(1), 5.0)

    scenario.state.on_feed(FeedState.LIVE, trusted_until=10.0, reported_until=4.0)

    confirmed = scenario.state.local.known_rows(columns_of(1), 5.0)
    assert [None if each is None else each.read_at for each in (loaded, confirmed)] == [1.0, 4.0]
    assert scenario.state.local.cache.oldest_age_s(5.0) == 1.0
    empty = scenario.state.local.known_rows(
        pa.record_batch([pa.array([], pa.int64())], ["id"]), 5.0
    )
    assert empty is not None
    assert (empty.read_at, empty.rows.num_rows) == (5.0, 0)


def test_lookups_wait_for_the_load(scenario: FullScenario) -> None:
    """No query is sent while lookups wait for the first load; a failed load changes nothing."""
    scenario.state.in_flight.hold_queries(10.0)
    scenario.look_up(1, 1)
    assert scenario.send() is None
    scenario.state.end_load(scenario.begin_load(1.0))
    due_at = scenario.next_deadline

    scenario.load({1: "Ada"})

    assert (due_at, scenario.send()) == (10.0, Order(1, [1]))


def test_waiting_for_the_load_ends(scenario: FullScenario) -> None:
    """If the table cannot be loaded, lookups are fetched from that time on."""
    scenario.state.in_flight.hold_queries(10.0)
    scenario.look_up(1, 1)

    sent = []
    for scenario.now in (9.9, 10.0):
        sent.append(scenario.send())

    assert sent == [None, Order(1, [1])]
    assert scenario.next_deadline == 100.0


def test_rate_does_not_limit_a_loaded_table() -> None:
    """Queries that waited for the load, and that the table answers, all leave at once."""
    scenario = FullScenario(settings(mode=CacheMode.FULL, max_keys=1, max_queries_per_s=1))
    scenario.state.in_flight.hold_queries(100.0)
    scenario.look_up(1, 1, 2, 3)

    scenario.load({1: "a", 2: "b", 3: "c"})

    assert scenario.send_all() == [[1], [2], [3]]
