"""A table with a column of each type of `docs/reference/types.md`, and its cells by psycopg."""

import base64
import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.types import datetime as loaders
from psycopg.types.json import set_json_loads
from pyarrow import types

from lookup_core.type_texts import parsed_type
from tools.processes.postgres_server import Database

UUID = "00112233-4455-6677-8899-aabbccddeeff"
LONG = "é" * 3_000


@dataclass(frozen=True, slots=True)
class Case:
    """A column: its type as in the documentation, and literals of its values."""

    name: str  # in the first column of the table in the documentation
    sql_type: str
    spark_type: str  # in the notation of `types:`; with it, the column is also read
    literals: Sequence[str]
    is_requested: bool = field(default=False, kw_only=True)
    is_key: bool = field(default=False, kw_only=True)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the column."""
        return parsed_type(self.spark_type)


_TEXTS = ("''", "'a''b\"{},\\'", f"'{LONG}'", "'é\U0001f600'")
CASES = (
    Case("smallint", "int2", "smallint", ("-32768", "32767"), is_key=True),
    Case("integer", "int4", "int", ("-2147483648", "2147483647"), is_key=True),
    Case("bigint", "int8", "bigint", (str(-(2**63)), str(2**63 - 1)), is_key=True),
    Case("real", "float4", "float", ("'NaN'", "'-Infinity'", "0.1", "3.4e38")),
    Case("double precision", "float8", "double", ("'NaN'", "'Infinity'", "0.1", "5e-324")),
    Case("boolean", "bool", "boolean", ("true", "false"), is_key=True),
    Case("text", "text", "string", _TEXTS, is_key=True),
    Case("varchar(n)", "varchar(9000)", "string", _TEXTS, is_key=True),
    Case("char(n)", "char(5)", "string", ("'abc'", "''", "'é'"), is_key=True),
    Case("citext", "citext", "string", ("'aB'", "'É'"), is_key=True),
    Case("bytea", "bytea", "binary", (r"'\x00ff'", "''"), is_key=True),
    Case(
        "date",
        "date",
        "date",
        ("'0001-01-01'", "'9999-12-31'", "'infinity'", "'10000-01-01'"),
        is_key=True,
    ),
    Case(
        *("timestamp", "timestamp", "timestamp_ntz"),
        ("'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'-infinity'", "'0044-03-15 BC'"),
        is_key=True,
    ),
    Case(
        *("timestamptz", "timestamptz", "timestamp"),
        ("'2013-01-01 05:00+05'", "'9999-12-31 23:59:59.999999Z'", "'infinity'", "'10000-01-01Z'"),
        is_key=True,
    ),
    Case(
        *("numeric(p,s)", "numeric(38,9)", "decimal(38,9)", ("'NaN'", "1.5", f"-{'9' * 29}.1")),
        is_key=True,
    ),
    Case("numeric", "numeric", "string", ("'NaN'", "1.50", "'Infinity'", "1e400")),
    Case(
        *("numeric", "numeric", "decimal(10,2)", ("'NaN'", "1.500", "-12345678.9")),
        is_requested=True,
    ),
    Case("numeric", "numeric(3,-2)", "string", ("1234",)),
    Case("numeric", "numeric(39,0)", "string", ("1",)),
    Case("uuid", "uuid", "string", (f"'{UUID.upper()}'",), is_key=True),
    Case("json", "json", "string", ("'{\"a\" : 1}'", "'null'")),
    Case("jsonb", "jsonb", "string", ('\'{"b":1,"a":[1.10]}\'', "'null'")),
    Case(
        *("jsonb", "jsonb", "struct<a int, b: array<string>, c struct<d decimal(9,2)>, e double>"),
        (
            '\'{"a":1,"b":["x",null],"c":{"d":1.10},"z":0}\'',
            *('\'{"c":{"d":"2.5"},"e":1}\'', "'null'", "'{}'"),
        ),
        is_requested=True,
    ),
    Case(
        *("json", "json", "array<struct<day date, at timestamp, bytes binary>>"),
        (
            '\'[{"day":"2024-02-29","at":"2024-01-01T00:00:00.000001+01:00","bytes":"/w=="},null]\'',
            "'[]'",
        ),
        is_requested=True,
    ),
    Case("enum", "mood", "string", ("'happy'", "'so so'"), is_key=True),
    Case("domain", "positive", "int", ("7",), is_key=True),
    Case("domain", "price", "decimal(8,2)", ("7.5",), is_key=True),
    Case("composite", "pair", "string", ("'(1,\"a,b\")'", "'(,)'")),
    Case(
        *("composite", "pair", "struct<b string, a int>", ("'(1,\"a,b\")'", "'(,)'")),
        is_requested=True,
    ),
    Case("interval", "interval", "string", ("'-1 day 1 s'", "'1 year 2 mons 04:05:06.789'")),
    Case("time", "time", "string", ("'05:00'", "'24:00'", "'23:59:59.999999'")),
    Case("timetz", "timetz", "string", ("'05:00+05:30'",)),
    Case("inet", "inet", "string", ("'10.0.0.1'", "'::1/64'")),
    Case("cidr", "cidr", "string", ("'10.0.0.0/8'",)),
    Case("macaddr", "macaddr", "string", ("'08:00:2b:01:02:03'",)),
    Case("macaddr8", "macaddr8", "string", ("'08:00:2b:01:02:03:04:05'",)),
    Case("bit(n)", "bit(4)", "string", ("B'0101'",)),
    Case("varbit(n)", "varbit(4)", "string", ("B'01'", "B''")),
    Case("money", "money", "string", ("-12.34", "1234567")),
    Case("tsvector", "tsvector", "string", ("'a:1 b'",)),
    Case("tsquery", "tsquery", "string", ("'a & b'",)),
    Case("range", "int4range", "string", ("'[1,5)'", "'empty'")),
    Case("range", "daterange", "string", ("'[2024-01-01,infinity)'",)),
    Case("multirange", "int4multirange", "string", ("'{[1,2),[5,9)}'",)),
    Case("geometric", "point", "string", ("'(1,0.1)'",)),
    Case("name", "name", "string", ("'abc'",)),
    Case("name", '"char"', "string", ("'a'",)),
    Case("pg_lsn", "pg_lsn", "string", ("'16/B374D848'",)),
    Case("T[]", "int4[]", "array<int>", ("'{1,NULL,3}'", "'{}'", "'[0:1]={1,2}'")),
    Case("T[]", "int2[]", "array<smallint>", ("'{-32768,NULL}'",)),
    Case("T[]", "int8[]", "array<bigint>", (f"'{{{2**63 - 1}}}'",)),
    Case("T[]", "float4[]", "array<float>", ("'{NaN,0.1,-Infinity}'",)),
    Case("T[]", "float8[]", "array<double>", ("'{NaN,0.1,NULL}'",)),
    Case("T[]", "bool[]", "array<boolean>", ("'{t,NULL,f}'",)),
    Case("T[]", "text[]", "array<string>", ('\'{a,NULL,"","b,é"}\'', f"ARRAY['{LONG}']")),
    Case("T[]", "varchar(3)[]", "array<string>", ("'{abc}'",)),
    Case("T[]", "char(3)[]", "array<string>", ("'{a,NULL}'",)),
    Case("T[]", "bytea[]", "array<binary>", (r"ARRAY['\x00ff'::bytea, '', NULL]",)),
    Case("T[]", "date[]", "array<date>", ("'{2024-02-29,infinity,NULL,0044-03-15 BC}'",)),
    Case("T[]", "timestamp[]", "array<timestamp_ntz>", ("'{2024-02-29 01:02:03.4,-infinity}'",)),
    Case("T[]", "timestamptz[]", "array<timestamp>", ("'{2024-02-29 01:02+05,infinity}'",)),
    Case("T[]", "numeric(9,2)[]", "array<decimal(9,2)>", ("'{1.5,NaN,NULL}'",)),
    Case("T[]", "numeric[]", "array<string>", ("'{1.50,NaN}'",)),
    Case("T[]", "numeric[]", "array<decimal(9,2)>", ("'{1.500,NaN}'",), is_requested=True),
    Case("T[]", "uuid[]", "array<string>", (f"'{{{UUID}}}'",)),
    Case("T[]", "mood[]", "array<string>", ("'{\"so so\",NULL}'",)),
    Case("T[]", "positive[]", "array<int>", ("'{7,8}'",)),
    Case("T[]", "jsonb[]", "array<string>", ("ARRAY['{\"a\":1}'::jsonb, NULL]",)),
    Case(
        *("T[]", "jsonb[]", "array<struct<a int>>", ("ARRAY['{\"a\":1}'::jsonb, 'null', NULL]",)),
        is_requested=True,
    ),
    Case("T[]", "pair[]", "array<string>", ("'{\"(1,x)\",NULL}'",)),
    Case("T[]", "pair[]", "array<struct<a int>>", ("'{\"(1,x)\",NULL}'",), is_requested=True),
    Case("T[]", "interval[]", "array<string>", ("'{1 day}'",)),
    Case("T[]", "int4[]", "array<string>", ("'{1,NULL}'",), is_requested=True),
    Case("T[]", "int4[]", "string", ("'{{1,2},{3,4}}'",), is_requested=True),
    Case("T[]", "tags", "array<string>", ("'{a,b}'",)),
)
# As the extension has it, but in SQL: the servers of tests lack its library.
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "=", "ge": ">=", "gt": ">"}
_FUNCTION = "LANGUAGE plpgsql IMMUTABLE STRICT AS"  # not SQL, which would be inlined
CITEXT = [
    "CREATE TYPE citext",
    *(
        f"""CREATE FUNCTION citext{way}({given}) RETURNS {result}
        LANGUAGE internal AS 'text{way}' IMMUTABLE STRICT"""
        for way, given, result in (("in", "cstring", "citext"), ("out", "citext", "cstring"))
    ),
    "CREATE TYPE citext (INPUT = citextin, OUTPUT = citextout, CATEGORY = 'S', COLLATABLE = true)",
    "CREATE CAST (citext AS text) WITHOUT FUNCTION AS IMPLICIT",
    "CREATE CAST (text AS citext) WITHOUT FUNCTION AS ASSIGNMENT",
    f"""CREATE FUNCTION citext_cmp(citext, citext) RETURNS int4 {_FUNCTION}
    'BEGIN RETURN bttextcmp(lower($1::text), lower($2::text)); END'""",
    *(
        f"""CREATE FUNCTION citext_{name}(citext, citext) RETURNS bool {_FUNCTION}
        'BEGIN RETURN lower($1::text) {sign} lower($2::text); END'"""
        for name, sign in _COMPARISONS.items()
    ),
    *(
        f"CREATE OPERATOR {sign} (LEFTARG = citext, RIGHTARG = citext, FUNCTION = citext_{name})"
        for name, sign in _COMPARISONS.items()
    ),
    """CREATE OPERATOR CLASS citext_ops DEFAULT FOR TYPE citext USING btree AS OPERATOR 1 <,
    OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 citext_cmp(citext, citext)""",
]
TYPES = (
    *CITEXT,
    "CREATE TYPE mood AS ENUM ('happy', 'so so', 'sad')",
    "CREATE DOMAIN positive AS int4 CHECK (VALUE > 0)",
    "CREATE DOMAIN amount AS numeric(8, 2)",
    "CREATE DOMAIN price AS amount CHECK (VALUE > 0)",
    "CREATE DOMAIN tags AS text[]",
    "CREATE TYPE pair AS (a int4, b text)",
)
NAMES = {f"c{at}": case for at, case in enumerate(CASES)}
SCHEMA = pa.schema([pa.field(name, case.arrow) for name, case in NAMES.items()])
REQUESTED = {name: case.arrow for name, case in NAMES.items() if case.is_requested}


def put_all_types(database: Database, *, rows: int) -> None:
    """Create `things`: the nth row has the nth literal of each column, or NULL."""
    columns = ", ".join(f"{name} {case.sql_type}" for name, case in NAMES.items())
    database.execute(*TYPES, f"CREATE TABLE things (id int4 PRIMARY KEY, {columns})")
    for row in range(max(len(case.literals) for case in CASES)):
        given = {
            name: case.literals[row] for name, case in NAMES.items() if row < len(case.literals)
        }
        values = ", ".join([str(row + 1), *given.values()])
        database.execute(f"INSERT INTO things (id, {', '.join(given)}) VALUES ({values})")
    database.execute(
        f"INSERT INTO things SELECT g FROM generate_series(1, {rows}) AS g ON CONFLICT DO NOTHING"
    )


def _or_none(loader: type[Any]) -> type[Any]:
    """The loader, with None for what Python's calendar lacks, as the documentation says."""

    class Loader(loader):  # type: ignore[misc]  # chosen at run time
        def load(self, data: Any) -> Any:  # noqa: ANN401  of psycopg
            try:
                return super().load(data)
            except psycopg.DataError:
                return None

    return Loader


