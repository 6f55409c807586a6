"""The words for where a key's answer would come from."""

import numpy as np
import pyarrow as pa

from lookup_core.cache.row_cache import Probe
from lookup_core.dimension.explanation import (
    Explanation,
    KeyState,
    explain_asked,
    explain_unaskable,
)
from lookup_core.dimension.flight_table import BatchId, Flight, LookupId
from lookup_core.errors import ErrorCode
from lookup_core.keys.typed_keys import TypedKeys


def probe(*, is_row: bool = False, is_missing: bool = False) -> Probe:
    """What the cache knows of one key: read 1.5 s ago, good for 10 s."""
    return Probe(
        slots=np.zeros(1, np.int32),
        is_row=np.array([is_row]),
        is_missing=np.array([is_missing]),
        ages_s=np.array([1.5]),
        ttl_s=np.array([10.0]),
    )


def explained(
    probed: Probe, flight: Flight | None = None, *, retry_at: float | None = None
) -> Explanation:
    """The explanation of the one key."""
    (explanation,) = explain_asked(probed, [flight], retries=[retry_at], now=2.0)
    return explanation


def test_cached_row_tells_its_age() -> None:
    """A hit tells how old it is and how long it will live."""
    assert explained(probe(is_row=True)) == Explanation(
        KeyState.CACHED,
        "answered from the cache until it expires or is invalidated",
        age_ms=1500,
        expires_in_ms=8500,
    )


def test_cached_absence_is_told_apart() -> None:
    """That there is no row is known for a time, too."""
    assert explained(probe(is_missing=True)).state is KeyState.MISSING_CACHED


def test_cache_comes_before_flights() -> None:
    """A lookup of a cached key waits for nothing, even when somebody is fetching it."""
    flight = Flight(7, [(LookupId(1), 0)])

    assert explained(probe(is_row=True), flight).state is KeyState.CACHED


def test_flight_tells_where_it_is() -> None:
    """Queued or sent: a lookup would wait with those who wait already."""
    waiters = [(LookupId(1), 0), (LookupId(2), 0)]

    assert explained(probe(), Flight(7, waiters)) == Explanation(
        KeyState.IN_FLIGHT,
        "queued for the next query; a lookup would wait with the others",
        waiters=2,
    )
    assert explained(probe(), Flight(7, waiters, BatchId(1))) == Explanation(
        KeyState.IN_FLIGHT, "at the backend; a lookup would wait with the others", waiters=2
    )


def test_parked_key_tells_when_it_is_asked() -> None:
    """Between two tries of its query a key tells why it waits, and how long from now."""
    failed = Flight(7, [(LookupId(1), 0)], BatchId(1))
    missed = Flight(7, [(LookupId(1), 0)], BatchId(1), postponed_to=2.8)

    assert explained(probe(), failed, retry_at=2.5) == Explanation(
        KeyState.IN_FLIGHT,
        "parked until the next try, because the query failed; a lookup would wait with the others",
        waiters=1,
        retry_in_ms=500,
    )
    assert explained(probe(), missed, retry_at=2.75) == Explanation(
        KeyState.IN_FLIGHT,
        "parked until the next try, because no row was found; a lookup would wait with the others",
        waiters=1,
        retry_in_ms=750,
    )


def test_overdue_try_is_due_now() -> None:
    """A try that waits for a free slot is due, not in the past."""
    flight = Flight(7, [(LookupId(1), 0)], BatchId(1))

    assert explained(probe(), flight, retry_at=1.0).retry_in_ms == 0


def test_unknown_key_asks_the_backend() -> None:
    """What is neither cached nor on its way has to be fetched."""
    assert explained(probe()) == Explanation(
        KeyState.ABSENT, "not cached: a lookup asks the backend"
    )


def test_unaskable_key_tells_why() -> None:
    """A NULL and a faulty key never reach the backend, for different reasons."""
    columns = pa.record_batch({"id": pa.nulls(2, pa.int64())})
    keys = TypedKeys(columns, np.array([0], np.int32), {1: ErrorCode.TYPE})

    assert [explain_unaskable(keys, 0), explain_unaskable(keys, 1)] == [
        Explanation(KeyState.UNASKABLE, "a NULL part matches nothing"),
        Explanation(KeyState.UNASKABLE, "refused before any query: type"),
    ]
