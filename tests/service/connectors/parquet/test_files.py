"""Parquet files: schema and rows of a file or folder, refused files, and the thread of reads."""

import asyncio
import datetime as dt
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.file import (
    is_key_type,
    load_parquet_file,
    parquet_errors,
    parquet_identities,
    parquet_schema,
    plain_type,
)
from service.connectors.parquet.file_thread import FileThread, IsAbandoned
from service.connectors.parquet.rows import opened_rows, parquet_batches, row_fields
from service.file_identity import FileIdentity

PATIENCE_S = 10.0
SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
FIELDS = pa.schema([*SCHEMA.key, *SCHEMA.columns])
HUNG = """
import asyncio, pathlib, threading
from service.connectors.parquet.file_thread import FileThread

async def main():
    thread = FileThread(pathlib.Path("file"))
    try:
        await thread.run(lambda _: threading.Event().wait(), timeout_s=0.01)
    finally:
        thread.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of airports."""
    path = tmp_path / "airports.parquet"
    pq.write_table(pa.table({"code": ["JFK"], "name": ["Kennedy"], "altitude": [13.5]}), path)
    return path


def write(path: Path, **columns: Any) -> Path:  # noqa: ANN401
    """A file of these columns in this folder."""
    pq.write_table(pa.table(columns), path / "p")
    return path / "p"


def repeated(path: Path, name: str, rows: int = 5_000, **options: int) -> Path:
    """A file whose rows all have this name, which is stored once."""
    names = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [name])
    pq.write_table(pa.table({"id": range(rows), "name": names}), path / "p", **options)
    return path / "p"


def batches(path: Path, schema: DimensionSchema = SCHEMA) -> list[pa.RecordBatch]:
    """All rows of the file or folder."""
    found = ds.dataset(path, format="parquet", partitioning="hive" if path.is_dir() else None)
    return [each for part in found.get_fragments() for each in parquet_batches(part, schema)]


def steps(path: Path, group: int = 0, fields: pa.Schema = FIELDS) -> list[int]:
    """The number of rows of each step through the row group."""
    (fragment,) = ds.dataset(path).get_fragments()
    with opened_rows(fragment) as rows:
        return [batch.num_rows for batch in rows.steps(group, fields)]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (None, [{"name": "Kennedy", "altitude": 13.5}]),
        (["altitude", "code"], [{"altitude": 13.5, "code": "JFK"}]),
    ],
)
def test_columns_default_to_all(
    path: Path, columns: list[str] | None, rows: list[dict[str, object]]
) -> None:
    """A file offers the listed columns, or all but the key; its schema needs no rows."""
    loaded = load_parquet_file(path, ["code"], columns=columns)

    assert loaded.rows.to_pylist() == rows
    assert loaded.schema == parquet_schema(path, ["code"], columns=columns)
    assert loaded.schema.key == pa.schema({"code": pa.utf8()})


def test_folder_is_one_table(tmp_path: Path) -> None:
    """A folder is one table with its partition columns, in one chunk."""
    for year in (2013, 2014):
        (tmp_path / f"year={year}").mkdir()
        write(tmp_path / f"year={year}", k=[year], v=["x"])

    loaded = load_parquet_file(tmp_path, ["k"], columns=None)

    assert sorted(loaded.rows.column("year").to_pylist()) == [2013, 2014]
    assert [column.num_chunks for column in loaded.rows.columns] == [1, 1]


@pytest.mark.parametrize(
    ("stored", "plain"),
    [
        (pa.int64(), pa.int64()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.large_utf8(), pa.utf8()),
        (pa.binary_view(), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.dictionary(pa.int32(), pa.large_utf8()), pa.utf8()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.decimal256(38, 4), pa.decimal128(38, 4)),
        *((kind, pa.time64("us")) for kind in (pa.time32("s"), pa.time64("us"), pa.time64("ns"))),
        *((kind, None) for kind in (pa.list_(pa.int64()), pa.decimal256(39, 0), pa.duration("s"))),
        *((kind, None) for kind in (pa.null(), pa.uuid())),
    ],
    ids=str,
)
def test_stored_types_have_a_plain_type(stored: pa.DataType, plain: pa.DataType | None) -> None:
    """Each flat type has a plain type that holds its values; other types have none."""
    assert plain_type(stored) == plain


