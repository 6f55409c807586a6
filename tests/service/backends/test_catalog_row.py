"""Types out of rows of the catalog."""

from service.connectors.postgres.catalog import postgres_type
from service.connectors.postgres.table import PostgresType


def test_type_is_that_of_its_row() -> None:
    """All that says how a column is read is in its row; the rest is not looked at."""
    row = {
        "name": "a",
        "type_name": "numeric",
        "is_builtin": True,
        "modifier": 655366,
        "has_exact_equality": False,
    }

    expected = PostgresType("numeric", is_builtin=True, modifier=655366, has_exact_equality=False)
    assert postgres_type(row) == expected
