"""Pages on their way to Arrow."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.snapshot_queries import postgres_snapshot_rows
from tests.service.backends.sent_arrays import sent_array, sent_bytes
from tests.service.sources.snapshot_tables import PRICES

FIRST, SECOND = b"0123456789abcdef", b"fedcba9876543210"
LIMITS = [b"1.50", None]


def test_page_becomes_keys_and_columns() -> None:
    """Keys are in the dimension's exact types; each row is one that is there."""
    blocks = [
        sent_array([1, 1], "q", oid=20),
        sent_bytes([FIRST, SECOND]),
        sent_bytes([b"1.50", b"2.00"]),
        sent_array([7, None], "i", oid=23),
    ]

    changes = postgres_snapshot_rows(blocks, PRICES)

    assert changes.keys.schema.equals(PRICES.schema.key, check_metadata=True)
    assert [key["item"] for key in changes.keys.to_pylist()] == [FIRST, SECOND]
    assert changes.rows == pa.record_batch({"price": pa.array([7, None], pa.int32())})
    assert (changes.has_row.tolist(), changes.is_gone.tolist()) == ([True] * 2, [False] * 2)
    assert np.array_equal(changes.transaction_ids, [0, 0])


def test_keys_that_nobody_can_have_are_left_out() -> None:
    """A value that the key's type cannot hold was read as null; no lookup finds such a row."""
    blocks = [
        sent_array([1, 1], "q", oid=20),
        sent_bytes([FIRST, SECOND]),
        sent_bytes(LIMITS),
        sent_array([7, 8], "i", oid=23),
    ]

    changes = postgres_snapshot_rows(blocks, PRICES)

    assert changes.rows.to_pylist() == [{"price": 7}]
    assert (len(changes.has_row), len(changes.is_gone), len(changes.transaction_ids)) == (1, 1, 1)


def test_empty_page_has_no_rows() -> None:
    """A range may have lost all of its rows; the types are the same."""
    changes = postgres_snapshot_rows([None] * 4, PRICES)

    assert changes.keys.num_rows == changes.rows.num_rows == 0
    assert changes.rows.schema == PRICES.schema.columns


def test_other_columns_are_not_taken() -> None:
    """What does not fit the described table is an error that asks to describe it anew."""
    ordinals = sent_array([1], "q", oid=20)
    blocks = [ordinals, sent_bytes([FIRST]), sent_bytes([b"1"]), sent_array([1.0], "d", oid=701)]

    with pytest.raises(BackendError) as caught:
        postgres_snapshot_rows(blocks, PRICES)

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED
