"""What an invalidation overtakes, and what a failure leaves to another try."""

from dataclasses import replace

import pytest

from lookup_core.errors import ErrorCode
from lookup_core.settings import BatchSettings, RetrySettings
from tests.lookup_core.dimension.dimension_script import (
    FAULTY,
    NOTHING,
    DimensionScript,
    Order,
    Seen,
    settings,
)

ONE_SLOT = settings(batch=BatchSettings(max_in_flight=1))
TWO_TRIES = settings(retry=RetrySettings(max_retries=1, initial_s=1.0))


@pytest.fixture
def script() -> DimensionScript:
    """A dimension without retries."""
    return DimensionScript()


# Invalidation


def test_overtaken_load_answers_but_is_not_kept(script: DimensionScript) -> None:
    """What is invalidated while it is read answers those who waited, and is not cached."""
    script.submit(1, 7)
    script.order()
    assert script.invalidate(7) == 0  # nothing was cached, but a read is under way

    assert script.land(1, {7: "old"}) == Seen({1: {0: "fetched old"}}, ended=[1])
    assert script.submit(2, 7) == {}


def test_newcomer_does_not_join_an_overtaken_load(script: DimensionScript) -> None:
    """Who asks after the invalidation gets an answer that was read after it."""
    script.submit(1, 7)
    script.order()
    script.invalidate(7)
    script.submit(2, 7)

    assert script.order() == Order(2, [7])
    assert script.land(1, {7: "old"}) == Seen({1: {0: "fetched old"}}, ended=[1])
    assert script.land(2, {7: "new"}) == Seen({2: {0: "fetched new"}}, ended=[2])
    assert script.submit(3, 7) == {0: "hit new"}


def test_late_overtaken_load_replaces_nothing(script: DimensionScript) -> None:
    """The older read comes last and does not overwrite the newer one."""
    script.submit(1, 7)
    script.order()
    script.invalidate(7)
    script.submit(2, 7)
    script.order()
    script.land(2, {7: "new"})

    script.land(1, {7: "old"})

    assert script.submit(3, 7) == {0: "hit new"}


def test_queued_key_outlives_an_invalidation() -> None:
    """A key that waits in the queue has read nothing yet, so it may still be joined and kept."""
    script = DimensionScript(ONE_SLOT)
    script.submit(1, 7)
    script.order()
    script.submit(2, 8)  # waits for the slot
    script.invalidate(8)
    script.submit(3, 8)
    script.land(1, {})

    assert script.order() == Order(2, [8])
    script.land(2, {8: "Bert"})
    assert script.submit(4, 8) == {0: "hit Bert"}


def test_invalidated_rows_are_asked_anew(script: DimensionScript) -> None:
    """Cached rows and absences go, each known key counts once; the others stay."""
    script.keep({7: "Ada", 8: "Bert"})
    script.submit(1, 9)
    script.order()
    script.land(2, {})

    assert script.invalidate(7, 9, 5, None, FAULTY, 7) == 2
    assert script.submit(2, 7, 8, 9) == {1: "hit Bert"}


def test_flush_forgets_all(script: DimensionScript) -> None:
    """Without keys everything goes, and nothing that is being read is kept."""
    script.keep({7: "Ada", 8: "Bert"})
    script.submit(1, 9)
    script.order()

    assert script.invalidate() == 2
    script.land(2, {9: "old"})
    assert script.submit(2, 7, 8, 9) == {}


# Retries


def test_failed_query_is_tried_again() -> None:
    """A failure that may pass keeps its waiters, and those who join meanwhile, for another try."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7)
    script.order()
    assert script.fail(1) == NOTHING
    script.submit(2, 7)  # joins the query that waits for its next try

    assert script.order() is None
    script.now = 1.0
    assert script.order() == Order(1, [7])
    assert script.land(1, {7: "Ada"}) == Seen(
        {1: {0: "fetched Ada"}, 2: {0: "fetched Ada"}}, ended=[1, 2]
    )


def test_last_failure_is_told() -> None:
    """When all tries are used, everybody who waits gets the error; it is never an absence."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7)
    script.order()
    script.fail(1)
    script.now = 1.0
    script.order()

    assert script.fail(1) == Seen({1: {0: "error backend_unavailable"}}, ended=[1])
    assert script.submit(2, 7) == {}
    assert script.order() == Order(2, [7])


