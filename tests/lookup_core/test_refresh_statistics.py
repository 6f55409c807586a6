"""What is told of loads and feeds."""

from lookup_core.statistics import LoadResult, LoadStatistics, RefreshStatistics


def test_every_result_is_counted_from_the_start() -> None:
    """A rate over a series that appears late would miss its first step."""
    assert LoadStatistics().counts == {
        LoadResult.OK: 0,
        LoadResult.ERROR: 0,
        LoadResult.OUTDATED: 0,
    }


def test_nothing_is_told_of_what_there_is_not() -> None:
    """A dimension that is neither loaded nor followed has figures of neither."""
    assert RefreshStatistics() == RefreshStatistics(None, feed=None, load=None)
