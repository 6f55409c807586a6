"""Queries for lookups and snapshots, the keys that are sent with them, and the triggers' script."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import TableOrigin, VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest
from service.connectors.postgres.backend import index_remedy, uses_index
from service.connectors.postgres.queries import (
    CTID,
    blocks_query,
    bounded_page,
    bounded_reply,
    bounded_shares,
    bounds_query,
    columns_sql,
    key_columns,
    lookup_query,
    postgres_snapshot_query,
    scanning_query,
    stream_query,
    with_snapshot,
)
from service.connectors.postgres.rows import key_order
from service.connectors.postgres.table import RelationKind
from service.connectors.postgres.triggers import table_triggers, trigger_sql
from tests.service.connectors.postgres.described_tables import (
    PRICES,
    WEATHER,
    array_of,
    builtin,
    numeric,
    table_of,
)

WRAPPING = (blocks_query, bounded_reply, with_snapshot, partial(with_snapshot, is_block=True))
WHOLE_INDEX: dict[str, Any] = {"Node Type": "Index Scan", "Relation Name": "t"}
INDEX: dict[str, Any] = WHOLE_INDEX | {"Index Cond": "(id = k.key1)"}


HOSTILE = replace(
    PRICES,
    origin=TableOrigin('s"; DROP', 't"; DROP'),
    keys=tuple((f'{name}"; DROP', sending) for name, sending in PRICES.keys),
    columns=tuple((f'{name}"; DROP', reading) for name, reading in PRICES.columns),
    primary_key=('nr"; DROP',),
)


@pytest.mark.parametrize(
    "query",
    [
        *(make(replace(HOSTILE, has_several_rows=True)) for make in (lookup_query, scanning_query)),
        *(make(HOSTILE, lookup_query(HOSTILE)) for make in WRAPPING),
        index_remedy(HOSTILE),
        bounds_query(HOSTILE, key_columns(HOSTILE), percent=10.0),
        postgres_snapshot_query(HOSTILE, key_columns(HOSTILE), first=("1", "2"), end=("3", "4")),
        stream_query(HOSTILE, page_bytes=1),
        postgres_snapshot_query(HOSTILE, [CTID], first=None, end=("(7,0)",)),
        postgres_snapshot_query(HOSTILE, [CTID], first=("(7,0)",), end=None),
    ],
)
def test_queries_quote_all_names(query: str) -> None:
    """Names with quotes stay quoted in every query."""
    assert 'DROP"' in query
    assert '""; DROP"' in query
    assert re.search(r'[^"]"; DROP', query) is None


def test_only_values_of_any_length_are_measured() -> None:
    """Tables without values of any length are read as they are, unless a key has several rows."""
    short = table_of(builtin("int4"), builtin("uuid"), builtin("timestamptz"), numeric(9, 2))
    short = replace(short, primary_key=("id",))
    several = replace(short, has_several_rows=True)

    makers = (partial(bounded_page, first=0), bounded_reply, bounded_shares)
    assert [make(short, "q") for make in makers] == ["q"] * 3
    assert "octet_length" not in bounded_reply(several, "q")
    assert "octet_length(q.column2)" in bounded_reply(WEATHER, "q")


def test_values_of_views_are_computed_once() -> None:
    """Only stored values are measured before they are converted: others would be computed twice."""
    kinds = RelationKind.VIEW, RelationKind.QUERY, RelationKind.FOREIGN_TABLE
    views = [replace(WEATHER, kind=kind) for kind in kinds]

    texts = ['t."temp" AS column1, t."notes"::text AS column2'] * 3
    assert [columns_sql(each) for each in views] == texts
    arrays = columns_sql(table_of(array_of(builtin("int4"))))
    assert "THEN pg_catalog.textsend(pg_catalog.repeat(' '" in arrays


def test_versions_never_valid_are_left_out() -> None:
    """A version that begins or ended beyond the readable years is left out of each query."""
    history = replace(table_of(builtin("date"), builtin("text")), versions=VersionColumns("c0"))
    c0 = """CASE WHEN t."c0" BETWEEN date '0001-01-01' AND date '9999-12-31' THEN t."c0" END"""

    since = f"""({c0} IS NULL AND t."c0" > 'epoch') IS NOT TRUE"""
    until = f"""({c0} IS NULL AND t."c0" < 'epoch') IS NOT TRUE"""
    columns = [VersionColumns("c0"), VersionColumns("c0", "c0"), VersionColumns("c1", "c9"), None]
    assert [replace(history, versions=each).conditions for each in columns] == [
        *((since,), (since, until), (), ()),
    ]
    where = f't."id" = k.key1 AND {since}'
    assert f" WHERE {where} LIMIT" in lookup_query(history)
    assert f" ON {where} ORDER BY" in scanning_query(history)


@pytest.mark.parametrize(
    ("condition", "columns", "expected"),
    [
        ("(id = k.key1)", ["id", "region"], True),
        ("(id = k.key1)", ["region", "id"], False),
        ("(id = k.key1)", [], True),  # of a kind that is searched by any column
        ("((region = 'x'::text) AND (id = k.key1))", ["region", "id"], True),
        ("((region = 'x'::text) AND (id = k.key1))", ["region", "day", "id"], False),
        ("((region IS NULL) AND (id = k.key1))", ["region", "id"], True),
        ("((region > 'x'::text) AND (id = k.key1))", ["region", "id"], False),
        ("((id = 5) AND (id = k.key1))", ["id", "region"], True),
        ("((name)::text = k.key1)", ["name", "id"], True),
        ("((id + n) = k.key1)", ["((id + n))", "id"], True),
        ("(lower((name)::text) = k.key1)", ["f(name)"], True),  # the planner replaced f
        ("(b = k.key1)", ["region", "id"], True),  # of `t AS x (b)`
        ("((b = k.key1) AND (id = k.key2))", ["region", "id"], True),
        ("((name)::public.citext OPERATOR(public.=) k.key1)", ["name"], True),
        ("((ok = ANY ('{a,b}'::text[])) AND (id = k.key1))", ["ok", "id"], True),
    ],
)
def test_condition_starts_with_the_index(
    condition: str, columns: list[str], *, expected: bool
) -> None:
    """An index condition counts if it compares the first columns, up to one with a key."""
    plan = json.dumps([{"Plan": INDEX | {"Index Name": "i", "Index Cond": condition}}])

    own = (1, "i", columns, False)
    assert uses_index(plan, [own, (2, "j", ["id"], True)]) is expected
    assert uses_index(plan, [own, (1, "j", ["id", "a"], False)]) is expected
    assert uses_index(plan, [own, (1, "j", ["id", "a"], True)]) is (
        expected or "(id = k.key1)" in condition
    )


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        (pa.record_batch({"a": ["b", "a", "b", "B"], "b": [1, 2, 0, 3]}), [3, 1, 2, 0]),
        *(
            (pa.record_batch([values], ["id"]), [1, 0])
            for values in (
                pa.array([True, False]),
                pa.array([Decimal("2.00"), Decimal("1.00")]),
                pa.array([b"b" * 16, b"a" * 16], pa.binary(16)),
                pa.array([2, 1], pa.timestamp("us", "UTC")),
            )
        ),
    ],
)
def test_keys_are_sent_in_order(keys: pa.RecordBatch, order: list[int]) -> None:
    """Keys of each type are sorted by all of their columns, as in an index."""
    assert key_order(keys).tolist() == order


def made_names(script: str) -> list[str]:
    """The names of the function and the triggers that the script creates."""
    made = [line.split() for line in script.splitlines() if line.startswith("CREATE ")]
    return [words[4] if words[1] == "OR" else words[2] for words in made]


@pytest.mark.parametrize(
    ("table", "quoted_table"),
    [
        ("customers", '"customers"'),
        ("public.Customers", '"public"."customers"'),
        (' "Sales" . "Big ""One""" ', '"Sales"."Big ""One"""'),
        ("shop.public.customers", '"public"."customers"'),
        ('"a.b"', '"a.b"'),
        ("ÄRGER", '"Ärger"'),
    ],
)
def test_script_reads_names_as_sql(table: str, quoted_table: str) -> None:
    """Unquoted names are folded as PostgreSQL folds them, and all names are quoted."""
    script = trigger_sql(table, ["id"], channel="changes")

    assert script.count(f" ON {quoted_table}\n") == 4


