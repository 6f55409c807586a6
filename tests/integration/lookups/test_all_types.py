"""All types of PostgreSQL: each cell equals psycopg's answer, on each path of values."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.type_texts import parsed_type
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.lookups import all_types
from tests.integration.lookups.tables import PATIENCE_S, described, loaded
from tools.processes.postgres_server import Database

ROWS = 1_500
PAGE = Path("docs/reference/types.md").read_text()


def things(database: Database, **changed: Any) -> PostgresSettings:  # noqa: ANN401  any setting
    """Settings of the table `things`."""
    return replace(PostgresSettings(database.dsn(), "things", ("id",)), **changed)


async def loaded_table(settings: PostgresSettings, schema: DimensionSchema) -> pa.Table:
    """The keys and rows of a load, in the order of the keys, with the mark `has_row`."""
    tables = [
        pa.table([*each.keys.columns, pa.array(each.has_row), *each.rows.columns],
                 [*schema.key.names, "has_row", *schema.columns.names])
        for each in await loaded(settings, schema)
    ]  # fmt: skip
    return pa.concat_tables(tables).sort_by(schema.key.names[0])


async def test_each_cell_is_psycopgs_answer(database: Database) -> None:
    """A cell has the same value by records, by blocks and by a load; NULL stays null."""
    all_types.put_all_types(database, rows=ROWS)
    settings = things(database, types=all_types.REQUESTED)
    keys = pa.record_batch({"id": pa.array(range(1, ROWS + 1), pa.int32())})

    async with PostgresBackend(settings) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        small = await backend.fetch(keys.slice(0, 999), timeout_s=PATIENCE_S)
        large = await backend.fetch(keys, timeout_s=PATIENCE_S)
    whole = await loaded_table(settings, schema)

    expected = all_types.answers(database)
    assert schema.columns == all_types.SCHEMA
    late = {*large.deferred.tolist()}  # the rows of many kilobytes, and of long arrays
    assert len(late) < ROWS / 10
    assert large.ordinals.tolist() == [at for at in range(ROWS) if at not in late]
    read = [*whole.select(schema.columns.names).combine_chunks().to_batches()]
    assert all_types.differences(small.rows, expected[:999]) == []
    others = [row for at, row in enumerate(expected) if at not in late]
    assert all_types.differences(large.rows, others) == []
    assert all_types.differences(read[0], expected) == []


async def test_page_lists_all_types(database: Database) -> None:
    """The documentation lists the tested types, their Spark types, and which of them are keys."""
    all_types.put_all_types(database, rows=0)
    rows = re.findall(r"^\| (`.+?) \| (.+?) \| `?(yes|ttl|no)`? \|$", PAGE, re.MULTILINE)

    listed = [
        (name, spark.strip("`"), key)
        for names, spark, key in rows
        for name in re.findall("`(.+?)`", names)
    ]
    page = {name: key for name, _, key in listed}
    usual = {case.name: case.spark_type for case in all_types.CASES if not case.is_requested}
    assert {name: usual[name] for name in page} == {name: spark for name, spark, _ in listed} | {
        name: usual[name] for name in ("numeric(p,s)", "domain", "T[]")
    }
    assert sorted(name for name, _, _ in listed) == sorted({case.name for case in all_types.CASES})
    for name, case in all_types.NAMES.items():
        settings = things(database, key=(name,), columns=("id",))
        async with PostgresBackend(settings) as backend:
            if page[case.name] == "no":
                with pytest.raises(BackendError, match="cannot be a key"):
                    await backend.describe(timeout_s=PATIENCE_S)
            else:
                await backend.describe(timeout_s=PATIENCE_S)
        assert case.is_key is (page[case.name] != "no")


NUMBERS = (
    *("1e400", "-1e400", "1e-400", "1e20", "9007199254740994", "9007199254740993", "1.5e300"),
    *("0.1", "16777217", "7.038531e-26", "1e-50", "3e-324", "1e2", "100.0", "-0.5"),
)


@pytest.mark.parametrize("sql_type", ["json", "jsonb"])
@pytest.mark.parametrize(("wanted", "cast"), [("double", "float8"), ("float", "float4")])
async def test_document_numbers_are_casts(
    database: Database, sql_type: str, wanted: str, cast: str
) -> None:
    """A number of a document is PostgreSQL's cast of it; one that the cast refuses does not fit."""
    expected: list[float | None] = []
    database.execute(f"CREATE TABLE things (id int4 PRIMARY KEY, c {sql_type})")
    for id_, number in enumerate(NUMBERS, 1):
        database.execute(f"INSERT INTO things VALUES ({id_}, '{{\"x\": {number}}}')")
        try:
            expected += [database.query(f"SELECT '{number}'::{cast}::float8")[0][0]]
        except psycopg.errors.NumericValueOutOfRange:
            expected.append(None)
    settings = things(database, types={"c": parsed_type(f"struct<x {wanted}>")})
    keys = pa.record_batch({"id": pa.array(range(1, len(NUMBERS) + 1), pa.int32())})

    async with PostgresBackend(settings) as backend:
        await backend.describe(timeout_s=PATIENCE_S)
        found = await backend.fetch(keys, timeout_s=PATIENCE_S)

    rows = dict(zip(found.ordinals.tolist(), found.rows["c"].to_pylist(), strict=True))
    assert [at in rows for at in range(len(NUMBERS))] == [each is not None for each in expected]
    assert [rows[at]["x"] for at in sorted(rows)] == [each for each in expected if each is not None]


