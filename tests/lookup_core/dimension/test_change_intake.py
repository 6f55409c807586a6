"""What becomes of cached rows, of reads under way and of those who wait when rows change."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import Change, TableChange
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.settings import CacheMode, OnMissingSettings, RetrySettings
from lookup_core.statistics import InvalidationOrigin
from tests.lookup_core.dimension.dimension_script import (
    NOTHING,
    SCHEMA,
    DimensionScript,
    Order,
    Seen,
    row_changes,
    settings,
)

BEFORE = TableSnapshot.parse("103:105:103")  # does not see transaction 103
AFTER = TableSnapshot.parse("104:105:")


@pytest.fixture
def script() -> DimensionScript:
    """A dimension that asks once."""
    return DimensionScript()


@pytest.fixture
def patient() -> DimensionScript:
    """A dimension that asks for missing keys once more, after 4 s."""
    on_missing = OnMissingSettings(max_retries=1, delay_s=4.0)
    return DimensionScript(settings(retry=RetrySettings(max_retries=0, on_missing=on_missing)))


def ask(script: DimensionScript, lookup: int, *keys: int) -> int:
    """Somebody asks, and a query is sent; its number."""
    script.submit(lookup, *keys)
    order = script.order()
    assert order is not None
    return order.batch


# What is cached, and what is read


def test_changed_rows_are_forgotten(script: DimensionScript) -> None:
    """Each key that is named goes, if it was cached; the others stay."""
    script.keep({7: "Ada", 8: "Bert"})

    assert script.change(7, 5, 7) == 1
    assert script.submit(2, 7, 8) == {1: "hit Bert"}


def test_overtaken_read_is_neither_kept_nor_joined(script: DimensionScript) -> None:
    """Who asks after the change gets what is read after it, and only that is kept."""
    old = ask(script, 1, 7)
    script.change(7, by=103)
    new = ask(script, 2, 7)

    assert script.land(new, {7: "new"}, snapshot=AFTER) == Seen({2: {0: "fetched new"}}, [2])
    assert script.land(old, {7: "old"}, snapshot=BEFORE) == Seen({1: {0: "fetched old"}}, [1])
    assert script.submit(3, 7) == {0: "hit new"}


def test_read_that_missed_the_change_is_not_kept(script: DimensionScript) -> None:
    """Told early, a change is not visible yet: what is read then is answered, and read again."""
    script.change(7, by=103)
    batch = ask(script, 1, 7, 8)

    seen = script.land(batch, {7: "old", 8: "Bert"}, snapshot=BEFORE)

    assert seen == Seen({1: {0: "fetched old", 1: "fetched Bert"}}, [1])
    assert script.submit(2, 7, 8) == {1: "hit Bert"}
    assert script.state.statistics().fenced_keys == 1


def test_absence_needs_the_proof_too(script: DimensionScript) -> None:
    """A row that was inserted, and told, must not be cached as missing."""
    script.change(7, by=103)

    script.land(ask(script, 1, 7), {}, snapshot=BEFORE)

    assert script.submit(2, 7) == {}


@pytest.mark.parametrize(("sent_at", "is_kept"), [(4.9, False), (5.0, True)])
def test_change_without_transaction_holds_off(
    script: DimensionScript, sent_at: float, *, is_kept: bool
) -> None:
    """Where nothing can be proved a key is not kept for 5 s."""
    script.change(7)
    script.now = sent_at
    script.land(ask(script, 1, 7), {7: "Ada"}, snapshot=AFTER)

    assert script.submit(2, 7) == ({0: "hit Ada"} if is_kept else {})


def test_changed_table_is_forgotten(script: DimensionScript) -> None:
    """A truncated table has no row of before, nor what is being read of it."""
    script.keep({7: "Ada", 8: "Bert"})
    overtaken = ask(script, 1, 9)

    assert script.change(by=103) == 2
    script.land(overtaken, {9: "old"}, snapshot=AFTER)
    missed = ask(script, 2, 7)
    script.land(missed, {7: "old"}, snapshot=BEFORE)

    assert script.submit(3, 7, 8, 9) == {}


def test_changes_are_counted_by_their_origin(script: DimensionScript) -> None:
    """Named keys count each, a whole table by what was cached of it."""
    script.keep({7: "Ada", 8: "Bert"})
    changes: list[Change] = [row_changes(7, 5), TableChange("truncated")]

    assert script.state.changes.on_changes(changes, InvalidationOrigin.NOTIFICATION, 0.0) == 2

    counts = script.state.statistics().invalidations
    assert counts[InvalidationOrigin.NOTIFICATION] == 3


def test_many_changes_meet_many_rows(script: DimensionScript) -> None:
    """Of as many changes as there are rows, those that are cached count."""
    changes = row_changes(*range(1000), by=103)
    script.keep(dict.fromkeys(range(500, 1500), "row"))

    assert script.state.changes.on_changes([changes], InvalidationOrigin.CHANGELOG, 0.0) == 500


# Those who wait for a row that was missing


def test_missing_key_is_asked_again_when_it_changes(patient: DimensionScript) -> None:
    """Its row has come: nobody waits for the next try, nor do others of the same query."""
    patient.land(ask(patient, 1, 7, 8), {})
    patient.now = 1.0
    patient.change(7, by=103)

    assert patient.order() == Order(4, [7])
    assert patient.order() is None
    assert patient.land(4, {7: "Ada"}, snapshot=AFTER) == Seen({1: {0: "fetched Ada"}})
    assert patient.submit(2, 7) == {0: "hit Ada"}
    patient.now = 4.0
    assert patient.order() == Order(3, [8])


def test_early_event_uses_up_no_try(patient: DimensionScript) -> None:
    """Asked again too early, the key waits on for its next try, which is at its time."""
    patient.land(ask(patient, 1, 7), {})
    patient.now = 1.0
    patient.change(7, by=103)
    early = patient.order()
    assert early is not None

    assert patient.land(early.batch, {}, snapshot=BEFORE) == NOTHING
    assert patient.order() is None
    patient.now = 4.0
    last = patient.order()
    assert last is not None
    assert patient.land(last.batch, {}, snapshot=AFTER) == Seen({1: {0: "missing"}}, [1])


def test_second_change_changes_nothing(patient: DimensionScript) -> None:
    """A key that is due already is asked once, however often it changes."""
    patient.now = 1.0
    patient.land(ask(patient, 1, 7), {})
    patient.change(7, by=103)
    patient.change(7, by=104)

    order = patient.order()

    assert order is not None
    assert (order.keys, patient.order()) == ([7], None)
    patient.submit(2, 7)
    assert patient.order() is None  # the newcomer joined: it is read after the changes
    both = patient.land(order.batch, {7: "Ada"}, snapshot=TableSnapshot.parse("105:105:"))
    assert both == Seen({1: {0: "fetched Ada"}, 2: {0: "fetched Ada"}}, [1, 2])


def test_deserted_key_goes_with_the_rest(patient: DimensionScript) -> None:
    """Of a query whose other keys nobody waits for any more, nothing is left parked."""
    patient.submit(1, 7)
    patient.submit(2, 8)
    order = patient.order()
    assert order is not None
    patient.land(order.batch, {})
    patient.leave(2)
    patient.now = 1.0
    patient.change(7, by=103)

    order = patient.order()

    assert order is not None
    assert patient.land(order.batch, {7: "Ada"}) == Seen({1: {0: "fetched Ada"}}, [1])
    assert patient.state.next_deadline() is None


def test_keys_without_a_cache_are_woken_too() -> None:
    """That a row has come is news for who waits, whatever is kept."""
    on_missing = OnMissingSettings(max_retries=1, delay_s=4.0)
    retry = RetrySettings(max_retries=0, on_missing=on_missing)
    script = DimensionScript(settings(mode=CacheMode.NONE, retry=retry))
    script.land(ask(script, 1, 7), {})
    script.now = 1.0
    script.change(7, by=103)

    assert script.order() == Order(3, [7])


# Trust


def test_distrusted_rows_are_not_served(script: DimensionScript) -> None:
    """While changes may be missed all is asked, by whatever way; then the rows are back."""
    script.keep({7: "Ada"})
    hit = script.state.hit(7, 0.0)
    assert hit is not None
    script.trust(is_trusted=False)

    assert script.state.hit(7, 0.0) is None
    assert script.state.revisit(hit.bookmark, 0.0) is None
    assert script.submit(2, 7) == {}
    script.trust(is_trusted=True)
    assert script.state.revisit(hit.bookmark, 0.0) == 0.0
    assert script.submit(3, 7) == {0: "hit Ada"}


def test_distrusted_reads_are_not_kept(script: DimensionScript) -> None:
    """What is read meanwhile may change without a word."""
    script.trust(is_trusted=False)
    script.land(ask(script, 1, 7, 8), {7: "Ada"}, snapshot=AFTER)
    script.trust(is_trusted=True)

    assert script.submit(2, 7, 8) == {}


def test_distrusted_row_stands_in_for_an_error() -> None:
    """Who allows stale rows where the store fails gets them, told as stale."""
    script = DimensionScript(settings(stale_while_revalidate_s=9.0, stale_if_error_s=9.0))
    script.keep({7: "Ada"})
    script.trust(is_trusted=False)
    batch = ask(script, 1, 7)  # not answered at once, as a row that is merely old would be

    assert script.fail(batch) == Seen({1: {0: "stale Ada"}}, [1])


def test_distrusted_row_is_explained(script: DimensionScript) -> None:
    """Who wonders why a cached row is not served is told."""
    script.keep({7: "Ada"})
    script.trust(is_trusted=False)

    (explanation,) = script.explain(7)

    assert explanation.state == "stale"
    assert explanation.reason.startswith("its changes are not told at present: read anew")


# Speed


def test_burst_is_taken_in_as_columns() -> None:
    """A hundred thousand changes in one piece leave no key behind, and nothing per key is made."""
    state = DimensionState(settings(), SCHEMA)
    changes = row_changes(*range(100_000), by=103)

    assert state.changes.on_changes([changes], InvalidationOrigin.CHANGELOG, 0.0) == 0

    keys = pa.record_batch([pa.array([5])], SCHEMA.key)
    hashes = state._known.canonical(keys, np.zeros(1, np.int32)).hashes
    fence = state.changes.fence
    assert not fence.admits(hashes, BEFORE, sent_at=1.0, now=1.0).any()
    assert len(fence) == 100_000
