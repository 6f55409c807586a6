"""The dimensions fit the files that they are made of."""

import pytest

from demo.dimension import DIMENSIONS, WEATHER, Dimension
from demo.flights import data_package


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda dimension: dimension.name)
def test_columns_are_those_of_the_file(dimension: Dimension) -> None:
    """A table has the columns of its file, in its order, and lookups ask for some of them."""
    header = (data_package() / f"{dimension.name}.csv").read_text().splitlines()[0]

    assert list(dimension.types) == header.split(",")
    assert {*dimension.key, *dimension.columns} <= set(dimension.types)


def test_weather_has_a_composite_key() -> None:
    """The weather is looked up by place and hour."""
    assert WEATHER.key == ("origin", "time_hour")


def test_added_columns_never_clash() -> None:
    """No two dimensions add a column of the same name."""
    added = [
        name
        for dimension in DIMENSIONS
        for name in (
            *(f"{dimension.prefix}{column}" for column in dimension.columns),
            dimension.status_column,
        )
    ]

    assert len(added) == len(set(added))
