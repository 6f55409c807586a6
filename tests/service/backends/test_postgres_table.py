"""What a table looks like, and the order of its rows."""

from dataclasses import replace

import pyarrow as pa
import pytest

from service.backends.postgres_table import quoted
from tests.service.backends.weather_table import WEATHER


def test_schema_has_keys_and_columns() -> None:
    """The schema shows the key in its order, and the columns in theirs."""
    assert WEATHER.schema.key.names == ["origin", "hour"]
    assert WEATHER.schema.columns == pa.schema({"temp": pa.float64(), "notes": pa.utf8()})


def test_rows_are_ordered_by_the_primary_key() -> None:
    """Rows have the order of the primary key; without one, the order in which they stand."""
    keyed = replace(WEATHER, primary_key=("nr", 'a"b'))

    assert keyed.order == ('t."nr"', 't."a""b"')
    assert WEATHER.order == ("t.ctid",)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("id", '"id"'), ('a"b', '"a""b"'), ("a.b", '"a.b"'), ("select", '"select"'), ("é", '"é"')],
)
def test_names_are_quoted_whole(name: str, expected: str) -> None:
    """Quotes, dots, reserved words and any character are part of the name."""
    assert quoted(name) == expected