def answers(database: Database) -> list[dict[str, Any]]:
    """The rows of `things` as psycopg reads them, in the order of their keys."""
    terms = ", ".join(f"{_term(name, case)} AS {name}" for name, case in NAMES.items())
    with psycopg.connect(database.dsn()) as connection:
        set_json_loads(partial(json.loads, parse_float=Decimal), connection)
        for sql_type, loader in {
            "date": loaders.DateLoader,
            "timestamp": loaders.TimestampLoader,
            "timestamptz": loaders.TimestamptzLoader,
        }.items():
            connection.adapters.register_loader(sql_type, _or_none(loader))
        connection.execute("SET timezone = 'UTC'")
        records = connection.execute(f"SELECT {terms} FROM things ORDER BY id".encode()).fetchall()
    return [
        {name: _plain(value, kind) for (name, kind), value in zip(_KINDS, record, strict=True)}
        for record in records
    ]


_KINDS = [(each.name, each.type) for each in SCHEMA]
_READ_AS_TEXT = {"text", "bpchar", "varchar(9000)", "char(5)"}


def _term(name: str, case: Case) -> str:
    if case.sql_type.startswith("pair") and "struct" in case.spark_type:
        return f"to_jsonb({name})"
    if types.is_string(case.arrow) and case.sql_type not in _READ_AS_TEXT:
        return f"{name}::text"
    if case.sql_type == "positive[]":  # of no type that psycopg knows
        return f"{name}::int4[]"
    is_text = case.spark_type == "array<string>" and not case.sql_type.startswith("char")
    return f"{name}::text[]" if is_text else name


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401  of psycopg
    """The value in the form of Arrow's `to_pylist`, with NaN as a text."""
    if value is None:
        return None
    if types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return {each.name: _plain(value.get(each.name), each.type) for each in fields}
    read = next((read for fits, read in _FORMS if fits(kind)), None)
    return value if read is None else read(value, kind)


