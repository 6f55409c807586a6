"""Changes: invalidations and feeds, what is cached while they arrive, and a feed that stalls."""

from dataclasses import replace

import numpy as np
import pytest

from lookup_core.changelog.change_decoder import Change, TableChange
from lookup_core.freshness.server_identity import ServerEpoch
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.statistics import InvalidationOrigin
from tests.lookup_core.dimension.scenario import (
    FAULTY,
    NOTHING,
    Order,
    Result,
    Scenario,
    ended,
    row_changes,
    settings,
    typed,
)

BEFORE = TableSnapshot.parse("103:105:103")  # does not see transaction 103
AFTER = TableSnapshot.parse("104:105:")


@pytest.fixture
def patient() -> Scenario:
    """Missing keys are retried once, after 2 s."""
    return Scenario(settings(missing_retries=1))


def test_invalidated_entries_are_queried_again(scenario: Scenario) -> None:
    """Rows and negative entries of the named keys go, each counted once; others stay."""
    scenario.cache({7: "Ada", 8: "Bert"})
    scenario.land(scenario.query(1, 9))

    assert scenario.invalidate(7, 9, 5, None, FAULTY, 7) == 2
    assert scenario.look_up(2, 7, 8, 9) == {1: "hit Bert"}


@pytest.mark.parametrize("is_newer_first", [True, False])
@pytest.mark.parametrize("is_feed", [True, False])
def test_overtaken_read_is_neither_kept_nor_joined(
    scenario: Scenario, *, is_newer_first: bool, is_feed: bool
) -> None:
    """A read that a change overtakes answers its waiters; only a later read is joined or cached."""
    old = scenario.query(1, 7)
    if is_feed:
        scenario.change(7, by=103)
    else:
        assert scenario.invalidate(7) == 0
    new = scenario.query(2, 7)

    def land_old() -> Result:
        return scenario.land(old, {7: "old"}, snapshot=BEFORE)

    before = None if is_newer_first else land_old()
    assert scenario.land(new, {7: "new"}, snapshot=AFTER) == ended(2, "fetched new")
    assert (before or land_old()) == ended(1, "fetched old")
    assert scenario.look_up(3, 7) == {0: "hit new"}


def test_invalidations_count_by_origin(scenario: Scenario) -> None:
    """Named keys count each, and a whole table by its cached entries."""
    scenario.cache({7: "Ada", 8: "Bert"})
    origins = InvalidationOrigin

    assert scenario.state.invalidate(None, origins.FAILOVER) == 2
    assert scenario.state.invalidate(typed(7), origins.ADMIN) == 0
    scenario.cache({7: "Ada", 8: "Bert", 9: "Cora"})
    changes: list[Change] = [row_changes({7: None, 5: None}), TableChange("truncated")]
    scenario.state.on_changes(changes[:1], origins.NOTIFICATION, 0.0)
    assert scenario.look_up(1, 8) == {0: "hit Bert"}
    scenario.state.on_changes(changes[1:], origins.NOTIFICATION, 0.0)

    expected = {origins.FAILOVER: 2, origins.ADMIN: 1, origins.NOTIFICATION: 4}
    assert scenario.statistics.invalidations == dict.fromkeys(origins, 0) | expected


def test_unproved_read_is_not_kept(scenario: Scenario) -> None:
    """A row or negative entry is not cached if its snapshot does not show a reported change."""
    scenario.change(7, 9, by=103)
    batch = scenario.query(1, 7, 8, 9)

    result = scenario.land(batch, {7: "old", 8: "Bert"}, snapshot=BEFORE)

    assert result == ended(1, "fetched old", "fetched Bert", "missing")
    assert scenario.look_up(2, 7, 8, 9) == {1: "hit Bert"}
    assert scenario.statistics.fenced_keys == 2


@pytest.mark.parametrize(("sent_at", "is_kept"), [(4.9, False), (5.0, True)])
def test_change_without_transaction_holds_off(
    scenario: Scenario, sent_at: float, *, is_kept: bool
) -> None:
    """A change without a transaction keeps rows out that are read within 5 s of it."""
    scenario.change(7)
    scenario.now = sent_at
    scenario.land(scenario.query(1, 7), {7: "Ada"}, snapshot=AFTER)

    assert scenario.look_up(2, 7) == ({0: "hit Ada"} if is_kept else {})


