"""Schema of a dimension: exact Arrow types of key and columns, version columns, origin table."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lookup_core.errors import ErrorCode, InvalidRequest, nearest_name
from lookup_core.freshness.server_identity import UNKNOWN_SERVER, ServerEpoch

# Field metadata inside the service; OPENED has the names instead.
_VALID_FROM = {b"sidelook.versions": b"valid_from"}
_VALID_TO = {b"sidelook.versions": b"valid_to"}


@dataclass(frozen=True, slots=True)
class VersionColumns:
    """The columns of a version's validity: [valid_from, valid_to); NULL is unbounded.

    Without `valid_to`, a version is valid until the next one of its key begins.
    """

    valid_from: str
    valid_to: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return (self.valid_from,) if self.valid_to is None else (self.valid_from, self.valid_to)

    def marked(self, columns: pa.Schema) -> pa.Schema:
        """The schema with the metadata that `version_columns` reads."""
        marks = dict(zip(self.names, (_VALID_FROM, _VALID_TO), strict=False))
        return pa.schema([_with(field, marks.get(field.name)) for field in columns])


def version_columns(columns: pa.Schema) -> VersionColumns | None:
    """The marked version columns of a schema; None without any."""
    valid_from = _name_of(columns, _VALID_FROM)
    return None if valid_from is None else VersionColumns(valid_from, _name_of(columns, _VALID_TO))


def _with(column: pa.Field, mark: dict[bytes, bytes] | None) -> pa.Field:
    return column if mark is None else column.with_metadata({**(column.metadata or {}), **mark})


def _name_of(columns: pa.Schema, mark: dict[bytes, bytes]) -> str | None:
    ((key, value),) = mark.items()
    return next((each.name for each in columns if (each.metadata or {}).get(key) == value), None)


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """The table of a dimension; names are unquoted."""

    schema_name: str
    table_name: str
    table_id: int = 0  # catalog oid: differs for another table of the same name
    reports_rows: bool = False  # a row of its changelog always equals the row of a query
    has_full_identity: bool = False  # its changelog has all former values of a row
    loses_keys: bool = False  # its changelog may omit the former key of a row
    is_partitioned: bool = False  # attached and detached partitions change its rows
    # Several rows of a key have the order of a primary key.
    has_row_order: bool = field(default=False, compare=False)
    database: str | None = None
    is_subscribed: bool = False  # logical replication writes its rows
    # Differs if its rows look different, without a change of the schema; empty if not known.
    version: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Schema and table, as in changelogs."""
        return f"{self.schema_name}.{self.table_name}"

    def without_rows(self) -> "TableOrigin":
        """The origin of a dimension whose queries do not return rows of the table."""
        return replace(self, reports_rows=False)


@dataclass(frozen=True, slots=True)
class DimensionSchema:
    """The key fields in the order of the configuration, and the columns for lookups."""

    key: pa.Schema
    columns: pa.Schema
    origin: TableOrigin | None = None  # None: no changelog
    server: ServerEpoch = field(default=UNKNOWN_SERVER, compare=False)  # that described it

    @property
    def table_origin(self) -> TableOrigin:
        """The origin of a dimension that is a table of a database."""
        assert self.origin is not None
        return self.origin

    @property
    def key_text(self) -> str:
        """The key for people, such as `id int64, region string`."""
        return ", ".join(f"{field.name} {field.type}" for field in self.key)

    def select(self, names: Sequence[str] | None) -> pa.Schema:
        """The requested columns in the requested order; all columns for None.

        Raises InvalidRequest for an unknown or repeated name.
        """
        if names is None:
            return self.columns
        return pa.schema([self.columns.field(name) for name in self.select_names(names)])

    def select_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """The names of `select`, without the cost of a schema; raises like it."""
        if names is None:
            return tuple(self.columns.names)
        unknown = sorted(set(names).difference(self.columns.names))
        if unknown:
            raise InvalidRequest(ErrorCode.UNKNOWN_COLUMN, self._why_unknown(unknown))
        if len(set(names)) < len(names):
            raise InvalidRequest(ErrorCode.BAD_REQUEST, "each column may be requested only once")
        return tuple(names)

    def has_columns(self, names: Sequence[str] | None) -> bool:
        """Whether all of these columns exist; None: all columns."""
        return names is None or set(names) <= {*self.columns.names, *self.key.names}

    def select_versions(self, names: Sequence[str] | None) -> pa.Schema:
        """The requested columns, followed by the version columns that are not among them.

        Raises like `select`, and for a dimension without versions.
        """
        versions = version_columns(self.columns)
        if versions is None:
            raise InvalidRequest(ErrorCode.BAD_REQUEST, "it has no versions; omit as_of")
        requested = self.select(names)
        added = [name for name in versions.names if name not in requested.names]
        return pa.schema([*requested, *(self.columns.field(name) for name in added)])

    def is_same(self, other: "DimensionSchema") -> bool:
        """Whether names, order, exact types, metadata and origin are equal."""
        return (
            self.key.equals(other.key, check_metadata=True)
            and self.columns.equals(other.columns, check_metadata=True)
            and self.origin == other.origin
        )

    def has_rows_of(self, other: "DimensionSchema") -> bool:
        """Whether rows that were read with the other description still look the same."""
        return self.is_same(other) and (
            self.origin is None
            or other.origin is None
            or self.origin.version == other.origin.version
        )

    def still_offers(self, earlier: "DimensionSchema") -> bool:
        """Whether the key is the same, and all columns of `earlier` exist with the same type."""
        return self.key.equals(earlier.key, check_metadata=True) and all(
            field.name in self.columns.names and self.columns.field(field.name).equals(field)
            for field in earlier.columns
        )

    def _why_unknown(self, names: Sequence[str]) -> str:
        in_key = [name for name in names if name in self.key.names]
        if in_key:
            what = _columns(in_key, "is in the key; remove it", "are in the key; remove them")
            return f"{what} from columns="
        hint = nearest_name(names[0], self.columns.names)
        return f"{_columns(names, 'does', 'do')} not exist{hint}"


def _columns(names: Sequence[str], singular: str, plural: str) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"column {quoted} {singular}" if len(names) == 1 else f"columns {quoted} {plural}"
