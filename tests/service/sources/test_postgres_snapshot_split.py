"""A range of rows in pages."""

from tests.service.sources.snapshot_tables import split_of


def test_pages_lie_between_bounds() -> None:
    """There is one page less than there are bounds, without end as they may be."""
    assert split_of([None, None]).page_count == 1
    assert split_of([None, ("a", "1"), ("b", "2"), None]).page_count == 3


def test_splits_differ_by_what_they_are() -> None:
    """Bookmarks that a reader leaves make no other split of it; each split has its own."""
    first, second = split_of([None, None]), split_of([None, None])
    first.page_at[10] = 1

    assert (first.id, first.bounds) == (second.id, second.bounds)
    assert second.page_at == {0: 0}
