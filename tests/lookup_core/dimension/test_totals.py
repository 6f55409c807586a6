"""What a dimension counts."""

import numpy as np

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.dimension.totals import Totals
from lookup_core.statistics import InvalidationOrigin


def test_answers_are_counted_by_outcome() -> None:
    """Each key of each answer counts once, under how it ended."""
    totals = Totals()
    missing = rowless_answer(np.array([0, 1], np.int32), Outcome.MISSING)
    timeout = rowless_answer(np.array([2], np.int32), Outcome.TIMEOUT)

    totals.count_answers([missing, timeout, missing])
    totals.count_timed_out(5)

    zeros = dict.fromkeys(Outcome, 0)
    assert totals.outcomes == zeros | {Outcome.MISSING: 4, Outcome.TIMEOUT: 6}


def test_invalidations_are_counted_by_origin() -> None:
    """It is known who said that rows may have changed."""
    totals = Totals()

    totals.count_invalidations(InvalidationOrigin.ADMIN, 2)
    totals.count_invalidations(InvalidationOrigin.ADMIN, 1)

    zeros = dict.fromkeys(InvalidationOrigin, 0)
    assert totals.invalidations == zeros | {InvalidationOrigin.ADMIN: 3}


def test_hit_is_counted_if_it_is_one() -> None:
    """A row that was found alone counts as a hit; what was not found is counted by who finds it."""
    totals = Totals()

    assert [totals.counted(1.5), totals.counted(None)] == [1.5, None]
    assert totals.outcomes == dict.fromkeys(Outcome, 0) | {Outcome.HIT: 1}
