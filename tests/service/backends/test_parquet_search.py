"""Rows are found by reading little of a file, and they are those that an index over it finds."""

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.file import load_parquet_file, parquet_schema
from service.connectors.parquet.search import parquet_search
from service.connectors.ports.backend import FetchedRows

DAY = dt.datetime(2013, 1, 1)  # noqa: DTZ001 - a timestamp without a zone
STORED = {  # what a key is stored as: in the order of its values
    "int16": pa.array([-3, -2, 5, 7, None, 300], pa.int16()),
    "uint64": pa.array([0, 3, 2**63, 2**63 + 1, None, 2**64 - 1], pa.uint64()),
    "utf8": pa.array(["", "Z", "a", "ä", None, "\U0001f6e9"]),
    "dictionary": pa.array(["", "Z", "a", "ä", None, "z"]).dictionary_encode(),
    "binary": pa.array([b"", b"\x00", b"\x7f", b"\x80", None, b"\xff"]),
    "date64": pa.array([0, 86_400_000, 2 * 86_400_000, 3 * 86_400_000, None, 0], pa.date64()),
    "nanoseconds": pa.array([DAY, DAY, DAY, None, DAY, DAY], pa.timestamp("ns")),
    "instant": pa.array([0, 1, 2**40, None, 2**50, -5], pa.timestamp("us", "Europe/Berlin")),
    "decimal": pa.array([*map(Decimal, ("-1.5", "-0.1", "0.0", "2.0", "10.0")), None]),
    "boolean": pa.array([False, False, True, None, True, False]),
}


class Caller:
    """Waits for so many batches, and does something after the first."""

    def __init__(
        self, patience: float = math.inf, *, then: Callable[[], None] = lambda: None
    ) -> None:
        self.batches = 0
        self._patience = patience
        self._then = then

    def is_left(self) -> bool:
        """Asked for each batch."""
        self.batches += 1
        if self.batches == 1:
            self._then()
        return self.batches > self._patience


def search(
    path: Path,
    *key: str,
    among: Any,  # noqa: ANN401
    caller: Caller | None = None,
) -> FetchedRows:
    """What is found of the keys."""
    described = parquet_schema(path, key, columns=None)
    keys = pa.record_batch(among, schema=described.key)
    is_left = (caller or Caller()).is_left
    return parquet_search(path, keys, described=described, columns=None, is_left=is_left)


def test_composite_keys_are_found(tmp_path: Path) -> None:
    """Of the whole file only rows with the keys are kept."""
    rows = {"a": ["x", "x", "y", None, "x"], "b": [1, 2, 1, 1, 1], "v": [*"pqrst"]}
    pq.write_table(pa.table(rows), tmp_path / "p", row_group_size=2)

    found = search(tmp_path / "p", "a", "b", among=[["y", "x", "z"], [2, 1, 1]])

    assert found.ordinals.tolist() == [1, 1]
    assert found.rows.to_pylist() == [{"v": "p"}, {"v": "t"}]
    assert found.rows.schema == pa.schema({"v": pa.utf8()})


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_rows_are_those_of_an_index(tmp_path: Path, stored: pa.Array) -> None:
    """Whatever the key is stored as, and whatever is told of a row group's values."""
    rows = pa.table({"k": stored, "v": range(6)})
    pq.write_table(rows, tmp_path / "p", row_group_size=2)
    loaded = load_parquet_file(tmp_path / "p", ["k"], columns=None)
    values = stored.drop_null().unique().cast(loaded.schema.key[0].type)

    for keys in (values, *(values[at : at + 1] for at in range(len(values)))):
        among = pa.record_batch([keys], schema=loaded.schema.key)
        found = search(tmp_path / "p", "k", among=[keys])

        expected = loaded.find(among)
        assert found.ordinals.tolist() == expected.ordinals.tolist()
        assert found.rows == expected.rows


def test_folder_tells_its_keys(tmp_path: Path) -> None:
    """What the path says counts, not what a file says of its own column of that name."""
    (tmp_path / "year=2013").mkdir()
    inside = pa.table({"year": pa.array([0, 0], pa.int32()), "id": [1, 2]})
    pq.write_table(inside, tmp_path / "year=2013" / "p")

    of_path, of_file = (search(tmp_path, "year", among=[[year]]) for year in (2013, 0))

    assert (of_path.rows["id"].to_pylist(), of_file.rows["id"].to_pylist()) == ([1, 2], [])


def test_file_without_the_key_has_no_rows(tmp_path: Path) -> None:
    """Files of one folder need not have the same columns."""
    pq.write_table(pa.table({"id": [1], "v": ["a"]}), tmp_path / "1")
    pq.write_table(pa.table({"v": ["b"]}), tmp_path / "2")

    assert search(tmp_path, "id", among=[[1, 2]]).rows.to_pylist() == [{"v": "a"}]


def test_only_what_may_have_the_key_is_read(tmp_path: Path) -> None:
    """Nothing of row groups whose bounds exclude it; of one that has not got it, the keys alone."""
    rows = pa.table({"id": [0, 10, 20, 30, 21, 40], "v": range(6)})
    pq.write_table(rows, tmp_path / "p", row_group_size=2)
    read = {}

    for key in (99, 25, 30):
        caller = Caller()
        found = search(tmp_path / "p", "id", among=[[key]], caller=caller)
        read[key] = (caller.batches, found.rows["v"].to_pylist())

    assert read == {99: (0, []), 25: (2, []), 30: (3, [3])}


def test_search_ends_when_nobody_waits(tmp_path: Path) -> None:
    """Not with the file but with the batch, of keys or of rows; what was found is nobody's."""
    pq.write_table(pa.table({"id": [1, 1], "v": [*"ab"]}), tmp_path / "p", row_group_size=1)

    for batches in range(4):
        with pytest.raises(BackendError) as caught:
            search(tmp_path / "p", "id", among=[[1]], caller=Caller(batches))
        assert caught.value.code is ErrorCode.TIMEOUT


def test_two_folders_are_not_mixed(tmp_path: Path) -> None:
    """A link that is moved while its folder is searched makes the rows found those of neither."""
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        for name in "ab":
            pq.write_table(pa.table({"id": [1], "v": [folder]}), tmp_path / folder / name)
    link = tmp_path / "link"
    link.symlink_to("old")

    def move() -> None:
        link.unlink()
        link.symlink_to("new")

    with pytest.raises(BackendError) as caught:
        search(link, "id", among=[[1]], caller=Caller(then=move))

    expected = f"{link}: was replaced while it was read"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.TABLE_UNAVAILABLE, expected)
    assert search(link, "id", among=[[1]]).rows["v"].to_pylist() == ["new", "new"]


def test_other_columns_are_not_searched(tmp_path: Path) -> None:
    """Rows of a file that is not what was described are rows of no dimension."""
    path = tmp_path / "p"
    pq.write_table(pa.table({"code": ["JFK"], "name": ["Kennedy"], "altitude": [13]}), path)
    described = parquet_schema(path, ["code"], columns=["name"])
    keys = pa.record_batch([["JFK"]], schema=described.key)

    with pytest.raises(BackendError) as caught:
        parquet_search(path, keys, described=described, columns=["altitude"], is_left=lambda: False)

    expected = f"{path}: has other columns than when it was described"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.SCHEMA_CHANGED, expected)
