"""Which keys of a query are asked again, and who is answered all the same."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension.flight_table import LookupId, Waiters
from lookup_core.dimension.query_results import QueryResult
from lookup_core.dimension.retries import NEVER, MissingKeySelection

ADA, BERT = LookupId(1), LookupId(2)


def numbers(*values: int) -> npt.NDArray[np.int32]:
    """Positions or ordinals."""
    return np.array(values, np.int32)


# Key 0 has a row, key 1 has two, keys 2 and 3 have none.
LANDING = QueryResult.of_rows(
    4, numbers(0, 1, 1), rows=pa.record_batch({"name": ["a", "b", "c"]}), age_ms=0
)
WAITERS: Waiters = {
    ADA: (numbers(10, 11, 12, 13), numbers(0, 1, 2, 2)),
    BERT: (numbers(20, 21), numbers(2, 3)),
}


def plain(waiters: Waiters) -> dict[LookupId, tuple[list[int], list[int]]]:
    """Waiters as values."""
    return {each: (at.tolist(), keys.tolist()) for each, (at, keys) in waiters.items()}


def test_only_missing_keys_are_postponed() -> None:
    """Rows and ambiguous keys are answers; what has no row waits, if somebody waits for it."""
    postponed = MissingKeySelection.of_missing(LANDING, WAITERS, patient={ADA}, retry_at=2.0)

    assert postponed.is_postponed.tolist() == [False, False, True, False]
    assert not postponed.is_last_try


def test_patient_lookups_wait_on() -> None:
    """Who waits on is told what there is; who does not is told of the absences, too."""
    postponed = MissingKeySelection.of_missing(LANDING, WAITERS, patient={ADA}, retry_at=2.0)

    assert plain(postponed.answered_now(WAITERS)) == {
        ADA: ([10, 11], [0, 1]),
        BERT: ([20, 21], [2, 3]),
    }


def test_nobody_patient_postpones_nothing() -> None:
    """Where nobody would be there for another try, all is answered now."""
    postponed = MissingKeySelection.of_missing(LANDING, WAITERS, patient=set(), retry_at=NEVER)

    assert not postponed.is_postponed.any()
    assert postponed.is_last_try
    assert plain(postponed.answered_now(WAITERS)) == plain(WAITERS)
