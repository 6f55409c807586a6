"""Loading a Parquet file gives plain rows, or says what is wrong with which file and column."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.file import (
    FileIdentity,
    load_parquet_file,
    parquet_errors,
    parquet_identities,
    parquet_schema,
    unreplaced_files,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of airports."""
    path = tmp_path / "airports.parquet"
    pq.write_table(pa.table({"code": ["JFK"], "name": ["Kennedy"], "altitude": [13.5]}), path)
    return path


def fault_of(path: Path, key: Sequence[str], **columns: Any) -> tuple[ErrorCode, str]:  # noqa: ANN401
    """The code and the detail of the error that loading raises."""
    columns.setdefault("columns", None)
    with pytest.raises(BackendError) as caught:
        load_parquet_file(path, key, **columns)
    return caught.value.code, caught.value.detail


def test_all_columns_but_the_key(path: Path) -> None:
    """Without a list, the columns are those that are not in the key, in the file's order."""
    loaded = load_parquet_file(path, ["code"], columns=None)

    assert loaded.schema.key == pa.schema({"code": pa.utf8()})
    assert loaded.rows.to_pylist() == [{"name": "Kennedy", "altitude": 13.5}]


def test_schema_is_told_without_rows(path: Path) -> None:
    """Who only checks a file learns what loading it would tell, faults included."""
    loaded = load_parquet_file(path, ["code"], columns=None)

    assert parquet_schema(path, ["code"], columns=None) == loaded.schema
    with pytest.raises(BackendError, match="no column kode; did you mean code"):
        parquet_schema(path, ["kode"], columns=None)


def test_columns_come_as_listed(path: Path) -> None:
    """With a list, it decides on columns and order; it may name the key."""
    loaded = load_parquet_file(path, ["code"], columns=["altitude", "code"])

    assert loaded.rows.to_pylist() == [{"altitude": 13.5, "code": "JFK"}]
    assert loaded.schema.columns == loaded.rows.schema


def test_folder_of_files_is_one_table(tmp_path: Path) -> None:
    """A folder as Spark writes it is read as a whole, its partition columns included."""
    for year in (2013, 2014):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"k": [year], "v": ["x"]}), tmp_path / f"year={year}" / "0.parquet")

    loaded = load_parquet_file(tmp_path, ["k"], columns=None)

    assert sorted(loaded.rows.column("year").to_pylist()) == [2013, 2014]


def test_rows_lie_in_one_piece(tmp_path: Path) -> None:
    """Rows of several files are put together once, and not for every lookup."""
    for number in range(3):
        pq.write_table(pa.table({"id": [number], "name": ["x"]}), tmp_path / f"{number}.parquet")

    loaded = load_parquet_file(tmp_path, ["id"], columns=None)

    assert [column.num_chunks for column in loaded.rows.columns] == [1]
    assert loaded.rows.num_rows == 3


def test_stored_types_become_plain(tmp_path: Path) -> None:
    """Dictionaries and nanoseconds of a file come out as texts and microseconds."""
    instant = pa.array([dt.datetime(2013, 1, 1, tzinfo=dt.UTC)], pa.timestamp("ns", "UTC"))
    pq.write_table(
        pa.table({"k": pa.array(["a"]).dictionary_encode(), "t": instant}), tmp_path / "p"
    )

    loaded = load_parquet_file(tmp_path / "p", ["k"], columns=None)

    assert loaded.schema.key.field("k").type == pa.utf8()
    assert loaded.rows.schema.field("t").type == pa.timestamp("us", "UTC")


def test_missing_file_names_its_neighbour(path: Path) -> None:
    """A misspelt file is not there; the error names the one that was meant."""
    wrong = path.with_name("airport.parquet")

    expected = f"{wrong}: no such file; did you mean airports.parquet?"
    assert fault_of(wrong, ["code"]) == (ErrorCode.TABLE_UNAVAILABLE, expected)


