"""The table of a database that a dimension's rows are from, for who is told of its changes.

Not how it is reached: the backend knows that. A dimension of files has none.
"""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """Names as the database has them, without quotes."""

    schema_name: str
    table_name: str
    table_id: int = 0  # its number in the catalog: another table under the name has another one
    tells_rows: bool = False  # a row in its changelog is, for sure, what a query brings of its key
    has_full_identity: bool = False  # its changelog tells all of a row's former values

    @property
    def name(self) -> str:
        """Schema and table, as changelogs write them."""
        return f"{self.schema_name}.{self.table_name}"

    def without_rows(self) -> Self:
        """The same, where a query brings something else than the table's rows."""
        return replace(self, tells_rows=False)
