"""The dimension that tests compare with."""

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode
from spark_client.fake_sidecar import FakeDimension

TABLE = pa.table({"a": [1, 1, 2], "b": ["x", "y", None], "name": ["1x", "1y", "2"]})
NAMES = pa.list_(pa.utf8())
DIMENSION = FakeDimension(TABLE, ("a", "b"), {(9, "e"): ErrorCode.TYPE})


def test_every_key_is_answered_once() -> None:
    """Hits with rows, the others without; a NULL in the key matches nothing."""
    keys = pa.record_batch({"a": [1, 9, 2, 1, None], "b": ["y", "e", None, "x", "x"]})

    hits, missing, failed = DIMENSION.answers(keys, ("name",))

    assert hits.rows is not None
    assert (hits.positions.tolist(), hits.rows.to_pydict()) == ([0, 3], {"name": ["1y", "1x"]})
    assert missing.positions.tolist() == [2, 4]
    assert (failed.positions.tolist(), failed.errors) == ([1], {1: ErrorCode.TYPE})
    assert np.unique(failed.outcomes).tolist() == [Outcome.ERROR]


def test_columns_are_all_but_the_key() -> None:
    """What may be asked for, also nothing at all."""
    keys = pa.record_batch({"a": [1], "b": ["x"]})

    (hit,) = DIMENSION.answers(keys, ())

    assert DIMENSION.columns == ("name",)
    assert hit.rows is not None
    assert (hit.size, hit.rows.num_columns) == (1, 0)


def test_versions_are_lists() -> None:
    """All rows of a key in the order in which they begin, NULL before all."""
    begins = pa.array([5, None, 3, 1], pa.timestamp("us"))
    table = pa.table({"id": [1, 1, 1, 2], "name": ["c", "a", "b", "x"], "since": begins})
    dimension = FakeDimension(table, ("id",), versions=VersionColumns("since"))

    hits, _ = dimension.answers(pa.record_batch({"id": [1, 3, 2]}), ("name",))

    assert hits.rows is not None
    assert hits.rows.schema == dimension.schema(("name",)) == pa.schema({"name": NAMES})
    assert hits.rows.to_pydict() == {"name": [["a", "b", "c"], ["x"]]}
