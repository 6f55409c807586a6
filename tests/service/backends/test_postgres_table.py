"""What a table looks like, and the order of its rows."""

from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import VersionColumns
from service.connectors.postgres.table import quoted
from tests.service.backends.described_tables import builtin, table_of
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


def test_version_at_no_time_is_left_out() -> None:
    """One that begins, or has ended, beyond all times that can be read, where null says "always".

    Columns that are not there, or hold no times, are for others to refuse.
    """
    history = replace(table_of(builtin("date"), builtin("text")), versions=VersionColumns("c0"))
    c0 = """CASE WHEN t."c0" BETWEEN date '0001-01-01' AND date '9999-12-31' THEN t."c0" END"""

    since = f"""({c0} IS NULL AND t."c0" > 'epoch') IS NOT TRUE"""
    until = f"""({c0} IS NULL AND t."c0" < 'epoch') IS NOT TRUE"""
    assert history.conditions == (since,)
    assert replace(history, versions=VersionColumns("c0", "c0")).conditions == (since, until)
    assert replace(history, versions=VersionColumns("c1", "c9")).conditions == ()
    assert WEATHER.conditions == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("id", '"id"'), ('a"b', '"a""b"'), ("a.b", '"a.b"'), ("select", '"select"'), ("é", '"é"')],
)
def test_names_are_quoted_whole(name: str, expected: str) -> None:
    """Quotes, dots, reserved words and any character are part of the name."""
    assert quoted(name) == expected
