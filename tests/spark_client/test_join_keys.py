"""Which columns make up the key."""

import pytest

from lookup_core.keys.typed_keys import EXACT_NAMES
from spark_client.lookup_settings import JoinKeys, join_keys


def test_all_forms_of_on_are_pairs() -> None:
    """A name, a list of names, or a mapping to the key's own names."""
    assert join_keys("id") == JoinKeys(("id",), ("id",))
    assert join_keys(["b", "a"]) == JoinKeys(("b", "a"), ("b", "a"))
    assert join_keys({"customer": "id", "shop": "store"}) == JoinKeys(
        ("customer", "shop"), ("id", "store"), are_exact=True
    )


def test_names_that_were_given_are_sent_as_exact() -> None:
    """A mapping tells the service that a wrong name must not count by position."""
    assert join_keys({"customer": "id"}).metadata == EXACT_NAMES
    assert join_keys(["customer"]).metadata is None


def test_other_things_are_no_columns() -> None:
    """What is neither a name, a list nor a mapping is refused by what it is."""
    with pytest.raises(ValueError, match="not 5"):
        join_keys(5)  # type: ignore[arg-type]  # this is what is refused


def test_on_must_name_columns_once() -> None:
    """No column, or one twice, is a mistake."""
    with pytest.raises(ValueError, match="at least one"):
        join_keys([])
    with pytest.raises(ValueError, match="twice: a, a"):
        join_keys(["a", "a"])