def test_hopeless_failure_is_told_at_once() -> None:
    """What another try cannot mend is not tried again."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7, 8)
    script.order()

    assert script.fail(1, ErrorCode.FORBIDDEN) == Seen(
        {1: {0: "error forbidden", 1: "error forbidden"}}, ended=[1]
    )


def test_backend_timeout_is_a_timeout(script: DimensionScript) -> None:
    """A query that took too long gives the outcome `timeout`, and no absence."""
    script.submit(1, 7)
    script.order()

    assert script.fail(1, ErrorCode.TIMEOUT) == Seen({1: {0: "timeout timeout"}}, ended=[1])
    assert script.submit(2, 7) == {}


@pytest.mark.parametrize(("deadline", "is_tried"), [(1.0, False), (1.001, True)])
def test_retry_begins_before_the_deadline(deadline: float, is_tried: bool) -> None:  # noqa: FBT001  as above
    """There is no other try when nobody would be there for it."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7, deadline=deadline)
    script.submit(2, 7, deadline=0.1)
    script.order()

    assert (script.fail(1) == NOTHING) is is_tried


@pytest.mark.parametrize(("jitter", "delay_s"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_jitter_spreads_the_delay(jitter: float, delay_s: float) -> None:
    """The delay lies between its half and its whole."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7)
    script.order()
    script.fail(1, jitter=jitter)

    assert script.state.next_deadline() == delay_s


def test_parked_query_holds_no_slot() -> None:
    """While a query waits for its next try, others use the slot."""
    script = DimensionScript(replace(ONE_SLOT, retry=RetrySettings(max_retries=1, initial_s=1.0)))
    script.submit(1, 7)
    script.order()
    script.fail(1)
    script.submit(2, 8)

    assert script.order() == Order(2, [8])
    script.now = 1.0
    assert script.order() is None  # due, but the slot is taken
    script.land(2, {})
    assert script.order() == Order(1, [7])


def test_deserted_parked_query_is_dropped() -> None:
    """A query that nobody waits for is not tried again; there is nothing to cancel."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7)
    script.order()
    script.fail(1)

    assert script.leave(1) == NOTHING
    assert script.state.next_deadline() is None


def test_parked_query_expires_with_its_waiters() -> None:
    """A deadline that passes while the slots are busy ends the parked query, too."""
    script = DimensionScript(replace(ONE_SLOT, retry=RetrySettings(max_retries=1, initial_s=1.0)))
    script.submit(1, 7, deadline=1.5)
    script.order()
    script.fail(1)
    script.submit(2, 8)
    script.order()  # takes the slot
    script.now = 1.5

    assert script.expire() == Seen({1: {0: "timeout timeout"}}, ended=[1])
    script.land(2, {})
    assert script.order() is None


def test_overtaken_query_retries_for_its_own() -> None:
    """Invalidated between two tries, it still answers its callers, and nobody else."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7)
    script.order()
    script.fail(1)
    script.invalidate(7)
    script.submit(2, 7)
    assert script.order() == Order(2, [7])
    script.now = 1.0

    assert script.order() == Order(1, [7])
    assert script.land(1, {7: "Ada"}) == Seen({1: {0: "fetched Ada"}}, ended=[1])


# The end of a schema


def test_abandoned_lookups_are_all_told(script: DimensionScript) -> None:
    """When the schema is no longer true all who wait hear of it, and all queries end."""
    script.submit(1, 7)
    order = script.order()
    script.submit(2, 7, 8)  # joins the first, and waits in the queue
    assert order is not None

    seen = script.abandon(ErrorCode.SCHEMA_CHANGED)

    assert seen == Seen(
        {1: {0: "error schema_changed"}, 2: {0: "error schema_changed", 1: "error schema_changed"}},
        ended=[1, 2],
        cancelled=[order.batch],
    )
    assert script.order() is None
    assert script.land(order.batch, {7: "old"}) == NOTHING


def test_abandoned_rows_stand_in_for_nothing() -> None:
    """Rows that were kept for failures are of another table now."""
    script = DimensionScript(settings(stale_if_error_s=60.0))
    script.keep({7: "Ada"})
    script.now = 30.0
    script.submit(1, 7)

    assert script.abandon(ErrorCode.FORBIDDEN).answers == {1: {0: "error forbidden"}}


def test_abandoned_parked_query_is_gone() -> None:
    """What waited for another try is not asked again."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7)
    script.order()
    script.fail(1)

    assert script.abandon(ErrorCode.SCHEMA_CHANGED).cancelled == []
    script.now = 10.0
    assert script.order() is None
    assert script.submit(2, 7) == {}
