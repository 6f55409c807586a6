"""What leads back to a row says in which numbering it does."""

from lookup_core.cache.row_store import Place


def test_places_of_two_eras_differ() -> None:
    """The same slot and address, in another numbering, are another place."""
    era, later = object(), object()

    assert Place(era, 1, 2) == Place(era, 1, 2)
    assert Place(era, 1, 2) != Place(later, 1, 2)
