"""PostgreSQL catalog: describes the configured relation, and refuses an unsuitable one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import types

from lookup_core.errors import BackendError, ErrorCode, nearest_name, similar_name
from lookup_core.type_texts import type_text
from service.connectors.postgres.column_values import Attributes
from service.connectors.postgres.configured_sql import (
    WITHOUT_FEED,
    CatalogRow,
    RunQuery,
    check_filter,
    check_meaning,
    described_query,
    run_own,
    unavailable,
)
from service.connectors.postgres.errors import is_invalid_name, own_statement_fault
from service.connectors.postgres.publications import read_publications
from service.connectors.postgres.row_meaning import row_meaning
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import (
    MAX_NAME_BYTES,
    ColumnReading,
    KeySending,
    PostgresTable,
    PostgresType,
    RelationKind,
    column_reading,
    key_sending,
    requested_reading,
)

# Names are qualified: a schema in the search path could shadow them. $1 alone uses the path.
_TABLE = """
WITH RECURSIVE part AS (
    SELECT pg_catalog.to_regclass($1)::oid AS id
    UNION ALL
    SELECT i.inhrelid FROM part JOIN pg_catalog.pg_class w ON w.oid = part.id AND w.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = part.id
), leaf AS (
    SELECT f.* FROM part JOIN pg_catalog.pg_class f ON f.oid = part.id AND f.relkind <> 'p'
)
SELECT c.oid,
       -- events of a subscribed table may name the publisher's database
       CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_subscription_rel s
                             WHERE s.srrelid = c.oid OR s.srrelid IN (
                                 SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p))
            THEN pg_catalog.current_database() END AS database,
       c.relkind::text AS kind, n.nspname AS schema_name, c.relname AS table_name,
       pg_catalog.row_security_active(c.oid) AS has_row_security,
       -- partitions do not inherit the replica identity
       (SELECT pg_catalog.bool_and(f.relreplident = 'f') IS TRUE FROM leaf f) AS has_full_identity,
       ARRAY(SELECT a.attname::text FROM leaf f
             JOIN pg_catalog.pg_attribute a ON a.attrelid = f.oid AND a.attnum > 0
             LEFT JOIN pg_catalog.pg_index i ON i.indrelid = f.oid AND CASE f.relreplident
                 WHEN 'd' THEN i.indisprimary AND i.indimmediate
                 WHEN 'i' THEN i.indisreplident END
             WHERE f.relreplident = 'f' OR a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
             GROUP BY a.attname HAVING pg_catalog.count(*) = (SELECT pg_catalog.count(*) FROM leaf)
       ) AS identity,
       c.relispopulated AS is_populated,
       (SELECT pg_catalog.min(f.oid::regclass::text) FROM leaf f
        WHERE f.relkind = 'f' AND f.oid <> c.oid) AS foreign_part,
       (SELECT pg_catalog.format('%I.%I', cn.nspname, h.relname)
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class h ON h.oid = i.inhrelid
        JOIN pg_catalog.pg_namespace cn ON cn.oid = h.relnamespace
        -- rows of a temporary child are visible to its own session only
        WHERE i.inhparent = c.oid AND h.relpersistence <> 't' ORDER BY 1 LIMIT 1) AS child,
       (SELECT pg_catalog.format('%I.%I', pn.nspname, p.relname)
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
        JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
        WHERE i.inhrelid = c.oid ORDER BY 1 LIMIT 1) AS parent,
       ARRAY(SELECT pg_catalog.unnest(i.indkey[0:i.indnkeyatts - 1])
             FROM pg_catalog.pg_index i
             WHERE i.indrelid = c.oid AND i.indisprimary) AS primary_key,
       EXISTS (SELECT FROM pg_catalog.pg_index i
               WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate) AS has_immediate_key,
       -- NOT NULL NOT VALID, from version 18
       EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid
               AND k.contype = 'n' AND NOT k.convalidated) AS has_unchecked_columns,
       pg_catalog.getdatabaseencoding() <> 'SQL_ASCII' AS has_exact_texts,
       -- The changelog connector's session has the settings of its own role, which may replicate.
       -- `reset_val` has no change by this session.
       ARRAY(SELECT s.name FROM pg_catalog.pg_settings s
             WHERE s.name = 'extra_float_digits' AND s.reset_val::int < 1
                OR s.name = 'bytea_output' AND s.reset_val <> 'hex'
             UNION
             SELECT pg_catalog.split_part(e.setting, '=', 1)
             FROM pg_catalog.pg_db_role_setting s
             CROSS JOIN pg_catalog.unnest(s.setconfig) AS e (setting)
             LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole
             WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d
                                         WHERE d.datname = pg_catalog.current_database()))
             AND (s.setrole = 0 OR r.rolreplication OR r.rolsuper
                  -- the right of replication at Amazon RDS
                  OR EXISTS (SELECT FROM pg_catalog.pg_roles g WHERE g.rolname = 'rds_replication'
                             AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER')))
             AND (e.setting ~ '^extra_float_digits=(0|-)'
                  OR e.setting ~ '^bytea_output=' AND e.setting <> 'bytea_output=hex')
       ) AS inexact_settings
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1)
"""

# A domain is resolved to its base type, with the innermost modifier, and an array to its elements.
_COLUMNS = """
WITH RECURSIVE layer AS (
    SELECT a.attnum, a.attname, a.atttypid AS type_id, a.atttypmod AS modifier, 0 AS depth,
           false AS is_array, false AS is_domain
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT l.attnum, l.attname, coalesce(e.oid, t.typbasetype),
           CASE WHEN t.typtypmod >= 0 THEN t.typtypmod ELSE l.modifier END, l.depth + 1,
           l.is_array OR e.oid IS NOT NULL, l.is_domain OR t.typtype = 'd'
    FROM layer l JOIN pg_catalog.pg_type t ON t.oid = l.type_id
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND e.typarray = t.oid AND NOT l.is_array
    WHERE t.typtype = 'd' OR e.oid IS NOT NULL
)
SELECT DISTINCT ON (l.attnum) l.attnum AS number, l.attname AS name, l.modifier,
       t.typname AS type_name, n.nspname AS type_schema, n.nspname = 'pg_catalog' AS is_builtin,
       coalesce(o.collisdeterministic, true) AS has_exact_equality,
       l.is_domain, l.is_array, t.typtype = 'e' AS is_enum,
       -- of a composite type, and of those within: paths, each with a mark of JSON documents
       (WITH RECURSIVE attribute AS (
            SELECT ARRAY[]::name[] AS path, t.oid AS type_id
            UNION ALL
            SELECT a.path || n.names, n.type_id
            FROM attribute a JOIN pg_catalog.pg_type y ON y.oid = a.type_id CROSS JOIN LATERAL (
                SELECT ARRAY[x.attname] AS names, x.atttypid AS type_id
                FROM pg_catalog.pg_attribute x
                WHERE y.typtype = 'c' AND x.attrelid = y.typrelid AND x.attnum > 0
                      AND NOT x.attisdropped
                UNION ALL
                SELECT '{}', CASE y.typtype WHEN 'd' THEN y.typbasetype ELSE y.typelem END
                WHERE y.typtype = 'd' OR y.typcategory = 'A'
            ) n
        )
        SELECT pg_catalog.json_agg(a.path || (y.typname IN ('json', 'jsonb'))::text::name
                                   ORDER BY pg_catalog.cardinality(a.path), a.path)::text
        FROM attribute a JOIN pg_catalog.pg_type y ON y.oid = a.type_id
        WHERE a.path <> '{}' AND y.typtype <> 'd' AND y.typcategory <> 'A') AS attributes,
       NOT a.attnotnull AS may_be_null, a.atthasdef AS has_default,
       a.attgenerated <> '' AS is_generated,
       -- not known for a query, which was refused if it may not be read
       coalesce(pg_catalog.has_column_privilege($1::oid, l.attnum, 'SELECT'), true) AS may_be_read
