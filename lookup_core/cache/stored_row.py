"""One row of a `RowStore`: where it can be read now, and what leads back to it later.

Holds no row: whoever keeps columns keeps all rows of their segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row in all columns of its segment; to be read at once."""

    columns: Sequence[pa.Array]
    at: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row is stored, to be kept: no other row is ever found there."""

    era: object  # in which slots and addresses mean the same
    slot: int
    address: int
