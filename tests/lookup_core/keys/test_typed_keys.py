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
