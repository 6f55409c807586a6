"""When the rows in a changelog are surely those of queries, by what the catalog says."""

from typing import Any

import pytest

from service.connectors.postgres.catalog import tells_rows

TABLE: dict[str, Any] = {
    "primary_key": [1],
    "has_immediate_key": True,
    "has_full_identity": False,
    "heir": None,
    "has_unchecked_columns": False,
    "has_exact_texts": True,
}
KEY: dict[str, Any] = {
    "number": 1,
    "type_name": "int8",
    "is_builtin": True,
    "modifier": -1,
    "has_exact_equality": True,
    "is_domain": False,
    "is_enum": False,
    "may_be_null": False,
    "has_default": False,
    "is_generated": False,
}
COLUMN = KEY | {"number": 2, "type_name": "text", "may_be_null": True}
OTHER = KEY | {"number": 3}
FULL_IDENTITY = {"has_full_identity": True}


def numeric(digits: int, scale: int) -> dict[str, Any]:
    """A column of numbers with so many digits, as the catalog packs them."""
    return COLUMN | {"type_name": "numeric", "modifier": (digits << 16 | scale & 0x7FF) + 4}


@pytest.mark.parametrize(
    "column",
    [
        *(COLUMN | {"type_name": name} for name in ("int2", "bool", "float4", "varchar", "uuid")),
        *(COLUMN | {"type_name": name} for name in ("date", "timestamp", "timestamptz", "float8")),
        COLUMN | {"type_name": "mood", "is_builtin": False, "is_enum": True},
        COLUMN | {"may_be_null": False, "has_default": True},
        numeric(37, 5),
    ],
    ids=lambda column: column["type_name"],
)
def test_exact_columns_are_told(column: dict[str, Any]) -> None:
    """Types of one exact form are told, in the key and beside it; so are defaults without NULL."""
    assert tells_rows(TABLE, key=[KEY], columns=[COLUMN, column])
    assert tells_rows(TABLE, key=[KEY, column], columns=[COLUMN])


@pytest.mark.parametrize(
    "column",
    [
        *(COLUMN | {"type_name": name} for name in ("json", "bpchar", "name", "interval", "_int4")),
        COLUMN | {"is_builtin": False},
        COLUMN | {"is_domain": True},
        COLUMN | {"is_enum": True, "is_domain": True},
        COLUMN | {"is_generated": True, "has_default": True, "may_be_null": False},
        COLUMN | {"has_default": True},
        COLUMN | {"type_name": "numeric"},
        numeric(39, 0),
        numeric(3, -2),
        numeric(2, 4),
    ],
    ids=str,
)
def test_inexact_columns_are_not_told(column: dict[str, Any]) -> None:
    """Other types, domains, generated columns, and defaults where NULL may be: one is enough."""
    for table in (TABLE, TABLE | FULL_IDENTITY):
        assert not tells_rows(table, key=[KEY], columns=[COLUMN, column])
        assert not tells_rows(table, key=[KEY, column], columns=[COLUMN])


@pytest.mark.parametrize("column", [COLUMN | {"type_name": "bytea"}, numeric(38, 1)])
def test_values_outside_rows_need_full_identity(column: dict[str, Any]) -> None:
    """What is NULL in events that do not send it again is told if all former values are."""
    assert not tells_rows(TABLE, key=[KEY], columns=[column])
    assert tells_rows(TABLE | FULL_IDENTITY, key=[KEY], columns=[column])


@pytest.mark.parametrize(
    "fact",
    [
        {"primary_key": []},
        {"primary_key": [3]},
        {"primary_key": [1, 3]},
        {"has_immediate_key": False},
        {"heir": "public.heirs"},
        {"has_unchecked_columns": True},
        {"has_exact_texts": False},
    ],
    ids=str,
)
def test_doubtful_tables_are_not_told(fact: dict[str, Any]) -> None:
    """Without a primary key within the key, or where texts or NULLs may be something else."""
    assert not tells_rows(TABLE | fact, key=[KEY], columns=[COLUMN])


def test_primary_key_may_be_a_part() -> None:
    """A key that holds the primary key has one row as well, in whatever order it stands."""
    assert tells_rows(TABLE | {"primary_key": [1, 3]}, key=[OTHER, KEY], columns=[COLUMN])
    assert tells_rows(TABLE | {"primary_key": [3]}, key=[KEY, OTHER], columns=[COLUMN])
