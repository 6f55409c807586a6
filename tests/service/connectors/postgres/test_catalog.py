"""Tables as the catalog describes them: types, refused tables, and rows a changelog may report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.errors import mapped_errors
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.table import PostgresTable
from tests.service.connectors.postgres.described_tables import numeric

_REJECTED = ErrorCode.BACKEND_REJECTED

SETTINGS = PostgresSettings("postgresql://", "customers", ("id",))
FOLLOWED = replace(SETTINGS, is_followed=True)
ENTRY: dict[str, Any] = {
    "oid": 1,
    "kind": "r",
    "schema_name": "public",
    "table_name": "customers",
    "has_row_security": False,
    "primary_key": [1],
    "has_immediate_key": True,
    "has_full_identity": False,
    "identity": ["id", "name"],
    "child": None,
    "parent": None,
    "has_unchecked_columns": False,
    "has_exact_texts": True,
    "database": "shop",
    "is_subscribed": False,
    "inexact_settings": [],
    "is_populated": True,
    "foreign_part": None,
}
COLUMN: dict[str, Any] = {
    "modifier": -1,
    "type_name": "text",
    "is_builtin": True,
    "type_schema": "pg_catalog",
    "has_exact_equality": True,
    "is_array": False,
    "attributes": None,
    "may_be_read": True,
    "is_domain": False,
    "is_enum": False,
    "may_be_null": True,
    "has_default": False,
    "is_generated": False,
    "is_virtual": False,
    "has_json_cast": False,
}
ID = COLUMN | {"number": 1, "name": "id", "type_name": "int8", "may_be_null": False}
NAME = COLUMN | {"number": 2, "name": "name"}
THIRD = COLUMN | {"number": 3, "name": "third"}
FORBIDDEN = {"may_be_read": False}


class CannedCatalog:
    """A catalog that answers from these rows."""

    def __init__(
        self,
        entry: Mapping[str, Any] | None = None,
        columns: Sequence[Mapping[str, Any]] = (ID, NAME),
        names: Sequence[str] | None = None,
    ) -> None:
        self._entry = [] if names is not None else [ENTRY | dict(entry or {})]
        self._columns = columns
        self._names = [{"name": name} for name in names or ()]

    async def __call__(self, query: str, arguments: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """The rows of a query of the catalog."""
        if "digest" in query:
            return [{"digest": "as of now"}]
        if "row_security_active" in query:
            return self._entry
        return self._columns if arguments else self._names


async def read(catalog: CannedCatalog, settings: PostgresSettings = SETTINGS) -> PostgresTable:
    """Read the table from the catalog."""
    return await read_table(catalog, settings)


@pytest.mark.parametrize(
    ("statement", "state", "code"),
    [
        *(("row_security_active", state, _REJECTED) for state in ("42883", "0A000")),
        *((each, "42501", ErrorCode.FORBIDDEN) for each in ("digest", "is_via_root")),
    ],
)
async def test_own_statements_name_their_cause(statement: str, state: str, code: ErrorCode) -> None:
    """A statement of the sidecar that fails is not explained as a fault of the table."""
    catalog, message = CannedCatalog(), "permission denied for table pg_policy"

    async def run(query: str, arguments: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        if statement not in query:
            return await catalog(query, arguments)
        with mapped_errors("t"):
            raise asyncpg.PostgresError.new({"C": state, "M": message})
        raise AssertionError("it raises")

    with pytest.raises(BackendError) as caught:
        await read_table(run, replace(FOLLOWED, needs_publication=True))

    detail = f"t: the server refused a query of its catalog: {message} ({state})"
    assert (caught.value.code, caught.value.detail) == (code, detail)


async def test_unreadable_column_is_forbidden() -> None:
    """A column without the privilege to read it is refused if it is used."""
    catalog = CannedCatalog({}, [ID, NAME | FORBIDDEN])
    with pytest.raises(BackendError) as caught:
        await read(catalog)

    assert (caught.value.code, caught.value.detail) == (
        ErrorCode.FORBIDDEN,
        "customers: the role of the DSN may not read name; grant it SELECT",
    )
    table = await read(catalog, replace(SETTINGS, columns=("id",)))
    assert table.schema.columns.names == ["id"]


@pytest.mark.parametrize(
    ("primary_key", "columns", "expected"),
    [
        ([], [ID, NAME], ()),
        ([2, 1], [ID, NAME], ("name", "id")),
        ([1, 3], [ID, NAME, THIRD | FORBIDDEN], ()),
    ],
)
async def test_primary_key_must_be_readable(
    primary_key: list[int], columns: list[dict[str, Any]], expected: tuple[str, ...]
) -> None:
    """Rows are ordered by the primary key if all of its columns are readable."""
    settings = replace(SETTINGS, columns=("name",))

    table = await read(CannedCatalog({"primary_key": primary_key}, columns), settings)

    assert table.primary_key == expected


def decimal(digits: int, scale: int) -> dict[str, Any]:
    """A numeric column with the modifier of the catalog."""
    return {"type_name": "numeric", "modifier": numeric(digits, scale).modifier}


EXACT = ("int2", "bool", "float4", "float8", "varchar", "uuid", "date", "timestamp", "timestamptz")
WHOLE_IDENTITY = {"has_full_identity": True}
WITH_DEFAULT = {"has_default": True}


@pytest.mark.parametrize(
    ("entry", "column", "expected"),
    [
        *(({}, {"type_name": name}, True) for name in EXACT),
        ({}, {"type_name": "mood", "is_builtin": False, "is_enum": True}, True),
        ({}, WITH_DEFAULT | {"may_be_null": False}, True),
        ({}, decimal(37, 5), True),
        *((WHOLE_IDENTITY, each, True) for each in ({"type_name": "bytea"}, decimal(38, 1))),
        *(({}, each, False) for each in ({"type_name": "bytea"}, decimal(38, 1))),
        *(
            (entry, column, False)
            for entry in ({}, WHOLE_IDENTITY)
            for column in (
                *({"type_name": name} for name in ("json", "bpchar", "name", "interval", "_int4")),
                {"is_builtin": False},
                {"is_domain": True},
                {"is_enum": True, "is_domain": True},
                {"is_generated": True, "has_default": True, "may_be_null": False},
                WITH_DEFAULT,
                {"type_name": "numeric"},
                *(decimal(39, 0), decimal(3, -2), decimal(2, 4)),
            )
        ),
        *(
            (entry, {}, False)
            for entry in (
                *({"primary_key": found} for found in ([], [3], [2], [1, 3])),
                {"has_immediate_key": False},
                {"child": "public.heirs"},
                {"has_unchecked_columns": True},
                {"has_exact_texts": False},
            )
        ),
    ],
    ids=str,
)
async def test_changelog_rows_must_be_exact(
    entry: dict[str, Any], column: dict[str, Any], *, expected: bool
) -> None:
    """Rows of a changelog are used only if they certainly equal queried rows."""
    catalog = CannedCatalog(entry, [ID, NAME | column, THIRD])

    assert (
        await read(catalog, replace(SETTINGS, columns=("name",)))
    ).origin.reports_rows is expected


@pytest.mark.parametrize("primary_key", [[1, 2], [2], [1]])
async def test_key_may_exceed_primary_key(primary_key: list[int]) -> None:
    """A key that contains the primary key has one row; all of its columns must be exact."""
    settings = replace(SETTINGS, key=("name", "id"), columns=("id",))

    tables = [
        await read(CannedCatalog({"primary_key": primary_key}, [ID, NAME | more]), settings)
        for more in ({}, {"is_domain": True})
    ]

    assert [table.origin.reports_rows for table in tables] == [True, False]
