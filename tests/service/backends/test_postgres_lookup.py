"""The queries of a table with an index and of one without, and how the two are told apart."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lookup_core.dimension_schema import VersionColumns
from service.connectors.postgres.queries import (
    blocks_query,
    index_statement,
    lookup_query,
    scanning_query,
    telling_blocks_query,
    telling_query,
    uses_index,
)
from tests.service.backends.described_tables import builtin, table_of
from tests.service.backends.weather_table import WEATHER

TABLE = replace(WEATHER, primary_key=("nr", "part"))
KEYS = "unnest($1::text[], $2::text[]::timestamptz[]) WITH ORDINALITY AS k (key1, key2, ordinal)"
COLUMNS = 't."temp" AS column1, t."notes"::text AS column2'
MATCHES = 't."origin" = k.key1 AND t."hour" = k.key2'

SCAN: dict[str, Any] = {"Node Type": "Seq Scan", "Relation Name": "t"}
WHOLE_INDEX: dict[str, Any] = {"Node Type": "Index Scan", "Relation Name": "t"}
INDEX: dict[str, Any] = WHOLE_INDEX | {"Index Cond": "(id = k.key1)"}
BITMAP: dict[str, Any] = {
    "Node Type": "Bitmap Heap Scan",
    "Plans": [{"Node Type": "Bitmap Index Scan", "Index Cond": "(id = k.key1)"}],
}


def test_query_asks_the_index_per_key() -> None:
    """Typed arrays go in, the database matches, ordinals come out; the fence keeps the plan."""
    assert lookup_query(TABLE, is_ordered=False) == (
        f"SELECT k.ordinal, r.* FROM {KEYS}"
        f' CROSS JOIN LATERAL (SELECT {COLUMNS} FROM "public"."we ather" AS t'
        f" WHERE {MATCHES} OFFSET 0) AS r"
    )


def test_rows_of_a_key_are_ordered() -> None:
    """Where a key may have several rows, those come in the order of the table."""
    assert lookup_query(TABLE, is_ordered=True).endswith(
        f' WHERE {MATCHES} ORDER BY t."nr", t."part" OFFSET 0) AS r'
    )


def test_table_without_index_is_joined() -> None:
    """Without an index there is no fence: the server may read the table once for all keys."""
    query = f'SELECT k.ordinal, {COLUMNS} FROM {KEYS} JOIN "public"."we ather" AS t ON {MATCHES}'

    assert scanning_query(TABLE, is_ordered=False) == query
    assert scanning_query(TABLE, is_ordered=True) == query + ' ORDER BY k.ordinal, t."nr", t."part"'


def test_versions_at_no_time_are_not_found() -> None:
    """Whichever way the rows are looked for, they are asked to be of use, too."""
    history = replace(table_of(builtin("date")), versions=VersionColumns("c0"))
    asked = f't."id" = k.key1 AND {history.conditions[0]}'

    assert f" WHERE {asked} OFFSET 0" in lookup_query(history, is_ordered=False)
    assert scanning_query(history, is_ordered=False).endswith(f" ON {asked}")


def test_blocks_are_made_of_what_is_found() -> None:
    """Around either query; each column is one block, and the server makes the bytes of texts."""
    assert blocks_query(TABLE, "SELECT …") == (
        "SELECT array_send(array_agg(b.ordinal)), array_send(array_agg(b.column1)),"
        " array_send(array_agg(octet_length(b.column2)))"
        " || COALESCE(string_agg(b.column2, ''), '')"
        " FROM (SELECT q.ordinal, COALESCE(q.column1, NULL) AS column1,"
        " textsend(q.column2) AS column2 FROM (SELECT …) AS q OFFSET 0) AS b"
    )


def test_snapshot_comes_in_a_row_of_its_own() -> None:
    """Once, whatever the number of rows, and also if there are none; rows come as they came."""
    seen = (
        "pg_catalog.concat(pg_catalog.pg_is_in_recovery(), ' ', pg_catalog.pg_current_snapshot())"
    )

    assert telling_query(TABLE, "SELECT …") == (
        f"SELECT NULL, NULL, NULL, {seen} UNION ALL SELECT q.*, NULL FROM (SELECT …) AS q"
    )


def test_snapshot_stands_behind_the_blocks() -> None:
    """Blocks are a single row, which has room for it."""
    query = telling_blocks_query(TABLE, "SELECT …")

    assert query.startswith("SELECT b.*, pg_catalog.concat(pg_catalog.pg_is_in_recovery(), ' ', ")
    assert query.endswith(f" FROM ({blocks_query(TABLE, 'SELECT …')}) AS b")


def test_remedy_names_table_and_key() -> None:
    """What to run is ready to be copied, and locks nobody out."""
    assert index_statement(TABLE) == (
        'CREATE INDEX CONCURRENTLY ON "public"."we ather" ("origin", "hour")'
    )


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (INDEX, True),
        (BITMAP, True),
        (SCAN, False),
        (WHOLE_INDEX, False),
        ({"Node Type": "Append", "Plans": [INDEX, BITMAP]}, True),
        ({"Node Type": "Append", "Plans": [INDEX, SCAN]}, False),
    ],
)
def test_condition_on_an_index_counts(node: dict[str, Any], expected: bool) -> None:  # noqa: FBT001
    """An index read from end to end is no help, nor is one that a part of the table lacks."""
    plan = {"Node Type": "Nested Loop", "Plans": [{"Node Type": "Function Scan"}, node]}

    assert uses_index(json.dumps([{"Plan": plan}])) is expected
