"""Lookups in Parquet files: held in memory, or searched at each fetch; files may be replaced."""

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from lookup_core.dimension.dimension_events import MAX_QUERY_ROWS_BYTES, FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.backend import ParquetBackend, ParquetScan, parquet_search
from service.connectors.parquet.file import (
    ParquetFile,
    RowLimit,
    load_parquet_file,
    parquet_schema,
)
from service.connectors.ports.backend import Backend
from tests.hand_clock import HandClock
from tests.service.connectors.backend_contract import AIRPORTS, TIMEOUT_S

DAY = dt.datetime(2013, 1, 1)  # noqa: DTZ001 - a timestamp without a zone
STORED = {  # a key column of six rows: in the order of its values
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
BACKENDS = pytest.mark.parametrize("kind", [ParquetBackend, ParquetScan])
Kind = type[ParquetBackend] | type[ParquetScan]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of airports."""
    pq.write_table(AIRPORTS, tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def cut_off(path: Path) -> None:
    """Remove the end of the file."""
    path.write_bytes(path.read_bytes()[:-8])


def remove(path: Path) -> None:
    """Remove the file."""
    path.unlink()


async def fetched(backend: Backend, *codes: str) -> FetchedRows:
    """The rows of these airports."""
    keys = pa.record_batch([pa.array(codes, pa.utf8())], names=["code"])
    return await backend.fetch(keys, timeout_s=TIMEOUT_S)


def names(found: FetchedRows) -> list[str]:
    """The names of the rows."""
    found_names: list[str] = found.rows["name"].to_pylist()
    return found_names


@BACKENDS
async def test_file_may_come_later(tmp_path: Path, kind: Kind) -> None:
    """A missing file is reported until it exists."""
    path = tmp_path / "late.parquet"

    async with kind(path, ["code"]) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS, path)
        schema = await backend.describe(timeout_s=TIMEOUT_S)

    assert (caught.value.code, schema.key.names) == (ErrorCode.TABLE_UNAVAILABLE, ["code"])
    assert backend.uses_index is (kind is ParquetBackend)


@BACKENDS
async def test_replaced_file_is_used(path: Path, kind: Kind) -> None:
    """A fetch returns the rows of the file that is there now."""
    async with kind(path, ["code"]) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        before = await fetched(backend, "JFK", "EWR")
        pq.write_table(AIRPORTS.slice(1), path.with_name("other.parquet"))
        path.with_name("other.parquet").replace(path)
        after = await fetched(backend, "JFK", "EWR")

    assert (names(before), names(after)) == (["Kennedy", "Newark"], ["Newark"])
    assert after.ordinals.tolist() == [1]


@BACKENDS
async def test_changed_columns_need_description(path: Path, kind: Kind) -> None:
    """A file with other columns fails lookups until it is described again."""
    async with kind(path, ["code"]) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS.select(["code", "altitude"]), path)
        with pytest.raises(BackendError) as caught:
            await fetched(backend, "JFK")
        schema = await backend.describe(timeout_s=TIMEOUT_S)
        found = await fetched(backend, "JFK")

    expected = f"{path}: its columns changed since its schema was read"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.SCHEMA_CHANGED, expected)
    assert (schema.columns.names, found.rows.to_pylist()) == (["altitude"], [{"altitude": 13}])


@BACKENDS
async def test_read_ends_at_timeout(path: Path, kind: Kind) -> None:
    """A read that takes longer than its timeout fails."""
    async with kind(path, ["code"]) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=0.0)

    assert caught.value.code is ErrorCode.TIMEOUT


@BACKENDS
async def test_times_have_microseconds(tmp_path: Path, kind: Kind) -> None:
    """A column with times of day is looked up in microseconds, whatever its unit is."""
    at = dt.time(23, 59, 59)
    rows = {"k": [1], "s": pa.array([at], pa.time32("s")), "ns": pa.array([at], pa.time64("ns"))}
    pq.write_table(pa.table(rows), tmp_path / "p")

    async with kind(tmp_path / "p", ["k"]) as backend:
        schema = await backend.describe(timeout_s=TIMEOUT_S)
        found = await backend.fetch(pa.record_batch({"k": [1]}), timeout_s=TIMEOUT_S)

    assert schema.columns == pa.schema({"s": pa.time64("us"), "ns": pa.time64("us")})
    assert found.rows.to_pylist() == [{"s": at, "ns": at}]


async def test_unchanged_file_is_read_once(path: Path) -> None:
    """A file is read again only if it changed; its rows have the time of the check."""
    with capture_logs() as logs:
        async with ParquetBackend(path, ["code"], clock=iter(range(100)).__next__) as backend:
            await backend.describe(timeout_s=TIMEOUT_S)
            ages = [(await fetched(backend, "JFK")).read_at for _ in range(2)]

    assert [entry["event"] for entry in logs] == ["dimension.file_read"]
    assert ages == [1.0, 3.0]


async def test_unreadable_file_leaves_old_rows(path: Path) -> None:
    """While the file is unreadable, the old rows stay, with their age; the log says why, once."""
    clock = HandClock(100.0)
    with capture_logs() as logs:
        async with ParquetBackend(path, ["code"], clock=clock) as backend:
            schema = await backend.describe(timeout_s=TIMEOUT_S)
            cut_off(path)
            clock.now_s += 5.0
            kept = [await fetched(backend, "JFK")]
            assert await backend.describe(timeout_s=TIMEOUT_S) == schema
            pq.write_table(AIRPORTS.slice(1), path)
            kept.append(await fetched(backend, "JFK"))
            clock.now_s += 1.0  # the interval after a failure
            found = await fetched(backend, "JFK")

    assert [(names(each), each.read_at) for each in kept] == [(["Kennedy"], 100.0)] * 2
    assert (found.rows.num_rows, found.read_at) == (0, 106.0)
    events = [entry["event"] for entry in logs]
    assert events == ["dimension.file_read", "dimension.file_unavailable", "dimension.file_read"]
    assert str(path) in logs[1]["detail"]


async def test_replacement_during_load_keeps_rows(path: Path) -> None:
    """A file that is replaced during its load is not used; the next check reads again."""
    clock = HandClock(100.0)
    replacing = [AIRPORTS.slice(2), AIRPORTS.slice(1)]  # the last one during the load of the first

    def load(*args: Any, **kwargs: Any) -> ParquetFile:  # noqa: ANN401
        loaded = load_parquet_file(*args, **kwargs)
        if len(replacing) == 1:
            pq.write_table(replacing.pop(), path)
        return loaded

    async with ParquetBackend(path, ["code"], clock=clock, load=load) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        clock.now_s += 5.0
        pq.write_table(replacing.pop(0), path)
        with capture_logs() as logs:
            kept = await fetched(backend, "JFK", "EWR")
        clock.now_s += 5.0
        found = await fetched(backend, "JFK", "EWR")

    assert (names(kept), kept.read_at) == (["Kennedy", "Newark"], 100.0)
    assert [entry["detail"] for entry in logs] == [f"{path}: was replaced during the read"]
    assert (names(found), found.read_at) == (["Newark"], 110.0)


async def test_large_folder_is_checked_rarely(tmp_path: Path) -> None:
    """A folder of 100 files is checked every 20 ms; its rows have the time of the check."""
    for number in range(100):
        pq.write_table(AIRPORTS.slice(0, 1), tmp_path / f"{number:02}.parquet")
    clock, read = HandClock(100.0), []

    async with ParquetBackend(tmp_path, ["code"], clock=clock) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS.slice(1), tmp_path / "00.parquet")
        remove(tmp_path / "01.parquet")
        for later_s in (0.019, 0.002):
            clock.now_s += later_s
            found = await fetched(backend, "EWR")
            read.append((names(found), found.read_at))

    assert read == [([], 100.0), (["Newark"], clock.now_s)]


async def test_description_outlasts_the_file(path: Path) -> None:
    """A scan of a missing file keeps its description, logs the reason and fails lookups."""
    with capture_logs() as logs:
        async with ParquetScan(path, ["code"]) as backend:
            described = await backend.describe(timeout_s=TIMEOUT_S)
            remove(path)
            again = await backend.describe(timeout_s=TIMEOUT_S)
            with pytest.raises(BackendError) as caught:
                await fetched(backend, "JFK")

    assert (again, caught.value.detail) == (described, f"{path}: no such file")
    assert [entry["event"] for entry in logs] == ["dimension.file_unavailable"]


class Caller:
    """Waits for a number of batches, and does something before the first."""

    def __init__(
        self, patience: float = math.inf, *, then: Callable[[], None] = lambda: None
    ) -> None:
        self.batches = 0
        self._patience = patience
        self._then = then

    def is_abandoned(self) -> bool:
        """Whether the caller stopped waiting; called for each batch."""
        self.batches += 1
        if self.batches == 1:
            self._then()
        return self.batches > self._patience


def search(path: Path, *key: str, among: Any, caller: Caller | None = None) -> FetchedRows:  # noqa: ANN401
    """Search the file for these keys."""
    described = parquet_schema(path, key, columns=None)
    keys = pa.record_batch(among, schema=described.key)
    is_abandoned = (caller or Caller()).is_abandoned
    return parquet_search(path, keys, described=described, columns=None, is_abandoned=is_abandoned)


@BACKENDS
async def test_large_rows_fail_their_keys(tmp_path: Path, kind: Kind) -> None:
    """Rows beyond the limit are left out; with several rows per key, it holds for their sum."""
    table = pa.table({"code": [*"aabbcd"], "name": ["x" * length for length in (5, 6, 5, 5, 9, 2)]})
    pq.write_table(table, tmp_path / "p")
    found = []
    for limit in (RowLimit(8), RowLimit(10, has_several_rows=True)):
        async with kind(tmp_path / "p", ["code"], limit=limit) as backend:
            await backend.describe(timeout_s=TIMEOUT_S)
            found.append(await fetched(backend, *"abcd"))

    one, all_ = found
    assert (one.ordinals.tolist(), all_.ordinals.tolist()) == ([0, 0, 1, 1, 3], [1, 1, 2, 3])
    unfit = [[(each.code, each.ordinals.tolist()) for each in found.unfit] for found in found]
    assert unfit == [[(ErrorCode.ROW_TOO_LARGE, [2])], [(ErrorCode.ROW_TOO_LARGE, [0])]]
    assert (one.deferred.tolist(), all_.deferred.tolist()) == ([], [])


def test_answers_of_files_are_bounded() -> None:
    """Further keys are deferred, and two rows are enough to show that a key is ambiguous."""
    large = "x" * (MAX_QUERY_ROWS_BYTES // 4)
    keys, schema = [1, 1, 1, 2, 3, 4, 5, 6], pa.schema({"id": pa.int64()})
    described = DimensionSchema(schema, pa.schema({"name": pa.utf8()}))
    file = ParquetFile(described, pa.table({"id": keys, "name": [large] * 8}))

    found = file.find(pa.record_batch([range(8)], schema=schema))

    assert (found.ordinals.tolist(), found.deferred.tolist()) == ([1, 1, 2, 3], [4, 5, 6])
    assert not found.unfit


def test_search_finds_composite_keys(tmp_path: Path) -> None:
    """A search returns rows only if all parts of their key match."""
    rows = {"a": ["x", "x", "y", None, "x"], "b": [1, 2, 1, 1, 1], "v": [*"pqrst"]}
    pq.write_table(pa.table(rows), tmp_path / "p", row_group_size=2)

    found = search(tmp_path / "p", "a", "b", among=[["y", "x", "z"], [2, 1, 1]])

    assert found.ordinals.tolist() == [1, 1]
    assert found.rows == pa.record_batch({"v": ["p", "t"]})


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_search_equals_the_index(tmp_path: Path, stored: pa.Array) -> None:
    """A search finds the same rows as the index, for keys of each stored type."""
    pq.write_table(pa.table({"k": stored, "v": range(6)}), tmp_path / "p", row_group_size=2)
    loaded = load_parquet_file(tmp_path / "p", ["k"], columns=None)
    values = stored.drop_null().unique().cast(loaded.schema.key[0].type)

    for keys in (values, *(values[at : at + 1] for at in range(len(values)))):
        found = search(tmp_path / "p", "k", among=[keys])

        expected = loaded.find(pa.record_batch([keys], schema=loaded.schema.key))
        assert found.ordinals.tolist() == expected.ordinals.tolist()
        assert found.rows == expected.rows


def test_search_uses_partition_columns(tmp_path: Path) -> None:
    """A key in the path replaces that of the file; a file without the key has no rows."""
    (tmp_path / "year=2013").mkdir()
    inside = pa.table({"year": pa.array([0, 0], pa.int32()), "id": [1, 2]})
    pq.write_table(inside, tmp_path / "year=2013" / "p")
    of_path, of_file = (search(tmp_path, "year", among=[[year]]) for year in (2013, 0))
    pq.write_table(pa.table({"v": ["b"]}), tmp_path / "year=2013" / "q")

    assert (of_path.rows["id"].to_pylist(), of_file.rows["id"].to_pylist()) == ([1, 2], [])
    assert search(tmp_path, "id", among=[[1, 3]]).rows["year"].to_pylist() == [2013]


def test_search_skips_row_groups(tmp_path: Path) -> None:
    """Row groups outside the keys are not read; of others the key columns are read first."""
    rows = pa.table({"id": [0, 10, 20, 30, 21, 40], "v": range(6)})
    pq.write_table(rows, tmp_path / "p", row_group_size=2)
    read = {}

    for key in (99, 25, 30):
        caller = Caller()
        found = search(tmp_path / "p", "id", among=[[key]], caller=caller)
        read[key] = (caller.batches, found.rows["v"].to_pylist())

    assert read == {99: (0, []), 25: (2, []), 30: (3, [3])}


@pytest.mark.parametrize("batches", range(4))
def test_search_ends_with_its_caller(tmp_path: Path, batches: int) -> None:
    """A search ends at the next batch when its caller stops waiting."""
    pq.write_table(pa.table({"id": [1, 1], "v": [*"ab"]}), tmp_path / "p", row_group_size=1)

    with pytest.raises(BackendError) as caught:
        search(tmp_path / "p", "id", among=[[1]], caller=Caller(batches))

    assert caught.value.code is ErrorCode.TIMEOUT


def test_search_mixes_no_folders(tmp_path: Path) -> None:
    """A search during which a link moves to another folder fails."""
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

    expected = f"{link}: was replaced during the read"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.TABLE_UNAVAILABLE, expected)
    assert search(link, "id", among=[[1]]).rows["v"].to_pylist() == ["new", "new"]
