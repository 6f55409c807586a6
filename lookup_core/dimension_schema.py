"""What a dimension looks like: its key's and its columns' exact Arrow types.

Only names and types; where the rows live is the backend's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.nearest_name import nearest_name
from lookup_core.table_origin import TableOrigin
from lookup_core.version_columns import version_columns


@dataclass(frozen=True, slots=True)
class DimensionSchema:
    """Key fields in the order of the configuration, and the columns that a lookup may ask for."""

    key: pa.Schema
    columns: pa.Schema
    origin: TableOrigin | None = None  # of who has no changelog

    def select(self, names: Sequence[str] | None) -> pa.Schema:
        """The schema of the columns asked for, in the order asked; all of them for `None`.

        Raises InvalidRequest for a name that the dimension does not offer, naming those it does,
        and for one that is there twice.
        """
        if names is None:
            return self.columns
        unknown = sorted(set(names).difference(self.columns.names))
        if unknown:
            raise InvalidRequest(ErrorCode.UNKNOWN_COLUMN, self._why_unknown(unknown))
        if len(set(names)) < len(names):
            raise InvalidRequest(ErrorCode.BAD_REQUEST, "each column may be asked for once")
        return pa.schema([self.columns.field(name) for name in names])

    def select_versions(self, names: Sequence[str] | None) -> pa.Schema:
        """The same for who picks a version by time: with the columns that say when each is valid.

        They stand behind those asked for, if they are not among them. Raises as `select` does, and
        for a dimension without versions.
        """
        versions = version_columns(self.columns)
        if versions is None:
            raise InvalidRequest(
                ErrorCode.BAD_REQUEST,
                "the dimension has no versions to look up as of a time; leave as_of out",
            )
        asked = self.select(names)
        added = [name for name in versions.names if name not in asked.names]
        return pa.schema([*asked, *(self.columns.field(name) for name in added)])

    def is_same(self, other: "DimensionSchema") -> bool:
        """Whether names, order, exact types and origin are equal; a uuid is not its bytes."""
        return (
            self.key.equals(other.key, check_metadata=True)
            and self.columns.equals(other.columns, check_metadata=True)
            and self.origin == other.origin
        )

    def still_offers(self, promised: "DimensionSchema") -> bool:
        """Whether who was promised this key and these columns gets just that.

        Other columns may have come, gone or changed, and the order is of no account.
        """
        return self.key.equals(promised.key, check_metadata=True) and all(
            field.name in self.columns.names and self.columns.field(field.name).equals(field)
            for field in promised.columns
        )

    def _why_unknown(self, names: Sequence[str]) -> str:
        in_key = [name for name in names if name in self.key.names]
        if in_key:
            return f"{', '.join(in_key)}: in the key, so the records have it already"
        hint = nearest_name(names[0], self.columns.names)
        return f"the dimension has no column {', '.join(names)}{hint}"