FROM layer l JOIN pg_catalog.pg_type t ON t.oid = l.type_id
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::oid AND a.attnum = l.attnum
LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
ORDER BY l.attnum, l.depth DESC
"""

_NAMES = """
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
      AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1 LIMIT 10000
"""

# The columns of a query, described as those of a relation.
_QUERY_COLUMNS = _COLUMNS.replace(
    "pg_catalog.pg_attribute a",
    """(
        SELECT $1::oid AS attrelid, c.number::int2 AS attnum, c.name AS attname,
               c.type_id AS atttypid, -1 AS atttypmod, false AS attisdropped,
               false AS attnotnull, false AS atthasdef, '' AS attgenerated,
               c.collation_id AS attcollation
        FROM unnest($2::text[], $3::oid[], $4::oid[])
             WITH ORDINALITY AS c (name, type_id, collation_id, number)
    ) a""",
)
_OTHER_KINDS = {"S": "a sequence", "i": "an index", "I": "an index", "c": "a composite type"}
_NO_FEED = {
    RelationKind.VIEW: "is a view, and changes of its tables are not reported for its rows",
    RelationKind.MATERIALIZED_VIEW: "is a materialized view, and REFRESH reports no changes",
    RelationKind.FOREIGN_TABLE: "is a foreign table, and its own server reports the changes",
    RelationKind.QUERY: "is a query, and changes of its tables are not reported for its rows",
}


async def read_table(run: RunQuery, settings: PostgresSettings) -> PostgresTable:
    """Describe the configured relation; `run` sends the queries with their arguments.

    Raises BackendError: `table_unavailable` with the reason and the nearest name, `forbidden` with
    a column that may not be read, and the errors of `run`.
    """
    await check_meaning(run, settings)
    entry = await _entry(run, settings.table) if settings.query is None else _QUERY_ENTRY
    kind = _suitable_kind(settings, entry)
    version = await _version(run, settings, entry)  # first: a later change is noticed
    columns = await _columns(run, settings, entry)
    names = settings.columns or [name for name in columns if name not in settings.key]
    _refuse_unreadable(settings, columns, [*settings.key, *names])
    if not names:
        reason = "no column other than the key; use a source.query that adds one: true AS found"
        raise unavailable(settings, reason)
    table = PostgresTable(
        schema_name=entry["schema_name"],
        name=entry["table_name"] or settings.table,
        keys=tuple((name, _sending(settings, columns[name])) for name in settings.key),
        columns=_readings(settings, {name: columns[name] for name in names}),
        table_id=entry["oid"],
        primary_key=_readable(columns, entry["primary_key"]),
        reports_rows=settings.where is None
        and kind is RelationKind.TABLE
        and _has_exact_changes(
            entry,
            key=[columns[name] for name in settings.key],
            columns=[columns[name] for name in names],
        )
        and not settings.types,  # else values of the changelog may have other types
        has_full_identity=entry["has_full_identity"],
        loses_keys=not {*settings.key} <= {*entry["identity"]},
        versions=settings.versions,
        kind=kind,
        has_foreign_parts=entry["foreign_part"] is not None,
        query=settings.query,
        where=settings.where,
        is_guarded=settings.pgbouncer,
        row_bytes=settings.row_bytes,
        has_several_rows=settings.has_several_rows,
        database=entry["database"],
        version=version,
    )
    if settings.where is not None:
        await check_filter(run, settings, table)
    return table


async def _version(run: RunQuery, settings: PostgresSettings, entry: CatalogRow) -> str:
    """What the look of its rows depends on; empty for a query. Refuses incomplete publications."""
    if settings.query is not None:
        return ""
    meaning = await row_meaning(run, entry["oid"])
    if not (settings.is_followed and settings.needs_publication):
        return meaning
    return f"{meaning}{await read_publications(run, settings, entry['oid'])}"


async def _columns(
    run: RunQuery, settings: PostgresSettings, entry: CatalogRow
) -> Mapping[str, CatalogRow]:
    if settings.query is None:
        records = await run_own(run, _COLUMNS, entry["oid"])
    else:
        records = await run_own(run, _QUERY_COLUMNS, 0, *await described_query(run, settings))
    return {record["name"]: record for record in records}


_QUERY_ENTRY: Any = {  # a CatalogRow
    "oid": 0,
    "database": None,
    "kind": RelationKind.QUERY.value,
    "schema_name": "",
    "table_name": None,
    "primary_key": (),
    "has_full_identity": False,
    "identity": (),
    "foreign_part": None,
    "has_exact_texts": False,
    "inexact_settings": (),
}


async def _entry(run: RunQuery, table: str) -> CatalogRow:
    is_too_long = any(len(part.strip('"').encode()) > MAX_NAME_BYTES for part in table.split("."))
    try:
        records = [] if is_too_long else await run(_TABLE, [table])
    except BackendError as error:
        if not is_invalid_name(error):
            raise own_statement_fault(error) from error.__cause__
        # too many dots, or another database
        detail = f"{table}: is not the name of a table; write schema.table, as in SQL"
        raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail) from error
    if records:
        return records[0]
    names = [record["name"] for record in await run_own(run, _NAMES)]
    detail = f"{table}: no such table; {_nearest_relation(table, names)}"
    raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)


def _nearest_relation(table: str, names: Sequence[str]) -> str:
    """The remedy for a missing relation: one with a similar name, first of the same schema."""
    schema, _, wanted = (f"public.{table}" if "." not in table else table).rpartition(".")
    by_table: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name.rpartition(".")[0] != schema):
        by_table.setdefault(name.rpartition(".")[2].strip('"'), name)
    close = similar_name(wanted.strip('"'), list(by_table))
    return f"did you mean {by_table[close]}?" if close else "correct its name, or create it"


def _suitable_kind(settings: PostgresSettings, entry: CatalogRow) -> RelationKind:
    """The kind of the relation; raises BackendError if it cannot be looked up or followed."""
    if entry["kind"] not in {kind.value for kind in RelationKind}:
        other = _OTHER_KINDS.get(entry["kind"], "another relation")
        raise unavailable(settings, f"is {other}; name a table, a view or a foreign table")
    kind = RelationKind(entry["kind"])
    if settings.is_followed and kind in _NO_FEED:
        raise unavailable(settings, f"{_NO_FEED[kind]}; {WITHOUT_FEED}")
    if kind is RelationKind.QUERY:
        return kind
    if entry["has_row_security"]:
        raise unavailable(settings, "row-level security hides rows from the role of the DSN")
    if not entry["is_populated"]:
        reason = "has no data yet; run REFRESH MATERIALIZED VIEW"
        raise unavailable(settings, reason, is_permanent=False)
    if settings.is_followed:
        _refuse_unreported_parts(settings, entry, kind)
    return kind


def _refuse_unreported_parts(
    settings: PostgresSettings, entry: CatalogRow, kind: RelationKind
) -> None:
    child, parent, is_whole = entry["child"], entry["parent"], kind is RelationKind.PARTITIONED
    if entry["foreign_part"] is not None:
        reason = f"its partition {entry['foreign_part']} is a foreign table, whose own server "
        raise unavailable(settings, f"{reason}reports the changes; {WITHOUT_FEED}")
    if child is not None and not is_whole:
        reason = f"{child} inherits from it, and reports changes under its own name; "
        remedy = "end the inheritance, or remove refresh.listen and refresh.changelog"
        raise unavailable(settings, reason + remedy)
    if settings.has_triggers and parent is not None and not is_whole:
        reason = f"statements on its parent table {parent} do not run its triggers; "
        remedy = "end the inheritance, or use refresh.changelog instead of refresh.listen"
        raise unavailable(settings, reason + remedy)


def _refuse_unreadable(
    settings: PostgresSettings, columns: Mapping[str, CatalogRow], names: Sequence[str]
) -> None:
    for name in names:
        if name not in columns:
            detail = f"{settings.table}: no column {name}{nearest_name(name, list(columns))}"
            raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)
    hidden = ", ".join(name for name in names if not columns[name]["may_be_read"])
    if hidden:
        detail = f"{settings.table}: the role of the DSN may not read {hidden}; grant it SELECT"
        raise BackendError(ErrorCode.FORBIDDEN, detail)


def _readable(columns: Mapping[str, CatalogRow], numbers: Sequence[int]) -> tuple[str, ...]:
    """The names of the columns; empty unless the role may read, and so sort by, all of them."""
    by_number = {column["number"]: column for column in columns.values()}
    found = [by_number[number] for number in numbers]
    are_readable = all(column["may_be_read"] for column in found)
    return tuple(column["name"] for column in found) if are_readable else ()


def _readings(
    settings: PostgresSettings, columns: Mapping[str, CatalogRow]
) -> tuple[tuple[str, ColumnReading], ...]:
    """How the columns are read; raises BackendError with all faults of `types`."""
    readings = {name: column_reading(_type(column)) for name, column in columns.items()}
    faults = []
    for name, wanted in settings.types.items():
        if name not in columns:
            hint = nearest_name(name, list(columns)).removeprefix("; ")
            faults.append(f"no column {name} among the columns ({hint})")
            continue
        found = requested_reading(_type(columns[name]), wanted)
        if isinstance(found, ColumnReading):
            readings[name] = found
        else:
            faults.append(f"column {name} is not {type_text(wanted)} ({found})")
    if faults:
        raise unavailable(settings, f"types: {', '.join(faults)}; correct types")
    return tuple(readings.items())


def _sending(settings: PostgresSettings, column: CatalogRow) -> KeySending:
    sending = key_sending(column["name"], _type(column))
    if isinstance(sending, str):
        raise unavailable(settings, f"key column {column['name']}: {sending}")
    if not sending.has_exact_equality and (settings.is_followed or settings.is_whole):
        reason = (
            f"key column {column['name']}: its type or collation treats different texts as equal, "
            "so a change does not identify the cached keys; use cache.mode partial with a short "
            "cache.ttl, and remove refresh, or use a key of type text"
        )
        raise unavailable(settings, reason)
    return sending


def _type(column: CatalogRow) -> PostgresType:
    return PostgresType(
        name=column["type_name"],
        is_builtin=column["is_builtin"],
        modifier=column["modifier"],
        has_exact_equality=column["has_exact_equality"],
        is_array=column["is_array"],
        is_enum=column["is_enum"],
        schema_name=column["type_schema"],
        attributes=_attributes(column["attributes"]),
    )


def _attributes(paths: str | None) -> Attributes:
    tree: dict[str, Any] = {}
    for *outer, name, is_document in json.loads(paths or "[]"):  # shorter paths come first
        within = tree
        for each in outer:
            within = within[each]
        within[name] = None if is_document == "true" else {}
    return tree


_EXACT_TYPES = frozenset(
    {"int2", "int4", "int8", "bool", "float4", "float8", "text", "varchar", "uuid"}
    | {"date", "timestamp", "timestamptz"}
)
# {setting of the connector's role: types whose texts in its events it changes}
_CHANGED_BY = {"extra_float_digits": "float", "bytea_output": "bytea"}
_MAX_INLINE_DIGITS = 37  # of a numeric of 23 bytes; from 25 on, values may be stored out of line


def _has_exact_changes(
    table: CatalogRow, *, key: Sequence[CatalogRow], columns: Sequence[CatalogRow]
) -> bool:
    """Whether a row in the table's changelog certainly equals the queried row of its key."""
    has_full_identity = table["has_full_identity"]
    inexact = {_CHANGED_BY[name] for name in table["inexact_settings"]}
    kinds = {each["type_name"].rstrip("0123456789") for each in (*key, *columns)}
    return (
        table["has_exact_texts"]
        and not inexact & kinds
        and not table["has_unchecked_columns"]
        and _has_one_row_each(table, key)
        and all(_is_exact(each, has_full_identity) for each in (*key, *columns))
    )