def test_checked_triggers_match_the_script() -> None:
    """The check wants what the script creates, however the table is named."""
    first, *others = [
        table_triggers(each, ["id"], channel="c") for each in ("t", "public.T", '"t"')
    ]
    script = trigger_sql("public.t", ["id"], channel="c")

    events = ("insert", "update", "delete", "truncate")
    assert others == [first, first]
    assert (first.function, first.names) == ("c_94cf3072", {each: f"c_{each}" for each in events})
    assert f"$sidelook${first.body}$sidelook$" in script
    assert made_names(script) == ['"public"."c_94cf3072"()', *(f'"c_{each}"' for each in events)]
    assert '--   DROP FUNCTION "public"."c_94cf3072"() CASCADE;\n' in script


def test_function_names_are_unique() -> None:
    """Each table, key and channel has its own function name, of at most 63 bytes."""
    cases = [
        *(("customers", ["id"], "c"), ("other", ["id"], "c"), ("customers", ["id", "region"], "c")),
        *(("customers", ["region"], "c"), *(("t", ["id"], "c" * 61 + end) for end in ("ä", "ö"))),
    ]

    made = [made_names(trigger_sql(table, key, channel=channel)) for table, key, channel in cases]

    assert len({names[0] for names in made}) == len(cases)
    assert not set(made[-1]) & set(made[-2])
    assert all(len(name.strip('"()').encode()) <= 63 for names in made for name in names)


