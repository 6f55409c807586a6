"""One load of a whole table; what becomes of its rows stands in `test_whole_table`."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.errors import BackendError
from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings
from tests.lookup_core.dimension.test_whole_table import SCHEMA, ids


def test_table_beyond_its_bound_is_refused() -> None:
    """What has no room is told, with the bound to raise."""
    cache = CacheSettings(mode=CacheMode.FULL, max_bytes=20_000)
    state = DimensionState(DimensionSettings("customers", cache=cache), SCHEMA)
    assert state.whole is not None
    load = state.whole.begin_load(1.0)
    names = pa.array(["x" * 100] * 1_000)
    every = np.ones(1_000, np.bool_)
    rows = RowChanges(
        ids(*range(1_000)),
        every,
        ~every,
        pa.record_batch([names], schema=SCHEMA.columns),
        np.zeros(1_000, np.uint32),
    )

    with pytest.raises(BackendError, match=r"cache\.max_bytes"):
        load.take([rows], None, now=2.0)
