"""Databases that dimensions share."""

from typing import Any

import pytest

from service.connectors.postgres.settings import PostgresSettings
from service.doctor.backends.postgres_server import PostgresPlace, connections_of, postgres_places
from tests.service.config.configuration import table


def config(dsn: str = "postgresql://me@h/d", **more: Any) -> Any:  # noqa: ANN401
    """A dimension of a table."""
    return table(source={"kind": "postgres", "dsn": dsn, "table": "t"}, **more)


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://me:secret@h:5432/shop", "me@h:5432/shop"),
        ("postgresql://me@h,i:1/shop?sslmode=require", "me@h,i:1/shop"),
        ("postgresql://h/shop", "h/shop"),
        ("postgresql://h", "h"),
        ("postgresql://me:secret@/shop?host=/run", "the database of a"),
        ("postgresql://me:se/cret@h/shop", "the database of a"),
        ("postgresql://me:secret@h/shop?password=secret", "me@h/shop"),
    ],
)
def test_address_has_no_password(dsn: str, address: str) -> None:
    """User, host and database are shown; where they cannot be told for certain, nothing is."""
    place = PostgresPlace(PostgresSettings(dsn, "t", ("id",)), {"a": config()})

    assert place.address == address


@pytest.mark.parametrize(
    ("more", "connections"),
    [
        ({}, 8),
        ({"batch": {"max_in_flight": 3}}, 3),
        ({"refresh": {"listen": {}}}, 9),
        ({"cache": {"mode": "full"}}, 13),
    ],
)
def test_connections_are_counted(more: dict[str, Any], connections: int) -> None:
    """Those of queries, one that listens, and those that load a whole table."""
    assert connections_of(config(**more)) == connections


def test_dimensions_of_one_address_share_a_place() -> None:
    """Each address is one place; through a PgBouncer it is another one."""
    pooled = {"kind": "postgres", "dsn": "postgresql://me@h/d", "table": "t", "pgbouncer": True}
    dimensions = {
        "a": config(),
        "b": config("postgresql://me@i/d"),
        "c": config(refresh={"listen": {}}),
        "d": table(source=pooled),
    }

    places = postgres_places(dimensions)

    assert [tuple(place.dimensions) for place in places] == [("a", "c"), ("b",), ("d",)]
    assert [place.connections for place in places] == [17, 8, 8]
    assert [place.is_listened_to for place in places] == [True, False, False]
