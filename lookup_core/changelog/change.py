"""What a changelog tells: changes of single rows in columns, or of a table as a whole.

Values only: who decodes them stands in modules beside this one, who believes them elsewhere.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]

UNKNOWN_TRANSACTION = 0  # no transaction of PostgreSQL has this id


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of n rows in the order of their source; a key may be there more than once."""

    keys: pa.RecordBatch  # [n] the key's fields in exact types, without nulls
    has_row: Mask  # [n] the key's row is now the one in `rows`
    is_gone: Mask  # [n] the key has no row now; where neither: something changed, nobody says what
    rows: pa.RecordBatch  # [n] all columns of the dimension; meaningful where `has_row`
    transaction_ids: npt.NDArray[np.uint32]  # [n] the low 32 bits; or UNKNOWN_TRANSACTION


@dataclass(frozen=True, slots=True)
class TableChange:
    """Any row may have changed: it was truncated, or what changed cannot be told."""

    reason: str  # for the log
    transaction_id: int = UNKNOWN_TRANSACTION  # the low 32 bits


Change: TypeAlias = RowChanges | TableChange
