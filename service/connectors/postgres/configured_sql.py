"""SQL of the configuration: a query instead of a table, and a filter of rows."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.errors import own_statements, statement_fault
from service.connectors.postgres.session_settings import (
    LOST,
    REPLACED_CATALOG,
    UNFIXED,
    settings_of,
)
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import PostgresTable, quoted


class CatalogRow(Protocol):
    """Columns of a row by name, or by position."""

    def __getitem__(self, name: Any, /) -> Any:  # noqa: ANN401  as the database returns it
        """The value of the column."""

    def keys(self) -> Iterable[str]:
        """The names of the columns."""


RunQuery: TypeAlias = Callable[[str, Sequence[Any]], Awaitable[Sequence[CatalogRow]]]

WITHOUT_FEED = (
    "remove refresh.listen and refresh.changelog; cache.ttl bounds the age of rows, or "
    "refresh.reload with cache.mode: full"
)

_TYPE_AND_COLLATION = """
pg_catalog.pg_typeof({0})::oid,
CASE WHEN (SELECT k.typcollation FROM pg_catalog.pg_type k WHERE k.oid = pg_catalog.pg_typeof({0}))
     <> 0 THEN pg_catalog.pg_collation_for({0})::regcollation::oid END
"""
_CHANGING_FUNCTIONS = """
SELECT DISTINCT p.proname AS name FROM pg_catalog.pg_proc p
WHERE p.provolatile <> 'i' AND (p.proname = ANY ($1::text[]) OR
    -- a function of a row can be called like a column
    p.proname = ANY ($2::text[]) AND p.proargtypes[0] =
    (SELECT c.reltype FROM pg_catalog.pg_class c WHERE c.oid = $3::oid)) ORDER BY 1
"""
_NAME = re.compile(r'"((?:[^"]|"")+)"|([^\W\d]\w*)')
_CALL = re.compile(r'(?:"((?:[^"]|"")+)"|([^\W\d]\w*))\s*\(')


def unavailable(
    settings: PostgresSettings, reason: str, *, is_permanent: bool = True
) -> BackendError:
    """The refusal of a relation; permanent if it exists and does not suit the configuration."""
    detail = f"{settings.table}: {reason}"
    return BackendError(ErrorCode.TABLE_UNAVAILABLE, detail, is_permanent=is_permanent)


async def run_own(run: RunQuery, statement: str, *arguments: Any) -> Sequence[CatalogRow]:  # noqa: ANN401  of SQL
    """Run a statement on the catalog; its failure is not explained as a fault of the relation."""
    with own_statements():
        return await run(statement, arguments)


async def check_meaning(run: RunQuery, settings: PostgresSettings) -> None:
    """Check that sessions have the settings of the DSN, and none that change what SQL means.

    Raises BackendError: `table_unavailable` with the statement that mends it.
    """
    given = settings_of(settings.dsn)
    if given and (lost := await run_own(run, LOST, [*given], [*given.values()])):
        names = ", ".join(each["name"] for each in lost)
        remedy = "set it by ALTER ROLE, and remove it from the DSN"
        reason = f"sessions lack {names} of the DSN, which a pooler ignores; {remedy}"
        raise unavailable(settings, reason, is_permanent=False)
    if not settings.pgbouncer:
        return
    found = [*await run_own(run, REPLACED_CATALOG)]
    if settings.query is not None or settings.where is not None:
        found += await run_own(run, UNFIXED)
    if found:
        names = ", ".join(f"{each[0]} = {each[1]}" for each in found)
        remedy = "; ".join(f"ALTER ROLE … SET {each[0]} = {each[2]}" for each in found)
        reason = f"behind PgBouncer, sessions have {names}, which changes what SQL means; run "
        raise unavailable(settings, reason + remedy, is_permanent=False)


async def described_query(
    run: RunQuery, settings: PostgresSettings
) -> tuple[Sequence[str], Sequence[int], Sequence[int | None]]:
    """The names, types and collations of the query's columns; reads no row.

    Raises BackendError: `table_unavailable` with the server's message if it refuses the query.
    """
    # The join has one row of NULLs, and does not run the query.
    rows = f"FROM (SELECT) AS one LEFT JOIN (\n{settings.query}\n) AS t ON false"
    (record,) = await _checked(run, f"SELECT t.* {rows}", settings)
    names = list(record.keys())
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise unavailable(settings, f"has several columns {', '.join(twice)}; rename them with AS")
    if not names:
        raise unavailable(settings, "has no column; select the key and others")
    values = ", ".join(_TYPE_AND_COLLATION.format(f"t.{quoted(name)}") for name in names)
    (record,) = await run(f"SELECT {values} {rows}", [])
    found = [record[at] for at in range(2 * len(names))]
    return names, found[::2], found[1::2]


async def check_filter(run: RunQuery, settings: PostgresSettings, table: PostgresTable) -> None:
    """Check that the server accepts the filter, and that a feed reports all changes of its result.

    Raises BackendError: `table_unavailable` with the reason.
    """
    await _checked(
        run, f"SELECT FROM {table.from_item()} WHERE false", settings, key="source.where: "
    )
    if settings.is_followed:
        calls, names = _found(_CALL, table.where), names_in(table.where)
        functions = await run(_CHANGING_FUNCTIONS, [calls, names, table.table_id])
        changing = ", ".join(each["name"] for each in functions)
        if changing:
            reason = f"source.where calls {changing}, whose result may change without a change of "
            raise unavailable(settings, f"{reason}the row; {WITHOUT_FEED}")


def names_in(where: str | None) -> list[str]:
    """The names in a filter, of functions and types among others; also those in its texts."""
    return _found(_NAME, where)


def _found(pattern: re.Pattern[str], where: str | None) -> list[str]:
    found = pattern.findall(where or "")
    return [name.replace('""', '"') or plain.lower() for name, plain in found]


async def _checked(
    run: RunQuery, statement: str, settings: PostgresSettings, *, key: str = ""
) -> Sequence[CatalogRow]:
    """Run a statement that has SQL of this key of the configuration; it reads no row."""
    try:
        return await run(statement, [])
    except BackendError as error:
        fault = statement_fault(error)
        if fault is None:
            raise
        reason = f"{key}the server refuses it: {fault}; correct it"
        raise unavailable(settings, reason, is_permanent=False) from error