@pytest.mark.parametrize(
    ("kind", "is_key"),
    [
        *((kind, True) for kind in (pa.int8(), pa.int64(), pa.utf8(), pa.binary(), pa.binary(16))),
        *((kind, True) for kind in (pa.bool_(), pa.date32(), pa.timestamp("us", "UTC"))),
        (pa.decimal128(38, 9), True),
        *((kind, False) for kind in (pa.float32(), pa.float64(), pa.null(), pa.time64("us"))),
        (pa.list_(pa.int64()), False),
    ],
    ids=str,
)
def test_keys_have_exact_equality(kind: pa.DataType, *, is_key: bool) -> None:
    """A type with exact equality may be a key; floating point and other types may not."""
    assert is_key_type(kind) is is_key


@pytest.mark.parametrize(
    ("file", "name", "columns", "reason"),
    [
        (None, "", None, "the folder has no files"),
        (b"code,name\n", "p", None, "cannot be read as Parquet ("),
        ({"k": [1], "v": [2]}, "q", None, "no such file"),
        ({"k": [1], "v": [2]}, "pp.parquet", None, "no such file; did you mean p.parquet?"),
        ({"kk": [1], "v": [2]}, "p", None, "no column k; did you mean kk?"),
        ({"k": [1], "name": [2]}, "p", ["nam"], "no column nam; did you mean name?"),
        ({"k": [1.5], "v": [2]}, "p", None, "k is double, which cannot be a key"),
        (
            {"k": [1], "v": [["a"]]},
            *("p", None, "column v is list<element: string>, which lookups do not support; list"),
        ),
        ({"k": [dt.time(1)], "v": [2]}, "p", None, "k is time64[us], which cannot be a key"),
        (
            {"k": [1], "t": pa.array([1], pa.timestamp("ns"))},
            *("p", None, "column t is timestamp[ns] and does not fit timestamp[us] exactly"),
        ),
        ({"k": [1]}, "p", None, "no column other than the key"),
    ],
)
def test_unfit_files_are_refused(
    tmp_path: Path,
    file: dict[str, Any] | bytes | None,
    name: str,
    columns: list[str] | None,
    reason: str,
) -> None:
    """A file that cannot be looked up exactly is refused with a reason and the nearest name."""
    for stored in ("p", "p.parquet"):
        if isinstance(file, bytes):
            (tmp_path / stored).write_bytes(file)
        elif file is not None:
            pq.write_table(pa.table(file), tmp_path / stored)

    with pytest.raises(BackendError) as caught:
        load_parquet_file(tmp_path / name, ["k"], columns=columns)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert caught.value.detail.startswith(f"{tmp_path / name}: {reason}")


def test_unreadable_file_is_forbidden(path: Path) -> None:
    """A file without the permission to read it is forbidden."""
    with pytest.raises(BackendError) as caught, parquet_errors(path):
        raise PermissionError(13, "denied")

    assert (caught.value.code, caught.value.detail) == (
        ErrorCode.FORBIDDEN,
        f"{path}: permission denied",
    )


def test_replaced_file_has_another_identity(path: Path) -> None:
    """A file that is written or replaced has another identity; hidden files do not count."""
    alone, inside = parquet_identities(path), parquet_identities(path.parent)
    for name in ("_SUCCESS", ".airports.parquet.crc", "other"):
        path.with_name(name).write_text("")
    os.utime(path, ns=(0, 1))
    touched = FileIdentity.of(path)
    path.with_name("other").replace(path)
    listed = list(parquet_identities(path.parent))

    assert (alone, listed) == (inside, [str(path)])
    assert len({*alone.values(), touched, FileIdentity.of(path)}) == 3
    path.unlink()
    with pytest.raises(BackendError, match="no such file"):
        parquet_identities(path)


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("x", 5_000, [4_096, 904]),
        ("x" * 8_000, 2_500, [1_046, 1_046, 408]),  # as many as 8 MiB hold
        ("x" * 50_000, 1_200, [512, 512, 176]),
    ],
    ids=["narrow", "wide", "widest"],
)
def test_steps_have_bounded_bytes(
    tmp_path: Path, name: str, rows: int, expected: list[int]
) -> None:
    """A row group is read in steps of bounded bytes, by the width of its first rows."""
    path = repeated(tmp_path, name, rows)

    assert steps(path) == expected
    assert sum(steps(path, fields=SCHEMA.key)) == rows