def _decimal(value: Any, _: pa.DataType) -> Decimal | None:  # noqa: ANN401  as above
    number = Decimal(value)
    return None if number.is_nan() else number


def _moment(value: Any, _: pa.DataType) -> Any:  # noqa: ANN401  as above
    return dt.datetime.fromisoformat(value) if isinstance(value, str) else value


def _day(value: Any, _: pa.DataType) -> Any:  # noqa: ANN401  as above
    return dt.date.fromisoformat(value) if isinstance(value, str) else value


def _bytes(value: Any, _: pa.DataType) -> Any:  # noqa: ANN401  as above
    return base64.b64decode(value) if isinstance(value, str) else value


_FORMS = (
    (types.is_decimal, _decimal),
    (types.is_floating, lambda value, kind: repr(pa.scalar(float(value), kind).as_py())),
    (types.is_timestamp, _moment),
    (types.is_date32, _day),
    (types.is_binary, _bytes),
)


def differences(rows: pa.RecordBatch, expected: Sequence[dict[str, Any]]) -> list[Any]:
    """The column, row number, value and psycopg's answer of each cell that differs."""
    assert rows.num_rows == len(expected)
    return [
        (NAMES[name].sql_type, at, found, answer[name])
        for at, (row, answer) in enumerate(zip(rows.to_pylist(), expected, strict=True), 1)
        for name, kind in _KINDS
        if (found := _plain(row[name], kind)) != answer[name]
    ]
