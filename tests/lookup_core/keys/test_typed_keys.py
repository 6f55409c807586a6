"""Keys in exact types beside what is wrong with single ones."""

import numpy as np
import pyarrow as pa

from lookup_core.errors import ErrorCode
from lookup_core.keys.typed_keys import TypedKeys


def test_size_counts_every_key() -> None:
    """Duplicates, nulls and faulty keys are keys of the request, too."""
    columns = pa.record_batch({"id": pa.array([7, 7, None, None])})

    keys = TypedKeys(columns, np.array([2], np.int32), {3: ErrorCode.TYPE})

    assert keys.size == 4


def test_part_of_all_is_all() -> None:
    """A part that every key is in is what it is a part of."""
    keys = TypedKeys(pa.record_batch({"id": [7, 8]}), np.zeros(0, np.int32), {})

    assert keys.part(0, 2) is keys
    assert keys.part(1, 2).size == 1


def test_part_keeps_what_is_wrong() -> None:
    """A part counts its positions from its start, and has the nulls and faults that lie in it."""
    columns = pa.record_batch({"id": pa.array([7, None, None, 8, None])})
    faults = {2: ErrorCode.TYPE, 4: ErrorCode.KEY_TOO_LARGE}
    keys = TypedKeys(columns, np.array([1], np.int32), faults)

    first, rest = keys.part(0, 2), keys.part(2, 10)

    assert (first.columns, first.nulls.tolist(), first.faults) == (columns.slice(0, 2), [1], {})
    assert (rest.columns, rest.nulls.tolist()) == (columns.slice(2), [])
    assert rest.faults == {0: ErrorCode.TYPE, 2: ErrorCode.KEY_TOO_LARGE}