def test_row_groups_are_read_alone(tmp_path: Path) -> None:
    """Each row group has its own steps, even if it is short or empty; a key is read once."""
    path = repeated(tmp_path, "x", 700, row_group_size=600)
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "none")
    schema = DimensionSchema(SCHEMA.key, pa.schema([*FIELDS][::-1]))

    assert [steps(path, group) for group in (0, 1)] == [[600], [100]]
    assert (steps(tmp_path / "none"), batches(tmp_path / "none")) == ([], [])
    assert row_fields(schema) == FIELDS


def test_batches_keep_the_order(tmp_path: Path) -> None:
    """Batches have the rows of all row groups in their order, in the schema's types."""
    names = pa.array(["x"] * 40_000).dictionary_encode()
    table = pa.table({"name": names, "id": pa.array(range(40_000), pa.int32())})
    pq.write_table(table, tmp_path / "p", row_group_size=15_000)

    found = batches(tmp_path / "p")

    assert [batch.num_rows for batch in found] == [19_096, 19_096, 1_808]
    assert pa.Table.from_batches(found).column("id").to_pylist() == [*range(40_000)]
    assert found[0].schema == FIELDS


def test_files_may_differ_in_columns(tmp_path: Path) -> None:
    """A missing column is null, the path replaces a column, and no value is rounded."""
    schema = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8(), "year": pa.int32()}))
    (tmp_path / "year=2013").mkdir()
    write(tmp_path / "year=2013", id=[1, 2], year=pa.array([0, 0], pa.int32()))
    large = write(tmp_path, id=pa.array([2**63], pa.uint64()), name=["x"])

    (found,) = batches(tmp_path / "year=2013", schema)
    (partitioned,) = [
        batch
        for part in ds.dataset(tmp_path, partitioning="hive").get_fragments()
        if "2013" in part.path
        for batch in parquet_batches(part, schema)
    ]

    assert found.to_pydict() == {"id": [1, 2], "name": [None, None], "year": [0, 0]}
    assert partitioned.column("year").to_pylist() == [2013, 2013]
    with pytest.raises(pa.ArrowInvalid, match="not in range"):
        batches(large)


def gated(
    begun: threading.Event, gate: threading.Event, left: list[bool]
) -> Callable[[IsAbandoned], str]:
    """A call that waits for the gate and notes whether its caller waits."""

    def call(is_abandoned: IsAbandoned) -> str:
        left.append(is_abandoned())
        begun.set()
        gate.wait(PATIENCE_S)
        left.append(is_abandoned())
        if left[-1]:
            raise ValueError(left)
        return threading.current_thread().name

    return call


async def test_calls_share_one_thread() -> None:
    """Calls run one by one in one thread, where an abandoned call ends before the next call."""
    thread, gate, begun = FileThread(Path("file")), threading.Event(), threading.Event()
    left: list[bool] = []
    asyncio.get_running_loop().call_soon(begun.wait, PATIENCE_S)  # blocks until it begins

    with pytest.raises(BackendError) as caught:
        await thread.run(gated(begun, gate, left), timeout_s=0.01)
    gate.set()
    names = [await thread.run(gated(begun, gate, []), timeout_s=PATIENCE_S) for _ in range(2)]
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda _: 1 // 0, timeout_s=PATIENCE_S)
    thread.close()

    assert (caught.value.code, caught.value.detail) == (
        ErrorCode.TIMEOUT,
        "file: not read within 0.01 s",
    )
    assert (left, names[0]) == ([False, True], names[1])
    assert names[0] != threading.current_thread().name


async def test_closed_thread_starts_no_call() -> None:
    """Closing leaves the running call to its thread and cancels the calls behind it."""
    thread, gate, begun = FileThread(Path("file")), threading.Event(), threading.Event()

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(thread.run(gated(begun, gate, []), timeout_s=PATIENCE_S))
        second = tasks.create_task(thread.run(lambda _: None, timeout_s=PATIENCE_S))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        thread.close()
        gate.set()

    assert (first.result(), second.cancelled()) == ("file", True)


def test_process_ends_during_a_read() -> None:
    """A read that never ends does not keep the process from exiting."""
    ended = subprocess.run(
        [sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 1
    assert ended.stderr.endswith("BackendError: timeout: file: not read within 0.01 s\n")
