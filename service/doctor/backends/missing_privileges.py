"""Missing privileges of the sidecar's role, as the statements that grant them.

Reads the catalog; executes no statement.
"""

import re
from collections.abc import Sequence

from lookup_core.errors import BackendError
from service.connectors.postgres.column_types import quoted
from service.connectors.postgres.sessions import CatalogRow, PostgresSettings, RunQuery
from service.doctor.backends.postgres_server import sql_text

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
    found: Sequence[CatalogRow] = ()
    if settings.query is None:
        found = await run(sql_text("missing_rights"), [settings.table, columns])
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
