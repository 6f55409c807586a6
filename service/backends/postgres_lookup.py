"""The one query that a table is asked with, and whether an index answers it.

Text only; what the table is like is read by `postgres_catalog`.
"""

import json
from typing import Any

from service.backends.postgres_table import PostgresTable, quoted


def lookup_query(table: PostgresTable, *, is_ordered: bool) -> str:
    """One array per key column in; out comes one row of blocks: ordinals (from 1), and columns.

    They are those of the rows that exist; each is NULL if none does. The database matches, so that
    it alone decides what is equal. OFFSET 0 keeps the planner from turning this into a join:
    whatever it believes of the number of keys or of the table's size, it asks the index once per
    key and never reads the table from end to end. The rows of one key come in the table's order, if
    they are to be ordered.
    """
    order = f" ORDER BY {', '.join(table.order)}" if is_ordered else ""
    return (
        f"SELECT {_blocks(table, 'k.ordinal')}"  # noqa: S608  names are the catalog's, quoted
        f" FROM {_keys(table)}"
        f" CROSS JOIN LATERAL (SELECT {_columns(table)}"
        f" FROM {_name(table)} AS t"
        f" WHERE {_matches(table)}{order} OFFSET 0) AS r"
    )


def scanning_query(table: PostgresTable, *, is_ordered: bool) -> str:
    """The same for a table without an index: read once for all keys, not once for each."""
    order = f" ORDER BY {', '.join(('k.ordinal', *table.order))}" if is_ordered else ""
    return (
        f"SELECT {_blocks(table, 'r.ordinal')}"  # noqa: S608  names are the catalog's, quoted
        f" FROM (SELECT k.ordinal, {_columns(table)}"
        f" FROM {_keys(table)}"
        f" JOIN {_name(table)} AS t ON {_matches(table)}{order} OFFSET 0) AS r"
    )


def uses_index(plan: str) -> bool:
    """Whether a plan, as EXPLAIN gives it in JSON, finds the rows by a condition on an index.

    Of a table in parts, each part needs its index. An index on some of the key's columns is enough:
    which of them tell rows apart, only the table's owner knows.
    """
    return any(_has_condition(each["Plan"]) for each in json.loads(plan))


def index_statement(table: PostgresTable) -> str:
    """What creates the index that lookups need."""
    key = ", ".join(quoted(name) for name, _ in table.keys)
    return f"CREATE INDEX CONCURRENTLY ON {_name(table)} ({key})"


def _has_condition(node: dict[str, Any]) -> bool:
    found = [_has_condition(child) for child in node.get("Plans", ())]
    is_in_parts = node["Node Type"] in {"Append", "Merge Append"}
    return "Index Cond" in node or (all(found) if found and is_in_parts else any(found))


def _keys(table: PostgresTable) -> str:
    arrays = ", ".join(sending.array(number) for number, (_, sending) in enumerate(table.keys, 1))
    aliases = ", ".join(f"key{number}" for number, _ in enumerate(table.keys, 1))
    return f"unnest({arrays}) WITH ORDINALITY AS k ({aliases}, ordinal)"


def _blocks(table: PostgresTable, ordinal: str) -> str:
    columns = [
        reading.block(f"r.column{number}") for number, (_, reading) in enumerate(table.columns, 1)
    ]
    return ", ".join([f"array_send(array_agg({ordinal}))", *columns])


def _columns(table: PostgresTable) -> str:
    return ", ".join(
        f"{reading.expression(f't.{quoted(name)}')} AS column{number}"
        for number, (name, reading) in enumerate(table.columns, 1)
    )


def _matches(table: PostgresTable) -> str:
    return " AND ".join(
        f"t.{quoted(name)} = k.key{number}" for number, (name, _) in enumerate(table.keys, 1)
    )


def _name(table: PostgresTable) -> str:
    return f"{quoted(table.schema_name)}.{quoted(table.name)}"
