"""Tables as the catalog describes them: types, refused tables, and rows a changelog may report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.typed_keys import NO_NUL_FIELD, UUID_FIELD
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.column_types import (
    KeySending,
    PostgresType,
    column_reading,
    key_sending,
)
from service.connectors.postgres.errors import mapped_errors
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.table import PostgresTable
from tests.service.connectors.postgres.described_tables import builtin, numeric

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
MOOD = PostgresType("mood", is_builtin=False)
UTC = pa.timestamp("us", "UTC")
INTEGERS = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64()}
FLOATS = {"float4": pa.float32(), "float8": pa.float64()}
TIMES = {"date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": UTC}
AS_TEXT = [
    *map(builtin, ("uuid", "json", "jsonb", "interval", "time", "inet", "_int4", "name")),
    *(builtin("numeric"), numeric(39, 0), numeric(5, -2), MOOD),
    PostgresType("text", is_builtin=False),
]


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

    assert (await read(catalog, replace(SETTINGS, columns=("name",)))).reports_rows is expected


@pytest.mark.parametrize("primary_key", [[1, 2], [2], [1]])
async def test_key_may_exceed_primary_key(primary_key: list[int]) -> None:
    """A key that contains the primary key has one row; all of its columns must be exact."""
    settings = replace(SETTINGS, key=("name", "id"), columns=("id",))

    tables = [
        await read(CannedCatalog({"primary_key": primary_key}, [ID, NAME | more]), settings)
        for more in ({}, {"is_domain": True})
    ]

    assert [table.reports_rows for table in tables] == [True, False]


@pytest.mark.parametrize(
    ("kind", "arrow", "expression", "to_bytes"),
    [
        *((builtin(name), kind, "c", None) for name, kind in (INTEGERS | FLOATS).items()),
        (builtin("bool"), pa.bool_(), "c", None),
        *(
            (builtin(name), pa.utf8(), "c", "pg_catalog.textsend(c)")
            for name in ("text", "varchar")
        ),
        (builtin("bpchar"), pa.utf8(), "c", "pg_catalog.bpcharsend(c)"),
        (builtin("bytea"), pa.binary(), "c", "pg_catalog.byteasend(c)"),
        (
            *(numeric(38, 9), pa.decimal128(38, 9)),
            *("NULLIF(c, numeric 'NaN')", "pg_catalog.textsend(pg_catalog.numeric_out(c)::text)"),
        ),
        *((kind, pa.utf8(), "c::text", "pg_catalog.textsend(c)") for kind in AS_TEXT),
    ],
    ids=str,
)
def test_columns_have_arrow_types(
    kind: PostgresType, arrow: pa.DataType, expression: str, to_bytes: str | None
) -> None:
    """A type is read as its exact Arrow type, or as text."""
    reading = column_reading(kind)

    assert (reading.type, reading.expression("c")) == (arrow, expression)
    assert (reading.to_bytes and reading.to_bytes("c")) == to_bytes


@pytest.mark.parametrize("name", TIMES)
def test_times_outside_calendar_are_null(name: str) -> None:
    """Times outside the years 1 to 9999 are read as null."""
    reading = column_reading(builtin(name))

    assert (reading.type, reading.to_bytes) == (TIMES[name], None)
    assert reading.expression("c").startswith(f"CASE WHEN c BETWEEN {name} '0001-01-01")
    assert reading.expression("c").endswith(" THEN c END")


@pytest.mark.parametrize(
    ("kind", "arrow", "sql_type", "cast"),
    [
        *((builtin(name), kind, name, f"text::{name}") for name, kind in INTEGERS.items()),
        *((builtin(name), kind, name, f"text[]::{name}") for name, kind in TIMES.items()),
        *((builtin(name), pa.utf8(), "text", "text") for name in ("text", "varchar")),
        (builtin("bool"), pa.bool_(), "bool", "bool"),
        (builtin("bytea"), pa.binary(), "bytea", "bytea"),
        (builtin("uuid"), pa.binary(16), "uuid", "uuid"),
        (numeric(10, 2), pa.decimal128(10, 2), "numeric", "numeric"),
    ],
    ids=str,
)
def test_keys_have_the_columns_type(
    kind: PostgresType, arrow: pa.DataType, sql_type: str, cast: str
) -> None:
    """Keys are sent in the exact type of the column, which its index needs."""
    sending = key_sending("id", kind)

    metadata = UUID_FIELD if kind.name == "uuid" else NO_NUL_FIELD if arrow == pa.utf8() else None
    assert sending == KeySending(pa.field("id", arrow), sql_type)
    assert (sending.field.metadata, sending.array(2)) == (metadata, f"$2::{cast}[]")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        *((builtin(name), "no exact equality") for name in FLOATS),
        *((kind, "numeric(p,s)") for kind in (builtin("numeric"), numeric(39, 0))),
        (builtin("jsonb"), "jsonb cannot be a key"),
        (MOOD, "mood cannot be a key"),
        (replace(builtin("int4"), is_array=True), "int4[] cannot be a key"),
    ],
    ids=str,
)
def test_inexact_keys_are_refused(kind: PostgresType, reason: str) -> None:
    """A type without exact equality cannot be a key, and the reason says why."""
    refusal = key_sending("id", kind)

    assert isinstance(refusal, str)
    assert reason in refusal
