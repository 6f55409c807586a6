"""The three ways to read splits."""

from lookup_core.sources.splits import ReadingMode


def test_modes_are_those_of_the_design() -> None:
    """One after the other, many in one reader, or a reader for each."""
    assert [str(mode) for mode in ReadingMode] == ["sequential", "multiplexed", "parallel"]
