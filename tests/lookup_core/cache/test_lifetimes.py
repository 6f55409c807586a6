"""How long entries are fresh, and how long they stay."""

import numpy as np
import pytest

from lookup_core.cache.entry_states import Lifetimes
from lookup_core.settings import CacheSettings

ROW = np.array([False])
BOTH = np.array([False, True])  # a row and an absence


def test_jitter_takes_its_share_of_the_ttl() -> None:
    """The least hash has the whole time to live, the greatest almost all of the jitter less."""
    hashes = np.array([0, 2**63, 2**64 - 1], np.uint64)
    lifetimes = Lifetimes(CacheSettings(ttl_s=100.0, ttl_jitter=0.5))

    ttl_s = lifetimes.ttl_s(hashes, np.zeros(3, np.bool_))

    assert ttl_s[:2].tolist() == [100.0, 75.0]
    assert 50.0 < ttl_s[2] < 50.001


def test_absences_have_jitter_of_their_own_ttl() -> None:
    """The same share is taken from the time to live of absences."""
    lifetimes = Lifetimes(CacheSettings(ttl_s=100.0, negative_ttl_s=4.0, ttl_jitter=0.5))

    ttl_s = lifetimes.ttl_s(np.full(2, 2**63, np.uint64), BOTH)

    assert ttl_s.tolist() == [75.0, 3.0]


def test_jitter_is_spread_evenly() -> None:
    """Over many keys, each tenth of the jitter has about a tenth of them."""
    hashes = np.random.default_rng(1).integers(0, 2**64, 100_000, np.uint64)
    lifetimes = Lifetimes(CacheSettings(ttl_s=1.0, ttl_jitter=0.1))

    ttl_s = lifetimes.ttl_s(hashes, np.zeros(len(hashes), np.bool_))

    counts, _ = np.histogram(ttl_s, bins=10, range=(0.9, 1.0))
    assert counts.sum() == len(hashes)
    assert 9_500 < counts.min() <= counts.max() < 10_500


@pytest.mark.parametrize(("revalidate_s", "error_s"), [(3.0, 5.0), (5.0, 3.0)])
def test_rows_stay_for_the_longer_window(revalidate_s: float, error_s: float) -> None:
    """A row is stale from its ttl on until the longer of both windows ends, then it is over."""
    lifetimes = Lifetimes(
        CacheSettings(ttl_s=10.0, stale_while_revalidate_s=revalidate_s, stale_if_error_s=error_s)
    )
    ages_s = np.array([9.5, 10.0, 14.5, 15.0])
    is_row, hashes = np.zeros(4, np.bool_), np.zeros(4, np.uint64)

    is_stale = lifetimes.is_stale(ages_s, lifetimes.ttl_s(hashes, is_row), is_row)

    assert is_stale.tolist() == [False, True, True, False]
    assert lifetimes.is_over(ages_s, hashes, is_row).tolist() == [False, False, False, True]


@pytest.mark.parametrize(("negative_ttl_s", "expected"), [(4.0, 15.0), (20.0, 20.0)])
def test_longest_life_is_told(negative_ttl_s: float, expected: float) -> None:
    """Nothing is of use for longer than rows with their stay, or than absences."""
    settings = CacheSettings(ttl_s=10.0, negative_ttl_s=negative_ttl_s, stale_if_error_s=5.0)

    assert Lifetimes(settings).longest_s == expected


def test_absences_are_never_stale() -> None:
    """An absence is over with its ttl: its row may have come since."""
    lifetimes = Lifetimes(CacheSettings(ttl_s=4.0, negative_ttl_s=4.0, stale_if_error_s=5.0))
    ages_s, hashes = np.full(2, 4.0), np.zeros(2, np.uint64)

    assert lifetimes.is_stale(ages_s, lifetimes.ttl_s(hashes, BOTH), BOTH).tolist() == [True, False]
    assert lifetimes.is_over(ages_s, hashes, BOTH).tolist() == [False, True]


def test_stay_begins_at_the_jittered_ttl() -> None:
    """What is fresh for less is also kept for less."""
    lifetimes = Lifetimes(CacheSettings(ttl_s=10.0, ttl_jitter=0.5, stale_if_error_s=2.0))
    hashes = np.array([2**63], np.uint64)  # fresh until 7.5 s

    assert lifetimes.is_over(np.array([9.25]), hashes, ROW).tolist() == [False]
    assert lifetimes.is_over(np.array([9.5]), hashes, ROW).tolist() == [True]


def test_one_row_lives_as_long() -> None:
    """A row alone has the time to live that it has among others."""
    hashes = np.array([0, 2**63, 2**64 - 1], np.uint64)
    lifetimes = Lifetimes(CacheSettings(ttl_s=100.0, ttl_jitter=0.5))

    ttl_s = [lifetimes.row_ttl_s(each) for each in hashes.tolist()]

    assert ttl_s == lifetimes.ttl_s(hashes, np.zeros(3, np.bool_)).tolist()
