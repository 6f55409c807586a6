"""Schema of a dimension: exact Arrow types of key and columns, version columns, origin table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from lookup_core.errors import ErrorCode, InvalidRequest, nearest_name

# Of a field in a dimension's schema; on the wire the names travel instead.
_VALID_FROM = {b"sidelook.versions": b"valid_from"}
_VALID_TO = {b"sidelook.versions": b"valid_to"}


@dataclass(frozen=True, slots=True)
class VersionColumns:
    """A version is valid from the one time on, and before the other.

    Null is from ever and for ever; without the other, it is valid up to its key's next version.
    """

    valid_from: str
    valid_to: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that there are."""
        return (self.valid_from,) if self.valid_to is None else (self.valid_from, self.valid_to)

    def marked(self, columns: pa.Schema) -> pa.Schema:
        """The columns of a dimension, which are there, with marks that `version_columns` reads."""
        marks = dict(zip(self.names, (_VALID_FROM, _VALID_TO), strict=False))
        return pa.schema([_with(field, marks.get(field.name)) for field in columns])


def version_columns(columns: pa.Schema) -> VersionColumns | None:
    """Those that are marked in a dimension's schema; None if it has no versions."""
    valid_from = _name_of(columns, _VALID_FROM)
    return None if valid_from is None else VersionColumns(valid_from, _name_of(columns, _VALID_TO))


def _with(field: pa.Field, mark: dict[bytes, bytes] | None) -> pa.Field:
    return field if mark is None else field.with_metadata({**(field.metadata or {}), **mark})


def _name_of(columns: pa.Schema, mark: dict[bytes, bytes]) -> str | None:
    ((key, value),) = mark.items()
    return next((each.name for each in columns if (each.metadata or {}).get(key) == value), None)


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
