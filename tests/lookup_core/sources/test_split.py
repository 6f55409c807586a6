"""Parts of a source."""

from dataclasses import dataclass

from lookup_core.sources.splits import Split


@dataclass(frozen=True, slots=True)
class Partition(Split):
    """Where a source keeps what it needs to know of a split."""

    number: int


def test_splits_may_know_their_place() -> None:
    """A source's own splits are splits, and differ in more than the id."""
    assert isinstance(Partition("a-1", 1), Split)
    assert len({Partition("a-1", 1), Partition("a-1", 1), Partition("a-2", 2)}) == 2
