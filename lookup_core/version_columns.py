"""Which columns say from when to when a row of a key is valid, for lookups as of a time.

Names and marks only: which version is valid at a time is `operator.version_pick`'s to find.
"""

from dataclasses import dataclass

import pyarrow as pa

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
