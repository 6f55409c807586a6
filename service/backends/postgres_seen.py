"""What a lookup saw, taken out of the rows that it came with.

How the query asks for it stands in `postgres_lookup`; what it proves, in the core.
"""

from collections.abc import Iterable
from typing import Any

from lookup_core.freshness.table_snapshot import TableSnapshot

Column = tuple[Any, ...]


def seen_snapshot(text: str) -> TableSnapshot:
    """What a statement saw, as the server writes it: `t` on a standby, else `f`; its snapshot."""
    is_standby, snapshot = text.split(" ")
    return TableSnapshot.parse(snapshot, is_of_standby=is_standby == "t")


def split_seen(columns: Iterable[Column]) -> tuple[list[Column], TableSnapshot]:
    """The columns without the last one, and without the row for which that one tells what was seen.

    As a rule it is the first row; where parts of a query run side by side it is any.
    """
    *columns, seen = columns
    at = next(place for place, text in enumerate(seen) if text is not None)
    return [column[:at] + column[at + 1 :] for column in columns], seen_snapshot(seen[at])
