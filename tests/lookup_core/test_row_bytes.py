"""What each row of a batch takes in memory."""

import pyarrow as pa

from lookup_core.row_bytes import row_bytes


def test_varying_and_fixed_columns_add_up() -> None:
    """Texts and bytes count by length, NULL as nothing, the others by their width."""
    rows = pa.record_batch(
        [
            pa.array(["abc", None, "é"]),
            pa.array([b"12", b"", None], pa.large_binary()),
            pa.array([1, 2, None], pa.int32()),
            pa.array([True, False, None]),
        ],
        ["text", "bytes", "number", "flag"],
    )

    assert row_bytes(rows).tolist() == [3 + 2 + 4 + 1, 4 + 1, 2 + 4 + 1]


def test_no_columns_take_nothing() -> None:
    """Rows that only say that they exist are free."""
    assert row_bytes(pa.record_batch([], [])).tolist() == []
