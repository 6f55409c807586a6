"""When versions were replaced, as those who look up are judged by."""

import numpy as np

from tests.chaos.freshness_table import ABSENT, ReplacedVersions


def test_lag_is_counted_from_the_replacement() -> None:
    """A version that was replaced a while ago lags by that while, others do not."""
    replaced = ReplacedVersions()
    replaced.note([7, 100_000], 10.0)

    lags_s = replaced.lags_s(np.array([7, 8, 100_000, 10_000_000]), 12.5)

    assert lags_s.tolist() == [2.5, 0.0, 2.5, 0.0]


def test_replacement_after_the_question_is_no_lag() -> None:
    """What was asked before the replacement was not late; an absence never is."""
    replaced = ReplacedVersions()
    replaced.note([7], 10.0)

    assert replaced.lags_s(np.array([7, ABSENT]), 9.0).tolist() == [0.0, 0.0]
