"""What the facts of a table mean for a dimension that is made of it.

Pure; what keeps a table from being looked up at all is said by the adapter that describes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lookup_core.settings import CacheMode
from service.backends.postgres_lookup import index_statement
from service.backends.postgres_table import PostgresTable, quoted
from service.config.cache import Cache
from service.config.quantity import size_text
from service.doctor.finding import Finding, Matter

_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The plan of a lookup, and what the role may do besides reading."""

    uses_index: bool
    rights: tuple[str, ...] = ()  # beyond SELECT: INSERT, UPDATE, …
    is_owner: bool = False
    size_bytes: int = 0  # on disk, without indexes


def table_findings(
    matter: Matter, table: PostgresTable, facts: TableFacts, *, require_index: bool
) -> Iterator[Finding]:
    """Types, index and rights."""
    key = ", ".join(f"{field.name} {field.type}" for field in table.schema.key)
    name = f"{quoted(table.schema_name)}.{quoted(table.name)}"
    yield matter.ok(f"{name} can be looked up by {key}")
    index = Matter("index", matter.subject)
    text = "no index leads from the key to its rows: each query reads the whole table"
    remedy = index_statement(table)
    if facts.uses_index:
        yield index.ok("an index leads from the key to its rows")
    elif require_index:
        yield index.error(f"{text}, which require_index refuses", remedy)
    else:
        yield index.warning(text, remedy)


def rights_findings(
    matter: Matter, table: PostgresTable, facts: TableFacts, *, role: str, is_superuser: bool
) -> Iterator[Finding]:
    """Whether the role may do more than it needs; of superusers the database check tells."""
    name = f"{quoted(table.schema_name)}.{quoted(table.name)}"
    if is_superuser:
        yield matter.ok("columns can be read")
    elif facts.is_owner:
        yield matter.warning(
            f"role {role} owns the table, and may change and drop it",
            "use a role of its own: CREATE ROLE sidelook LOGIN; "
            f"GRANT SELECT ON {name} TO sidelook",
        )
    elif facts.rights:
        rights = ", ".join(facts.rights)
        yield matter.warning(
            f"role {role} may {rights}; a sidecar needs SELECT only",
            f"REVOKE {rights} ON {name} FROM {quoted(role)}",
        )
    else:
        yield matter.ok(f"role {role} may read the columns, and change nothing")


def size_findings(
    matter: Matter, facts: TableFacts, cache: Cache, *, scale: float
) -> Iterator[Finding]:
    """Whether a table that is to be held whole fits into its cache, scaled as it will be."""
    room_bytes = int(cache.max_bytes * scale) // _MEBIBYTE * _MEBIBYTE
    if cache.mode is CacheMode.FULL and facts.size_bytes > cache.max_bytes * scale:
        size = size_text(-(-facts.size_bytes // _MEBIBYTE) * _MEBIBYTE)
        yield matter.warning(
            f"it has {size} on disk, and its cache {size_text(room_bytes)}: it may not fit whole",
            "raise cache.max_bytes and limits.memory, name fewer columns, or use mode partial",
        )
