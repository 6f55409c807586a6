"""Lookups as of a time on the client's side: whether they may be, and which columns they have.

Which version a record gets is picked in the core (`operator.version_pick`).
"""

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest, ProtocolViolation
from lookup_core.operator.as_of import NEVER_US, AsOf, VersionPick, is_moment, moments_us


@dataclass(frozen=True, slots=True)
class AsOfPlan:
    """How the records of one partition find their versions."""

    column: int  # of the times, position in the records
    pick: VersionPick

    def of(self, records: pa.RecordBatch) -> AsOf:
        """The times of these records."""
        return AsOf(moments_us(records.column(self.column), null_us=NEVER_US), self.pick)


def check_versions(versions: VersionColumns | None, *, is_as_of: bool, dimension: str) -> None:
    """Raise InvalidRequest if only one of them knows of times, the lookup or the dimension."""
    if is_as_of and versions is None:
        raise InvalidRequest(
            ErrorCode.BAD_REQUEST,
            f"{dimension!r} has no versions, or its sidecar is too old for them; leave as_of out",
        )
    if versions is not None and not is_as_of:
        raise InvalidRequest(
            ErrorCode.BAD_REQUEST,
            f"{dimension!r} has versions ({', '.join(versions.names)}): say by"
            " lookup_join(as_of=…) which column of the records has the time that they are for",
        )


def single_columns(lists: pa.Schema) -> pa.Schema:
    """What lists of versions become beside a record."""
    return pa.schema([pa.field(field.name, _list_type(field).value_type) for field in lists])


def list_columns(columns: pa.Schema, sent: pa.Schema) -> pa.Schema:
    """The lists in which these columns come, and behind them what else is sent, as it is."""
    wanted = [pa.field(field.name, pa.list_(field.type)) for field in columns]
    return pa.schema([*wanted, *list(sent)[len(columns) :]])


def version_pick(lists: pa.Schema, columns: pa.Schema, versions: VersionColumns) -> VersionPick:
    """Where the times of the versions stand; raises ProtocolViolation if they do not."""
    for name in versions.names:
        if name not in lists.names or not is_moment(_list_type(lists.field(name)).value_type):
            raise ProtocolViolation(ErrorCode.BAD_FRAME, f"versions without times in {name!r}")
    positions = [lists.get_field_index(name) for name in versions.names]
    return VersionPick(columns, positions[0], positions[1] if len(positions) > 1 else None)


def _list_type(field: pa.Field) -> pa.ListType:
    if not types.is_list(field.type):
        raise ProtocolViolation(
            ErrorCode.BAD_FRAME, f"column {field.name!r} is no list of versions"
        )
    return field.type
