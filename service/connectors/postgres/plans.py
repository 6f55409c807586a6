"""Query plans: whether a plan finds rows by an index on the key."""

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

# The indexes of the tables that this transaction has planned with, their columns, and whether any
# equality can use them. The planner locks what it considers, so names need no schema. GIN, BRIN and
# bloom indexes are searched by any of their columns: `{}`.
INDEXES = """
SELECT i.indrelid AS table_id, c.relname AS name,
       CASE WHEN m.amname IN ('gin', 'brin', 'bloom') THEN '{}'
       ELSE ARRAY(SELECT pg_catalog.pg_get_indexdef(i.indexrelid, n, false)
                  FROM pg_catalog.generate_series(1, i.indnkeyatts) n) END AS columns,
       i.indisvalid AND i.indpred IS NULL AND m.amname IN ('btree', 'hash') AS is_general
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_index i ON i.indexrelid = l.relation
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam
WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation'
"""


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A plan, and the indexes of its tables."""

    root: Mapping[str, Any]
    # {index: columns of it and of each general index of its table}, as in the definition
    indexes: Mapping[str, Sequence[Sequence[str]]]

    @classmethod
    def read(cls, text: str, index_rows: Iterable[Any]) -> "QueryPlan":
        """The plan from EXPLAIN as JSON, and the rows of INDEXES in the same transaction."""
        rows = [*index_rows]
        general: defaultdict[int, list[Sequence[str]]] = defaultdict(list)
        for table_id, _, columns, is_general in rows:
            if is_general:
                general[table_id].append(columns)
        indexes: defaultdict[str, list[Sequence[str]]] = defaultdict(list)
        for table_id, name, columns, _ in rows:
            indexes[name] += [columns, *general[table_id]]
        return cls(json.loads(text)[0]["Plan"], indexes)

    def uses_index(self, *, is_range: bool = False) -> bool | None:
        """Whether the plan finds rows by an index condition on the keys, or on a range of rows.

        None if a foreign server finds them, or if there is nothing to read. Each part of a table
        needs its index, and no table below a view is searched without one. A condition on some key
        columns is enough, if they are the first ones of the index: only the owner of the table
        knows which of them are selective. Other conditions read the whole index, or one part of it
        for each value of the first column (a skip scan): such an index does not count.
        """
        found = self._search(self.root, "" if is_range else "k.key")
        return None if found is _Search.UNKNOWN else found is _Search.BY_INDEX

    def _search(self, node: Mapping[str, Any], of: str) -> "_Search":
        kind, condition = node["Node Type"], node.get("Index Cond")
        if condition is not None and of in condition:
            indexes = self.indexes.get(node.get("Index Name", ""), [()])
            return _Search.BY_INDEX if _is_led(condition, indexes, of) else _Search.BY_SCAN
        # A foreign scan, or a partitioned table without partitions.
        if kind == "Foreign Scan" or node.get("One-Time Filter") == "false":
            return _Search.UNKNOWN
        is_union = kind in {"Append", "Merge Append"}
        children = [each for each in node.get("Plans", ()) if not (is_union and _is_constant(each))]
        found = [self._search(child, of) for child in children]
        if is_union and any(found):
            is_searched = {*found} <= {_Search.BY_INDEX, _Search.UNKNOWN}
            return min(found) if is_searched else _Search.BY_SCAN
        largest = max(found, default=_Search.ELSEWHERE)
        filters = kind.endswith("Scan") and of in node.get("Filter", "")
        return _Search.BY_SCAN if filters and not largest else largest


class _Search(IntEnum):
    """How a part of a plan finds the rows of a key; the largest one of several counts."""

    ELSEWHERE = 0  # not by the key
    UNKNOWN = 1
    BY_INDEX = 2
    BY_SCAN = 3


# One comparison of an index condition: `(name = k.key1)`, `((name)::text = k.key1)`,
# `(ROW(id, name) >= ROW(1, 'a'::text))`.
_COMPARISON = (
    r"\((?:ROW\()?\(?{column}(?:\)::[^=<>()]+?)?(?:, .*?\))?"
    r" (?:IS NULL|(?:OPERATOR\([^()]*)?{operator}\)? (?P<value>[^)]*))"
)


def _is_led(condition: str, indexes: Sequence[Sequence[str]], of: str) -> bool:
    """Whether the condition compares the first columns of an index, up to one with a key.

    True if it has other expressions than the definitions: a view may rename the columns of a table
    (`t AS x (a, b)`), and the planner simplifies expressions.
    """
    values = {
        column: _compared(column, condition, "=" if of else ">=")
        for column in itertools.chain(*indexes)
    }
    known = sum(of in value for each in values.values() for value in each)
    return known < condition.count(of or " >= ") or any(
        _starts_with_key([values[column] for column in columns], of) for columns in indexes
    )


def _starts_with_key(values: Iterable[Sequence[str]], of: str) -> bool:
    for each in values:
        if any(of in value for value in each):
            return True
        if not each:
            return False
    return True


def _compared(column: str, condition: str, operator: str) -> Sequence[str]:
    # A definition has an expression in parentheses.
    name = re.escape(column[1:-1] if column.startswith("(") else column)
    found = re.finditer(_COMPARISON.format(column=name, operator=operator), condition)
    return [comparison["value"] or "" for comparison in found]


def _is_constant(node: Mapping[str, Any]) -> bool:
    """Whether a part of a plan has rows of the SQL only, as `UNION ALL SELECT 0, 'unknown'`."""
    is_kind = node["Node Type"] in {"Result", "Values Scan", "Subquery Scan"}
    return is_kind and all(map(_is_constant, node.get("Plans", ())))
