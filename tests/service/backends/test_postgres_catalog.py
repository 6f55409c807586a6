"""What the catalog says decides whether a table can be looked up; no server is needed for that."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import TableOrigin
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.catalog import PostgresCatalog
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import PostgresTable

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
    "heir": None,
    "parent": None,
    "has_unchecked_columns": False,
    "has_exact_texts": True,
}
COLUMN: dict[str, Any] = {
    "modifier": -1,
    "type_name": "text",
    "is_builtin": True,
    "has_exact_equality": True,
    "may_be_read": True,
    "is_domain": False,
    "is_enum": False,
    "may_be_null": True,
    "has_default": False,
    "is_generated": False,
}
COLUMNS = [
    COLUMN | {"number": 1, "name": "id", "type_name": "int8"},
    COLUMN | {"number": 2, "name": "name"},
]


class CannedCatalog:
    """Answers the questions about table, columns and names in that order of recognition."""

    def __init__(
        self,
        entry: Mapping[str, Any] | None,
        columns: Sequence[Mapping[str, Any]] = (),
        names: Sequence[str] = (),
    ) -> None:
        self._entry = [] if entry is None else [entry]
        self._columns = columns
        self._names = [{"name": name} for name in names]

    async def __call__(self, query: str, arguments: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """The rows for a query of `postgres_catalog`."""
        if "row_security_active" in query:
            return self._entry
        return self._columns if arguments else self._names


async def read(catalog: CannedCatalog, settings: PostgresSettings = SETTINGS) -> PostgresTable:
    """The table as it is read from the catalog."""
    return await PostgresCatalog(catalog).read_table(settings)


async def fault_of(catalog: CannedCatalog, settings: PostgresSettings = SETTINGS) -> str:
    """The message of the error that reading raises."""
    with pytest.raises(BackendError) as caught:
        await read(catalog, settings)
    return str(caught.value)


async def test_columns_are_all_but_the_key() -> None:
    """Without a list, what is not in the key is offered."""
    table = await read(CannedCatalog(ENTRY, COLUMNS))

    assert table.schema.key == pa.schema({"id": pa.int64()})
    assert table.schema.columns == pa.schema({"name": pa.utf8()})


async def test_columns_come_as_listed() -> None:
    """With a list, it decides on columns and order; it may name the key."""
    table = await read(CannedCatalog(ENTRY, COLUMNS), replace(SETTINGS, columns=("name", "id")))

    assert table.schema.columns.names == ["name", "id"]


async def test_missing_table_names_the_nearest() -> None:
    """A misspelt table is reported with the one that was meant."""
    fault = await fault_of(CannedCatalog(None, names=["public.customer", "public.orders"]))

    expected = "table_unavailable: customers: no such table; did you mean public.customer?"
    assert fault == expected


async def test_overlong_name_is_not_shortened() -> None:
    """A name that PostgreSQL would cut off is not found, rather than found elsewhere."""
    settings = replace(SETTINGS, table="public." + "x" * 64)

    assert "no such table" in await fault_of(CannedCatalog(ENTRY, COLUMNS), settings)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("v", "is a view"), ("p", "partitioned"), ("f", "foreign"), ("i", "is not a table")],
)
async def test_other_relations_are_refused(kind: str, reason: str) -> None:
    """Only plain tables are looked up; the reason names what it is instead."""
    fault = await fault_of(CannedCatalog(ENTRY | {"kind": kind}, COLUMNS))

    assert fault.startswith("table_unavailable: customers: ")
    assert reason in fault


async def test_hidden_rows_are_refused() -> None:
    """A table whose rows a policy hides would answer `missing` for rows that exist."""
    fault = await fault_of(CannedCatalog(ENTRY | {"has_row_security": True}, COLUMNS))

    assert "row-level security" in fault


async def test_missing_column_names_the_nearest() -> None:
    """A misspelt key or column is reported with the one that was meant."""
    catalog = CannedCatalog(ENTRY, COLUMNS)

    in_key = await fault_of(catalog, replace(SETTINGS, key=("Id",)))
    in_columns = await fault_of(catalog, replace(SETTINGS, columns=("nam",)))

    assert in_key == "table_unavailable: customers: no column Id; did you mean id?"
    assert in_columns == "table_unavailable: customers: no column nam; did you mean name?"


async def test_unreadable_column_is_forbidden() -> None:
    """A column without the privilege to read it is named; others do not matter."""
    columns = [COLUMNS[0], COLUMNS[1] | {"may_be_read": False}]

    fault = await fault_of(CannedCatalog(ENTRY, columns))

    assert fault == "forbidden: customers: the role of the DSN may not read column name"
    table = await read(CannedCatalog(ENTRY, columns), replace(SETTINGS, columns=("id",)))
    assert table.schema.columns.names == ["id"]


async def test_inexact_key_is_refused() -> None:
    """A key type whose equality is not exact is refused with the reason."""
    columns = [COLUMNS[0] | {"type_name": "float8"}, COLUMNS[1]]

    fault = await fault_of(CannedCatalog(ENTRY, columns))

    assert "key column id: float8 cannot be a key" in fault


async def test_key_needs_no_index() -> None:
    """A table without a primary key is taken; its rows have the order in which they stand."""
    table = await read(CannedCatalog(ENTRY | {"primary_key": []}, COLUMNS))

    assert (table.primary_key, table.order) == ((), ("t.ctid",))


async def test_primary_key_orders_rows() -> None:
    """The columns of the primary key come in its order, whatever the dimension's key is."""
    settings = replace(SETTINGS, key=("name",))

    table = await read(CannedCatalog(ENTRY | {"primary_key": [2, 1]}, COLUMNS), settings)

    assert table.primary_key == ("name", "id")


