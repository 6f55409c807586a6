"""What each row of a batch takes in memory."""

import pyarrow as pa

from lookup_core.row_bytes import most_row_bytes, row_bytes


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


def test_lists_count_their_values() -> None:
    """A list takes what its values take, in any slice; no list takes nothing."""
    rows = pa.record_batch(
        [
            pa.array([["far"], ["ab", None, "é"], None, [], ["x"]], pa.list_(pa.utf8())),
            pa.array([[1], [1, 2, 3], None, [], [None]], pa.list_(pa.int16())),
        ],
        ["texts", "numbers"],
    )

    assert row_bytes(rows).tolist() == [3 + 2, 4 + 6, 0, 0, 1 + 2]
    assert row_bytes(rows.slice(1, 3)).tolist() == [10, 0, 0]
    assert row_bytes(rows.slice(0, 0)).tolist() == []


def test_no_columns_take_nothing() -> None:
    """Rows that only say that they exist are free."""
    assert row_bytes(pa.record_batch([], [])).tolist() == []
    assert most_row_bytes(pa.record_batch([], [])) == 0


def test_largest_row_is_bounded_by_its_columns() -> None:
    """No row takes more than the largest values of all columns together, NULLs and lists too."""
    rows = pa.record_batch(
        [
            pa.array(["abc", None, "é"]),
            pa.array([[1], None, [1, 2, 3]], pa.list_(pa.int16())),
            pa.array([None, None, 7], pa.int32()),
        ],
        ["text", "list", "number"],
    )

    assert most_row_bytes(rows) == 3 + 6 + 4 >= row_bytes(rows).max()
    assert most_row_bytes(rows.slice(0, 0)) == 0
