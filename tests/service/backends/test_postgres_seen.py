"""What a lookup saw, apart from its rows."""

import pytest

from lookup_core.freshness.table_snapshot import TableSnapshot
from service.connectors.postgres.rows import Column, split_seen, visible_snapshot


def plain(snapshot: TableSnapshot) -> tuple[int, int, list[int], bool]:
    """The parts of a snapshot."""
    listed = snapshot.in_progress.tolist()
    return snapshot.xmin, snapshot.xmax, listed, snapshot.is_of_standby


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("f 10:20:10,15", (10, 20, [10, 15], False)),
        ("t 10:20:", (10, 20, [], True)),
    ],
)
def test_text_tells_server_and_snapshot(text: str, parts: tuple[int, int, list[int], bool]) -> None:
    """Whether a standby answered stands before what its statement saw."""
    assert plain(visible_snapshot(text)) == parts


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ([(None, 1, 2), (None, "a", "b"), ("f 7:9:7", None, None)], [(1, 2), ("a", "b")]),
        ([(1, None), ("a", None), (None, "f 7:9:7")], [(1,), ("a",)]),
        ([(None,), (None,), ("f 7:9:7",)], [(), ()]),
    ],
)
def test_telling_row_is_none_of_the_rows(columns: list[Column], rows: list[Column]) -> None:
    """Wherever it stands, the row that tells the snapshot is taken out, and so is its column."""
    left, snapshot = split_seen(columns)

    assert left == rows
    assert plain(snapshot) == (7, 9, [7], False)