def _has_one_row_each(table: CatalogRow, key: Sequence[CatalogRow]) -> bool:
    """Whether a key has at most one row, with its changes in order.

    Kafka keeps the order of one primary key's changes only: rows of another unique key may be in
    several partitions. A table with children also shows their rows.
    """
    primary_key = {*table["primary_key"]}
    is_within = bool(primary_key) and primary_key <= {column["number"] for column in key}
    return is_within and table["has_immediate_key"] and table["child"] is None


def _is_exact(column: CatalogRow, has_full_identity: bool) -> bool:  # noqa: FBT001  a fact
    """Whether the changelog has the values of the column as they are.

    Kafka Connect replaces NULL by the column's default, omits generated columns, and may lose the
    modifiers of a domain. Without REPLICA IDENTITY FULL, an update omits unchanged values that are
    stored out of line: texts have a placeholder then, others may be NULL.
    """
    is_default_for_null = column["may_be_null"] and column["has_default"]
    is_other = column["is_generated"] or column["is_domain"] or column["is_array"]
    if is_default_for_null or is_other:
        return False
    if not column["is_builtin"]:
        return bool(column["is_enum"])
    name = column["type_name"]
    if name == "bytea":
        return has_full_identity
    if name != "numeric":
        return name in _EXACT_TYPES
    kind = column_reading(_type(column)).type
    return types.is_decimal(kind) and (has_full_identity or kind.precision <= _MAX_INLINE_DIGITS)
