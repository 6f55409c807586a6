"""Types of PostgreSQL columns: keys with their own equality, and requested types of columns."""

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.type_texts import parsed_type
from service.connectors.postgres.column_types import (
    ColumnReading,
    PostgresType,
    requested_reading,
)
from tests.service.connectors.postgres.described_tables import builtin, numeric
from tests.service.connectors.postgres.test_catalog import ID, NAME, SETTINGS, CannedCatalog, read


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, None),
        ({"is_followed": True}, ErrorCode.TABLE_UNAVAILABLE),
        ({"is_whole": True}, ErrorCode.TABLE_UNAVAILABLE),
    ],
    ids=["partial", "followed", "full"],
)
async def test_equal_texts_age_only(changed: dict[str, Any], code: ErrorCode | None) -> None:
    """Keys with several spellings have a time to live, but no feed and no full mode."""
    email = ID | {"type_name": "citext", "is_builtin": False, "type_schema": "public"}
    catalog, settings = CannedCatalog(columns=(email, NAME)), replace(SETTINGS, **changed)

    if code is None:
        assert (await read(catalog, settings)).keys[0][1].sql_type == '"public"."citext"'
        return
    with pytest.raises(BackendError, match="with a short cache") as caught:
        await read(catalog, settings)
    assert caught.value.code is code


PAIR = PostgresType("pair", is_builtin=False, attributes={"a": {}, "b": {}})
NEST = replace(PAIR, attributes={"p": PAIR.attributes, "doc": None})


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (builtin("int4"), "int"),
        (builtin("int4"), "string"),
        (builtin("numeric"), "decimal(10,2)"),
        (replace(builtin("numeric"), is_array=True), "array<decimal(10,2)>"),
        (replace(builtin("date"), is_array=True), "array<string>"),
        (builtin("jsonb"), "struct<a int>"),
        (builtin("json"), "array<struct<a int>>"),
        (replace(builtin("jsonb"), is_array=True), "array<struct<a int>>"),
        (PAIR, "struct<b string>"),
        (replace(PAIR, is_array=True), "array<struct<a int>>"),
        (NEST, "struct<p struct<a int>, doc struct<any binary>>"),
        (NEST, "struct<p array<struct<b string>>>"),
    ],
    ids=str,
)
def test_columns_have_requested_types(kind: PostgresType, wanted: str) -> None:
    """A column is read as the requested type."""
    reading = requested_reading(kind, parsed_type(wanted))

    assert isinstance(reading, ColumnReading)
    assert reading.type == parsed_type(wanted)


@pytest.mark.parametrize(
    ("kind", "wanted", "forms"),
    [
        (builtin("int4"), "bigint", "int, string"),
        (builtin("numeric"), "double", "string, decimal(p,s)"),
        (numeric(10, 2), "int", "decimal(10,2), string, decimal(p,s)"),
        (builtin("jsonb"), "int", "string, struct<…>, array<…>"),
        (replace(builtin("jsonb"), is_array=True), "struct<a int>", "array<string>, string"),
        (replace(builtin("int4"), is_array=True), "array<bigint>", "array<int>, string, array<str"),
        (PAIR, "struct<c int>", "string, struct<…> of a, b (bytea as string)"),
        (PAIR, "struct<a binary>", "string, struct<…> of a, b (bytea as string)"),
        (PAIR, "struct<a struct<c int>>", "string, struct<…> of a, b"),
        (NEST, "struct<p struct<c int>>", "string, struct<…> of p (a, b), doc"),
        (NEST, "struct<p string>", "string, struct<…> of p (a, b), doc"),
    ],
    ids=str,
)
def test_other_requested_types_are_refused(kind: PostgresType, wanted: str, forms: str) -> None:
    """A type that the column cannot become exactly is refused with the possible ones."""
    reason = requested_reading(kind, parsed_type(wanted))

    assert isinstance(reason, str)
    assert reason.startswith(f"can be read as {forms}")


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ({"nam": "string"}, "types: no column nam among the columns (did you mean name?); correct"),
        (
            {"zzz": "string", "name": "int"},
            (
                "types: no column zzz among the columns (available: name), "
                "column name is not int (can be read as string); correct types"
            ),
        ),
    ],
)
async def test_wrong_types_are_refused(wanted: dict[str, str], fault: str) -> None:
    """Requested types must be of columns, and possible; all faults are stated."""
    types = {name: parsed_type(text) for name, text in wanted.items()}
    settings = replace(SETTINGS, types=types)

    with pytest.raises(BackendError, match=re.escape(fault)) as caught:
        await read(CannedCatalog(), settings)
    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE


async def test_requested_types_are_not_of_changelogs() -> None:
    """Rows of the changelog do not have requested types, so they are read by queries."""
    tables = [
        await read(CannedCatalog(), replace(SETTINGS, types=types))
        for types in ({}, {"name": pa.utf8()})
    ]

    assert [table.origin.reports_rows for table in tables] == [True, False]