@pytest.mark.parametrize(("timeout_s", "age_s"), [(2.0, 90.0), (45.0, 135.0)])
def test_fence_outlasts_the_longest_query(timeout_s: float, age_s: float) -> None:
    """A change is remembered for 90 s after a read that saw it, or for three query timeouts."""
    scenario = Scenario(replace(settings(), timeout_s=timeout_s))
    fence = scenario.state.fence
    scenario.change(7, by=103)
    keys = np.zeros(0, np.uint64)
    held = []
    for now in (1.0, age_s, 1.0 + age_s):
        fence.admits(keys, AFTER, sent_at=now, now=now)
        held.append(len(fence))

    assert held == [1, 1, 0]


def test_changed_missing_key_is_retried_at_once(patient: Scenario) -> None:
    """A change ends the wait for the retry of its key, not of other keys of the same query."""
    patient.land(patient.query(1, 7, 8))
    patient.now = 1.0
    patient.change(7, by=103)

    assert patient.send() == Order(4, [7], attempt=2)
    assert patient.send() is None
    assert patient.land(4, {7: "Ada"}, snapshot=AFTER) == Result({1: {0: "fetched Ada"}})
    assert patient.look_up(2, 7) == {0: "hit Ada"}
    patient.now = 2.0
    assert patient.send_all() == [[8]]


@pytest.mark.parametrize(("landed_at", "retry_at"), [(1.5, 2.0), (3.0, 3.0)])
def test_early_attempt_costs_no_retry(patient: Scenario, landed_at: float, retry_at: float) -> None:
    """An attempt that a change causes uses up no retry: the planned one follows at its time."""
    patient.land(patient.query(1, 7))
    patient.now = 1.0
    patient.change(7, by=103)
    early = patient.resend()
    patient.now = landed_at

    assert patient.land(early, snapshot=BEFORE) == NOTHING
    assert patient.next_deadline == retry_at
    patient.now = retry_at
    assert patient.land(patient.resend(), snapshot=AFTER) == ended(1, "missing")


def test_stalled_feed_bypasses_the_cache(scenario: Scenario) -> None:
    """While the feed is stalled cached rows are not served, and nothing is cached."""
    scenario.cache({7: "Ada"})
    scenario.trust(is_trusted=False)

    assert scenario.state.local.single_keys.hit(7, 0.0) is None
    batch = scenario.query(2, 7, 8, 9)
    scenario.land(batch, {7: "Ada", 8: "Bert"}, snapshot=AFTER)
    scenario.trust(is_trusted=True)
    assert scenario.state.local.single_keys.hit(7, 0.0) is not None
    assert scenario.look_up(3, 7, 8, 9) == {0: "hit Ada"}


@pytest.mark.parametrize("if_error_s", [0.0, 9.0])
def test_stalled_row_may_replace_an_error(if_error_s: float) -> None:
    """While the feed is stalled a fresh row counts as stale: only `stale_if_error` serves it."""
    scenario = Scenario(settings(revalidate_s=9.0, if_error_s=if_error_s))
    scenario.cache({7: "Ada"})
    scenario.land(scenario.query(1, 8))
    scenario.trust(is_trusted=False)
    batch = scenario.query(2, 7, 8)

    result = scenario.fail(batch)

    error = "error backend_unavailable"
    assert result.answers == {2: {0: "stale Ada" if if_error_s else error, 1: error}}


def test_failover_frees_changed_keys_early(scenario: Scenario) -> None:
    """After a switch of servers, ids of the lost history hold off their keys for 5 s only."""
    scenario.cache({7: "Ada"})
    scenario.change(7, by=900)  # the new server has used fewer ids
    scenario.server = ServerEpoch(1)
    assert scenario.state.on_server(ServerEpoch(1), scenario.now) == 0

    early = scenario.land(scenario.query(1, 7), {7: "Ada"}, snapshot=AFTER)
    scenario.now += 5.0
    late = scenario.land(scenario.query(2, 7), {7: "Ada"}, snapshot=AFTER)

    assert (early.answers, late.answers) == ({1: {0: "fetched Ada"}}, {2: {0: "fetched Ada"}})
    assert scenario.look_up(3, 7) == {0: "hit Ada"}


def test_former_epoch_is_not_cached(scenario: Scenario) -> None:
    """A switch drops all rows once; a row of a former server answers, and is not cached."""
    scenario.cache({7: "Ada", 8: "Bert"})
    batch = scenario.query(1, 9)

    epochs = map(ServerEpoch, (0, 2, 1, 2))
    switches = [scenario.state.on_server(each, scenario.now) for each in epochs]
    answers = [scenario.land(each, {9: "Cleo"}).answers for each in (batch, scenario.query(2, 9))]

    assert switches == [None, 2, None, None]
    assert answers == [{1: {0: "fetched Cleo"}}, {2: {0: "fetched Cleo"}}]
    assert scenario.statistics.cache.rows == 0
