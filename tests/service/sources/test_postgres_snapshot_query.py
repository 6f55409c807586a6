"""The texts of the queries that read a table in pages; what they find is shown by a real server."""

import pyarrow as pa

from service.connectors.postgres.snapshot_queries import (
    STORED_AT,
    RangeColumn,
    bounds_query,
    key_columns,
    postgres_snapshot_query,
    size_query,
    some_bound_query,
    with_keys,
)
from tests.service.backends.weather_table import WEATHER
from tests.service.sources.snapshot_tables import PRICES

BY_KEY = key_columns(PRICES)


def test_page_is_a_range_of_rows() -> None:
    """Bounds are compared as rows, in exact types; the parameters are texts."""
    query = postgres_snapshot_query(PRICES, BY_KEY, first=("1", "a"), end=("2", "b"))

    assert query.count('FROM "public"."pri ces" AS t') == 1
    assert (
        'WHERE t."item" IS NOT NULL AND t."limit" IS NOT NULL'
        ' AND (t."limit", t."item") >= ($1::text::numeric, $2::text::uuid)'
        ' AND (t."limit", t."item") < ($3::text::numeric, $4::text::uuid)' in query
    )


def test_page_without_end_has_no_bound() -> None:
    """The first and the last page have one bound, a table of one page has none."""
    first = postgres_snapshot_query(PRICES, [STORED_AT], first=None, end=("(7,0)",))
    last = postgres_snapshot_query(PRICES, [STORED_AT], first=("(7,0)",), end=None)
    only = postgres_snapshot_query(PRICES, [STORED_AT], first=None, end=None)

    assert "AND (t.ctid) < ($1::text::tid)" in first
    assert ">=" not in first
    assert "AND (t.ctid) >= ($1::text::tid)" in last
    assert "$2" not in last
    assert "$" not in only


def test_ranges_follow_the_primary_key() -> None:
    """If it has the key's columns in another order, they are compared in that one."""
    limit, item = RangeColumn('t."limit"', "numeric"), RangeColumn('t."item"', "uuid")
    origin, hour = RangeColumn('t."origin"', "text"), RangeColumn('t."hour"', "timestamptz")

    assert key_columns(PRICES) == (limit, item)
    assert key_columns(WEATHER) == (origin, hour)


def test_bounds_come_from_a_sample() -> None:
    """So many bounds that ranges have about as many rows each, by the rows of some blocks."""
    query = bounds_query(PRICES, BY_KEY, percent=10.0)

    assert query.startswith("SELECT s.value1::text, s.value2::text FROM")
    assert 'row_number() OVER (ORDER BY t."limit", t."item") * $1::int8' in query
    assert "TABLESAMPLE SYSTEM (10.0)" in query


def test_any_row_gives_a_bound() -> None:
    """To see how the server would read a range, a bound of some row will do."""
    assert some_bound_query(PRICES, BY_KEY) == (
        'SELECT t."limit"::text, t."item"::text FROM "public"."pri ces" AS t'
        ' WHERE t."item" IS NOT NULL AND t."limit" IS NOT NULL LIMIT 1'
    )


def test_size_is_asked_by_name() -> None:
    """The name is quoted as SQL reads it, within a literal."""
    assert """'"public"."pri ces"'::regclass""" in size_query(PRICES)


def test_keys_are_read_beside_the_columns() -> None:
    """They stand first, exactly: a uuid in its bytes, a decimal with its digits."""
    wide = with_keys(PRICES)

    assert wide.schema.columns == pa.schema(
        {"item": pa.binary(), "limit": pa.decimal128(5, 2), "price": pa.int32()}
    )
    assert wide.schema.key == PRICES.schema.key
