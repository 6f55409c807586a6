"""Which columns make up the key."""

import pytest

from spark_client.join_keys import JoinKeys, join_keys


def test_all_forms_of_on_are_pairs() -> None:
    """A name, a list of names, or a mapping to the key's own names."""
    assert join_keys("id") == JoinKeys(("id",), ("id",))
    assert join_keys(["b", "a"]) == JoinKeys(("b", "a"), ("b", "a"))
    assert join_keys({"customer": "id", "shop": "store"}) == JoinKeys(
        ("customer", "shop"), ("id", "store")
    )


def test_on_must_name_columns_once() -> None:
    """No column, or one twice, is a mistake."""
    with pytest.raises(ValueError, match="at least one"):
        join_keys([])
    with pytest.raises(ValueError, match="twice: a, a"):
        join_keys(["a", "a"])
