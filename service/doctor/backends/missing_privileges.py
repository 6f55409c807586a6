"""Missing privileges of the sidecar's role, as the statements that grant them.

Reads the catalog; executes no statement.
"""

import re

from lookup_core.errors import BackendError
from service.connectors.postgres.column_types import quoted
from service.connectors.postgres.sessions import PostgresSettings, RunQuery

# The role may not be allowed to use the schema of the relation.
_LACKING = """
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
       pg_catalog.quote_ident(n.nspname) AS schema_name, c.relkind = 'v' AS is_view,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS may_use_schema,
       string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum)
       FILTER (WHERE NOT r.may_be_read AND a.attname = ANY (coalesce($2, ARRAY[a.attname::text])))
       AS hidden, bool_or(r.may_be_read) AS has_readable_columns
FROM pg_catalog.parse_ident($1) AS p (parts)
JOIN pg_catalog.pg_class c ON c.relname = p.parts[pg_catalog.cardinality(p.parts)]
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     AND coalesce(n.nspname = p.parts[pg_catalog.cardinality(p.parts) - 1],
                  pg_catalog.pg_table_is_visible(c.oid))
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
CROSS JOIN LATERAL (SELECT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
                           AS may_be_read) AS r
GROUP BY c.oid, c.relname, c.relkind, n.oid, n.nspname
"""
_DENIED = re.compile(r"permission denied for ([a-z ]+?) ([^ ]+)$")  # another language: unknown
_PRIVILEGES = {  # {kind of object in the server's message: privilege and object in GRANT}
    **dict.fromkeys(("table", "view", "materialized view", "foreign table"), "SELECT ON"),
    "schema": "USAGE ON SCHEMA",
    "function": "EXECUTE ON FUNCTION",
    "foreign server": "USAGE ON FOREIGN SERVER",
}


async def missing_grants(
    run: RunQuery, settings: PostgresSettings, *, role: str, refusal: BackendError
) -> str:
    """The statements that grant the role what the refused relation needs; "" if not known.

    Raises the errors of `run`.
    """
    columns = None if settings.columns is None else [*settings.key, *settings.columns]
    found = await run(_LACKING, [settings.table, columns]) if settings.query is None else []
    statements, reader = [], quoted(role)
    for relation in found[:1]:
        if not relation["may_use_schema"]:
            statements.append(f"GRANT USAGE ON SCHEMA {relation['schema_name']} TO {quoted(role)}")
        if (hidden := relation["hidden"]) is not None:
            what = f"SELECT ({hidden})" if relation["has_readable_columns"] else "SELECT"
            statements.append(f"GRANT {what} ON {relation['name']} TO {quoted(role)}")
        if relation["is_view"]:  # its owner reads the tables
            reader = f"the owner of {relation['name']}; with security_invoker, to {quoted(role)}"
    if statements:
        return "; ".join(statements)
    denied = _DENIED.search(refusal.detail)
    privilege = None if denied is None else _PRIVILEGES.get(denied[1])
    if denied is None or privilege is None:
        return ""
    grantee = reader if privilege == "SELECT ON" else quoted(role)
    return f"GRANT {privilege} {quoted(denied[2])} TO {grantee}"
