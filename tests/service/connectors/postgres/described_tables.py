"""Tables as the catalog describes them, and arrays as a server sends them."""

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lookup_core.dimension_schema import TableOrigin
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.typed_keys import UUID_FIELD
from service.connectors.postgres.column_types import KeySending, PostgresType, column_reading
from service.connectors.postgres.queries import Bound, key_columns
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.snapshot import ExportedSnapshot, PostgresSnapshotSplit
from service.connectors.postgres.table import PostgresTable

ID = ("id", KeySending(pa.field("id", pa.int64()), "int8"))
HOUR = ("hour", KeySending(pa.field("hour", pa.timestamp("us", "UTC")), "timestamptz"))
ITEM = ("item", KeySending(pa.field("item", pa.binary(16), metadata=UUID_FIELD), "uuid"))
LIMIT = ("limit", KeySending(pa.field("limit", pa.decimal128(5, 2)), "numeric"))
NO_SERVER = PostgresSettings("postgresql://postgres@/none?host=/nowhere", "prices", ("item",))


def builtin(name: str) -> PostgresType:
    """A type of pg_catalog without modifiers."""
    return PostgresType(name, is_builtin=True)


def array_of(kind: PostgresType) -> PostgresType:
    """Arrays of a type."""
    return replace(kind, is_array=True)


def numeric(precision: int, scale: int) -> PostgresType:
    """A numeric with the modifier of the catalog."""
    return PostgresType("numeric", is_builtin=True, modifier=(precision << 16 | scale & 0x7FF) + 4)


def table_of(*kinds: PostgresType) -> PostgresTable:
    """A table whose columns c0, c1 and so on have these types."""
    columns = tuple((f"c{number}", column_reading(kind)) for number, kind in enumerate(kinds))
    return PostgresTable(TableOrigin("public", "things"), (ID,), columns)


# A composite key, and columns that are read in different ways.
WEATHER = PostgresTable(
    TableOrigin("public", "we ather"),
    keys=(("origin", KeySending(pa.field("origin", pa.utf8()), "text")), HOUR),
    columns=(
        ("temp", column_reading(builtin("float8"))),
        ("notes", column_reading(builtin("jsonb"))),
    ),
)
# A primary key with the columns of the key in another order.
PRICES = PostgresTable(
    TableOrigin("public", "pri ces"),
    keys=(ITEM, LIMIT),
    columns=(("price", column_reading(builtin("int4"))),),
    primary_key=("limit", "item"),
)


def split_of(bounds: Sequence[Bound | None]) -> PostgresSnapshotSplit:
    """A split of PRICES with these bounds."""
    visibility = TableSnapshot(1, 1, np.zeros(0, np.uint32))
    snapshot = ExportedSnapshot(PRICES, key_columns(PRICES), "1-1", visibility, ServerIdentity())
    return PostgresSnapshotSplit("range 1", snapshot, list(bounds), total=None)


def sent_array(values: Sequence[float | None], code: str, *, oid: int) -> bytes:
    """Values of one width, in the format of `struct` with this code."""
    header = struct.pack(">5i", 1, None in values, oid, len(values), 1)
    return header + b"".join(_element(value, code) for value in values)


def sent_bytes(values: Sequence[bytes | None]) -> bytes:
    """Values of any length: their lengths, then the values."""
    lengths = [None if value is None else len(value) for value in values]
    return sent_array(lengths, "i", oid=23) + b"".join(value or b"" for value in values)


def _element(value: float | None, code: str) -> bytes:
    if value is None:
        return struct.pack(">i", -1)
    return struct.pack(f">i{code}", struct.calcsize(f">{code}"), value)