def test_missing_column_names_the_nearest(path: Path) -> None:
    """A misspelt key or column is named, with the one that was meant."""
    in_key = fault_of(path, ["kode"])
    in_columns = fault_of(path, ["code"], columns=["nam"])

    assert in_key == (ErrorCode.TABLE_UNAVAILABLE, f"{path}: no column kode; did you mean code?")
    assert in_columns[1] == f"{path}: no column nam; did you mean name?"


def test_inexact_key_is_refused(path: Path) -> None:
    """A key of floating point would match by accident."""
    expected = f"{path}: altitude is double, which cannot be a key"

    assert fault_of(path, ["altitude"]) == (ErrorCode.TABLE_UNAVAILABLE, expected)


def test_nested_column_is_refused(tmp_path: Path) -> None:
    """A column that lookups cannot carry is named, so that others can be chosen."""
    pq.write_table(pa.table({"k": [1], "tags": [["a"]]}), tmp_path / "p")

    code, detail = fault_of(tmp_path / "p", ["k"])

    assert code is ErrorCode.TABLE_UNAVAILABLE
    assert "column tags is list<element: string>" in detail


def test_values_are_never_rounded(tmp_path: Path) -> None:
    """Nanoseconds that microseconds cannot hold make the file unusable, not wrong."""
    pq.write_table(pa.table({"k": [1], "t": pa.array([1], pa.timestamp("ns"))}), tmp_path / "p")

    code, detail = fault_of(tmp_path / "p", ["k"])

    expected = "column t is timestamp[ns] and does not fit timestamp[us] exactly"
    assert (code, detail) == (ErrorCode.TABLE_UNAVAILABLE, f"{tmp_path / 'p'}: {expected}")


def test_key_alone_offers_no_column(tmp_path: Path) -> None:
    """A file of nothing but the key needs its columns named."""
    pq.write_table(pa.table({"k": [1]}), tmp_path / "p")

    assert "no column besides the key" in fault_of(tmp_path / "p", ["k"])[1]


def test_unreadable_file_is_forbidden(path: Path) -> None:
    """A file that the process may not read is told apart from one that is not there."""
    with pytest.raises(BackendError) as caught, parquet_errors(path):
        raise PermissionError(13, "denied")

    assert caught.value.code is ErrorCode.FORBIDDEN
    assert caught.value.detail == f"{path}: may not be read"


def test_other_file_is_not_parquet(tmp_path: Path) -> None:
    """A file of another format is refused by name."""
    (tmp_path / "p").write_text("code,name\n")

    code, detail = fault_of(tmp_path / "p", ["code"])

    assert code is ErrorCode.TABLE_UNAVAILABLE
    assert "cannot be read as Parquet" in detail


def test_empty_folder_is_told(tmp_path: Path) -> None:
    """A folder in which there is no file is no table without rows."""
    expected = (ErrorCode.TABLE_UNAVAILABLE, f"{tmp_path}: no file is in this folder")

    assert fault_of(tmp_path, ["code"]) == expected


def test_files_are_known_by_their_identities(path: Path) -> None:
    """Of a file its own, of a folder those of all files in it; what is missing is told."""
    alone, inside = parquet_identities(path), parquet_identities(path.parent)
    path.unlink()

    assert alone == inside
    assert [type(each) for each in alone.values()] == [FileIdentity]
    with pytest.raises(BackendError, match="no such file"):
        parquet_identities(path)


def test_replaced_file_is_noticed_in_the_end(path: Path) -> None:
    """Who read while another file came has rows of either, and learns so; else of one file."""
    with unreplaced_files(path) as identities:
        pass
    with pytest.raises(BackendError) as caught, unreplaced_files(path):
        pq.write_table(pa.table({"code": ["EWR"]}), path)

    assert list(identities) == [str(path)]
    expected = f"{path}: was replaced while it was read"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.TABLE_UNAVAILABLE, expected)


def test_folder_is_listed_without_a_look_inside(path: Path) -> None:
    """Files that are hidden, as Spark's own are, are none of the table's; nor is one opened."""
    path.write_text("no Parquet")
    for name in ("_SUCCESS", ".airports.parquet.crc"):
        path.with_name(name).write_text("")

    assert list(parquet_identities(path.parent)) == [str(path)]
