"""A range of a table's rows, in pages, and the picture that it is a part of.

Values only, but for the bookmarks that readers leave in a split.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.sources.split import Split
from service.backends.postgres_table import PostgresTable

Bound: TypeAlias = tuple[str, ...]  # the value of each of the columns that ranges are made of


@dataclass(frozen=True, slots=True)
class RangeColumn:
    """What rows are put in ranges by: a column of the key, or where they are stored."""

    expression: str  # in SQL, of a row `t`
    sql_type: str  # which bounds, that are texts, are cast to


STORED_AT = RangeColumn("t.ctid", "tid")


@dataclass(frozen=True, slots=True)
class TablePicture:
    """A table as one snapshot shows it."""

    table: PostgresTable
    range_columns: tuple[RangeColumn, ...]
    snapshot_id: str  # under which other sessions find the snapshot
    snapshot: TableSnapshot


@dataclass(frozen=True, slots=True)
class PostgresSnapshotSplit(Split):
    """Pages of rows: page i has those from bound i on, and below bound i + 1; None: without end.

    Its position is how many rows were read.
    """

    picture: TablePicture
    bounds: Sequence[Bound | None]
    total: int | None  # rows, about
    # {position: the page that follows it}; a position is told only when its page is whole
    page_at: dict[int, int] = field(default_factory=lambda: {0: 0}, compare=False)

    @property
    def page_count(self) -> int:
        """How many pages there are."""
        return len(self.bounds) - 1