async def test_unreadable_primary_key_orders_nothing() -> None:
    """A role that may not read a part of the primary key could not order by it."""
    columns = [COLUMNS[0], COLUMNS[1], COLUMN | {"number": 3, "name": "nr", "may_be_read": False}]
    settings = replace(SETTINGS, columns=("name",))

    table = await read(CannedCatalog(ENTRY | {"primary_key": [1, 3]}, columns), settings)

    assert table.primary_key == ()


async def test_origin_is_that_of_the_catalog() -> None:
    """Names, and what a changelog tells, are those of the table, whatever it was called."""
    entry = ENTRY | {"table_name": "Customers", "has_full_identity": True}
    settings = replace(SETTINGS, key=("name",))

    told = await read(CannedCatalog(entry, COLUMNS))
    untold = await read(CannedCatalog(entry, COLUMNS), settings)

    expected = TableOrigin(
        "public", "Customers", table_id=1, tells_rows=True, has_full_identity=True
    )
    assert told.schema.origin == expected
    assert untold.schema.origin == expected.without_rows()


async def test_key_alone_offers_no_column() -> None:
    """A table of nothing but the key needs its columns named."""
    assert "no column besides the key" in await fault_of(CannedCatalog(ENTRY, COLUMNS[:1]))


async def test_bad_name_is_an_unavailable_table() -> None:
    """A name that SQL cannot read is the configuration's fault, not a change of the table."""

    async def run(_query: str, _arguments: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        raise BackendError(ErrorCode.SCHEMA_CHANGED, "a.b.c.d")

    with pytest.raises(BackendError) as caught:
        await PostgresCatalog(run).read_table(SETTINGS)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE


@pytest.mark.parametrize(
    ("entry", "settings", "expected"),
    [
        ({"heir": "public.big"}, FOLLOWED, "public.big inherits from it, and its"),
        ({"heir": "public.big"}, SETTINGS, None),
        ({"parent": "public.all"}, FOLLOWED, None),
        (
            {"parent": "public.all"},
            replace(FOLLOWED, has_triggers=True),
            "it inherits from public.all, and statements on that do not run its triggers; end",
        ),
    ],
)
async def test_untold_changes_are_refused(
    entry: dict[str, Any], settings: PostgresSettings, expected: str | None
) -> None:
    """Rows would be kept, and change without a word; where nobody is to tell, they expire."""
    catalog = CannedCatalog(ENTRY | entry, COLUMNS)

    if expected is None:
        assert (await read(catalog, settings)).name == "customers"
    else:
        fault = await fault_of(catalog, settings)
        assert fault.startswith(f"table_unavailable: customers: {expected}")
