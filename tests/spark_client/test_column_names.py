"""Names of columns as Spark resolves them."""

import pytest

from lookup_core.errors import InvalidRequest
from spark_client.lookup_join import ColumnNames


def test_case_matters_only_if_spark_says_so() -> None:
    """Positions are found by the rule of the session."""
    names = ColumnNames(["Id", "name"], is_case_sensitive=False)

    assert (names.position("id"), names.position("NAME")) == (0, 1)
    with pytest.raises(InvalidRequest, match="no column 'id'; they have Id, name"):
        ColumnNames(["Id", "name"], is_case_sensitive=True).position("id")


def test_same_names_are_refused() -> None:
    """Two columns that Spark cannot tell apart are named."""
    with pytest.raises(InvalidRequest, match="A, a; rename"):
        ColumnNames(["a", "b", "A"], is_case_sensitive=False)

    assert ColumnNames(["a", "A"], is_case_sensitive=True).position("A") == 1


def test_added_names_must_be_new() -> None:
    """A clash with what is there, or among the added, says how to get out of it."""
    names = ColumnNames(["id", "name"], is_case_sensitive=False)

    names.check_with(["tier"])
    with pytest.raises(InvalidRequest, match="Name, name; choose another prefix"):
        names.check_with(["Name"])
    with pytest.raises(InvalidRequest, match="same name: x; choose"):
        names.check_with(["x", "x"])
