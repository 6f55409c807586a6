"""As-of lookups in the client: validation, and the schemas of columns that are lists.

The version of a record is selected in `lookup_core.operator.as_of`.
"""

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import bad_frame
from lookup_core.operator.as_of import NEVER_US, AsOf, VersionPick, is_moment, moments_us


@dataclass(frozen=True, slots=True)
class AsOfPlan:
    """The time column of one partition's records, and the selection of versions."""

    column: int  # the records' column with the times
    pick: VersionPick

    def times(self, records: pa.RecordBatch) -> AsOf:
        """The times of these records."""
        return AsOf(moments_us(records.column(self.column), null_us=NEVER_US), self.pick)


def single_columns(lists: pa.Schema) -> pa.Schema:
    """The columns of one version or row, from lists of them."""
    return pa.schema([pa.field(field.name, _list_type(field).value_type) for field in lists])


def list_columns(columns: pa.Schema, sent: pa.Schema) -> pa.Schema:
    """These columns as lists, and behind them the other sent columns unchanged."""
    wanted = [pa.field(field.name, pa.list_(field.type)) for field in columns]
    return pa.schema([*wanted, *list(sent)[len(columns) :]])


def version_pick(lists: pa.Schema, columns: pa.Schema, versions: VersionColumns) -> VersionPick:
    """The positions of the versions' times; ProtocolViolation if a column is no list of times."""
    for name in versions.names:
        if name not in lists.names or not is_moment(_list_type(lists.field(name)).value_type):
            raise bad_frame(f"versions without times in {name!r}")
    positions = list(map(lists.get_field_index, versions.names))
    return VersionPick(columns, positions[0], positions[1] if len(positions) > 1 else None)


def _list_type(field: pa.Field) -> pa.ListType:
    if not types.is_list(field.type):
        detail = f"column {field.name!r} is no list of rows"
        raise bad_frame(detail)
    return field.type