def test_script_quotes_all_names() -> None:
    """Names of columns and the channel end neither their quotes nor the function's body."""
    script = trigger_sql("t", ["Id", 'a"b', "$sidelook$"], channel=r"it's \ there")

    assert 'ELSE to_jsonb(new_rows."Id") END,' in script
    assert 'ELSE to_jsonb(new_rows."a""b") END' in script
    assert 'WHERE old_rows."Id" IS NOT NULL AND old_rows."a""b" IS NOT NULL' in script
    assert script.count(r"pg_notify(E'it''s \\ there', ") == 2
    assert script.count("$sidelook_$") == 2


@pytest.mark.parametrize("table", ["", "a.", ".a", "a..b", "a.b.c.d", 'a"b', '"a', "a b", "a; b"])
def test_malformed_names_are_refused(table: str) -> None:
    """A text that PostgreSQL would not read as a name is refused."""
    with pytest.raises(InvalidRequest) as refusal:
        trigger_sql(table, ["id"], channel="c")

    assert refusal.value.detail == f"{table}: is not the name of a table"


@pytest.mark.parametrize("name", ["line\nbreak", "n" * 64])
@pytest.mark.parametrize("place", ["table", "key", "channel"])
def test_unusable_names_are_refused(name: str, place: str) -> None:
    """A name that would break a comment, or be truncated, is refused."""
    names = {"table": "t", "key": "k", "channel": "c"} | {place: name}

    with pytest.raises(InvalidRequest) as refusal:
        trigger_sql(f'"{names["table"]}"', [names["key"]], channel=names["channel"])

    assert refusal.value.code is ErrorCode.BAD_REQUEST
    assert refusal.value.detail.startswith(f"{name!a} has more than 63 bytes, or characters")