@pytest.mark.parametrize(
    ("sql_type", "literals", "wanted"),
    [
        ("int4[]", ("'{{1}}'", "'{1}'"), None),
        ("numeric", ("1.005", "1.5"), "decimal(9,2)"),
        ("numeric", ("10000000", "1.5"), "decimal(9,2)"),
        ("numeric", ("'Infinity'", "1.5"), "decimal(9,2)"),
        ("numeric", ("1e-5000", "0.5"), "decimal(38,38)"),
        ("jsonb", ('\'{"a":"1"}\'', "'{\"a\":1}'"), "struct<a int>"),
        ("jsonb", ("'[]'", "'{}'"), "struct<a int>"),
        ("jsonb[]", ("ARRAY['{\"a\":1.5}'::jsonb]", "NULL"), "array<struct<a int>>"),
    ],
)
async def test_unfit_value_fails_its_key(
    database: Database, sql_type: str, literals: Sequence[str], wanted: str | None
) -> None:
    """A value that its type cannot hold fails its key, with the remedy; a load leaves a hole."""
    database.execute(f"CREATE TABLE things (id int4 PRIMARY KEY, c {sql_type})")
    for id_, literal in enumerate(literals, 1):
        database.execute(f"INSERT INTO things VALUES ({id_}, {literal})")
    types = {} if wanted is None else {"c": parsed_type(wanted)}
    settings, key = (
        things(database, types=types),
        pa.record_batch({"id": pa.array([1, 2], pa.int32())}),
    )

    async with PostgresBackend(settings) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        found = await backend.fetch(key, timeout_s=PATIENCE_S)

    assert (found.ordinals.tolist(), found.rows.num_rows) == ([1], 1)
    (unfit,) = found.unfit
    assert unfit.ordinals.tolist() == [0]
    assert re.search(r"column c: .* does not fit .*c: string", unfit.detail)
    assert (await loaded_table(settings, schema))["has_row"].to_pylist() == [False, True]


