"""A table that is read as a whole, as the catalog would describe it, and splits of it."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.key_casts import UUID_FIELD
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.snapshot_queries import (
    Bound,
    PostgresSnapshotSplit,
    TablePicture,
    key_columns,
)
from service.connectors.postgres.table import (
    KeySending,
    PostgresTable,
    PostgresType,
    column_reading,
)

PRICES = PostgresTable(
    schema_name="public",
    name="pri ces",
    keys=(
        ("item", KeySending(pa.field("item", pa.binary(16), metadata=UUID_FIELD), "uuid")),
        ("limit", KeySending(pa.field("limit", pa.decimal128(5, 2)), "numeric")),
    ),
    columns=(("price", column_reading(PostgresType("int4", is_builtin=True))),),
    primary_key=("limit", "item"),
)
# Nothing is there.
NOWHERE = PostgresSettings("postgresql://postgres@/none?host=/nowhere", "prices", ("item", "limit"))


def split_of(bounds: Sequence[Bound | None]) -> PostgresSnapshotSplit:
    """A split with these bounds."""
    snapshot = TableSnapshot(1, 1, np.zeros(0, np.uint32))
    picture = TablePicture(PRICES, key_columns(PRICES), "1-1", snapshot)
    return PostgresSnapshotSplit("range 1", picture, bounds, total=None)