# (type, stored values, {key: the position of its row, from 1; 0: missing})
KEYS: list[tuple[str, Sequence[str], dict[object, int]]] = [
    ("uuid", (all_types.UUID,), {all_types.UUID.upper(): 1}),
    ("numeric(10, 2)", ("1.5",), {"1.50": 1}),
    ("positive", ("7",), {7: 1}),
    ("price", ("7.5",), {"7.5": 1}),
    ("varchar(3)", ("abc",), {"abc": 1}),
    ('text COLLATE "C"', ("abc",), {"abc": 1}),
    ("date", ("2013-01-01",), {"2013-01-01": 1}),
    ("timestamptz", ("2013-01-01 05:00+05",), {"2013-01-01T00:00:00Z": 1}),
    ("timestamp", ("2013-01-01 05:00",), {"2013-01-01T05:00:00": 1}),
    ("mood", ("happy", "so so"), {"happy": 1, "so so": 2, "sad": 0, "Happy": 0, "": 0, "it's": 0}),
    ("gloomy", ("sad",), {"sad": 1, "happy": 0, "none": 0}),
    (
        "char(3)",
        ("a", " b", ""),
        {"a": 1, "a  ": 1, "a     ": 1, " b": 2, "b": 0, "": 3, "abcd": 0},
    ),
    ("short", ("a",), {"a": 1, "a ": 1, "aaaa": 0}),
    ("citext", ("aB", "é"), {"aB": 1, "Ab": 1, "AB": 1, "É": 2, "e": 0, "": 0}),
    ("email", ("a@B",), {"A@b": 1, "no address": 0}),
    ("even", ("2",), {"2": 1}),
]
KEY_TYPES = (
    *all_types.TYPES,
    "CREATE DOMAIN gloomy AS mood CHECK (VALUE = 'sad')",
    "CREATE DOMAIN short AS char(3) CHECK (VALUE <> 'zzz')",
    "CREATE DOMAIN email AS citext CHECK (VALUE::text LIKE '%@%')",
    "CREATE DOMAIN even AS text CHECK (VALUE::int % 2 = 0)",
)


@pytest.mark.parametrize(("sql_type", "stored", "expected"), KEYS, ids=[each[0] for each in KEYS])
async def test_keys_have_the_databases_equality(
    database: Database, sql_type: str, stored: Sequence[str], expected: dict[object, int]
) -> None:
    """Keys match as in SQL, by their index; a text that is no value of the type is missing."""
    database.execute(*KEY_TYPES, f"CREATE TABLE things (id {sql_type} PRIMARY KEY, at int4)")
    database.insert("things", [(value, at) for at, value in enumerate(stored, 1)])

    async with described(things(database, require_index=True)) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        keys = typed_keys_from_json([*expected], schema).columns
        found = await backend.fetch(keys, timeout_s=PATIENCE_S)

    rows = dict(zip(found.ordinals.tolist(), found.rows["at"].to_pylist(), strict=True))
    assert [rows.get(at, 0) for at in range(len(expected))] == [*expected.values()]
    assert backend.uses_index


async def test_composite_keys_mix_types(database: Database) -> None:
    """An enum, a char(n) and a number are one key, in a lookup and in a load."""
    database.execute(
        *KEY_TYPES,
        "CREATE TABLE things (m mood, c char(4), n positive, at int4, PRIMARY KEY (m, c, n))",
        "INSERT INTO things VALUES ('sad', 'x', 1, 1), ('happy', 'y', 2, 2)",
    )
    settings = things(database, key=("m", "c", "n"), is_whole=True)

    async with described(settings) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        keys = typed_keys_from_json([["sad", "x ", 1], ["glad", "x", 1], ["happy", "y", 2]], schema)
        found = await backend.fetch(keys.columns, timeout_s=PATIENCE_S)
    whole = await loaded_table(settings, schema)

    assert found.ordinals.tolist() == [0, 2]
    assert whole.select(["m", "c", "n", "at"]).to_pylist() == [
        {"m": "happy", "c": "y", "n": 2, "at": 2},
        {"m": "sad", "c": "x", "n": 1, "at": 1},
    ]


async def test_large_enum_table_loads_in_ranges(database: Database) -> None:
    """A load of a table with a key of char(n) and enum is divided by their index."""
    database.execute(
        *KEY_TYPES,
        "CREATE TABLE things (m mood, c char(40), t text, PRIMARY KEY (m, c))",
        "INSERT INTO things SELECT 'so so', md5(g::text), repeat('x', 90)"
        " FROM generate_series(1, 30000) AS g",
        "ANALYZE things",
    )
    settings = things(database, key=("m", "c"))

    async with described(settings) as backend:
        whole = await loaded_table(settings, await backend.describe(timeout_s=PATIENCE_S))

    assert whole.num_rows == len(np.unique(whole["c"].to_numpy())) == 30_000
    assert {len(text) for text in whole["c"].to_pylist()} == {32}
