"""The Parquet backend keeps the contract, and follows the file: it may come, go and be replaced."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.backend import ParquetBackend
from service.connectors.parquet.file import ParquetFile, load_parquet_file
from service.connectors.ports.backend import FetchedRows
from tests.service.backends.backend_contract import (
    AIRPORTS,
    TIMEOUT_S,
    BackendContract,
    OpenBackend,
    fetch,
)


@pytest.fixture
def open_backend(tmp_path: Path) -> OpenBackend:
    """A backend over a file with the rows."""

    @asynccontextmanager
    async def opened(rows: pa.Table, key: Sequence[str]) -> AsyncIterator[ParquetBackend]:
        pq.write_table(rows, tmp_path / "rows.parquet")
        async with ParquetBackend(tmp_path / "rows.parquet", key) as backend:
            yield backend

    return opened


class TestParquetBackend(BackendContract):
    """The contract, over a file."""

    @pytest.fixture
    def open_backend(self, open_backend: OpenBackend) -> OpenBackend:
        """As for the other tests here."""
        return open_backend


async def test_equal_keys_give_all_rows(open_backend: OpenBackend) -> None:
    """Two rows with one key are both found: the engine decides what that means."""
    rows = pa.table({"k": [1, 2, 1], "v": ["a", "b", "c"]})

    fetched = await fetch(open_backend, rows, {"k": [2, 1]})

    assert fetched.ordinals.tolist() == [0, 1, 1]
    assert fetched.rows["v"].to_pylist() == ["b", "a", "c"]


async def test_file_may_come_later(tmp_path: Path) -> None:
    """While the file is missing, describing says so; when it is there, it is read."""
    path = tmp_path / "late.parquet"

    async with ParquetBackend(path, ["code"]) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS, path)
        schema = await backend.describe(timeout_s=TIMEOUT_S)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert schema.key.names == ["code"]


async def test_file_is_read_once(tmp_path: Path) -> None:
    """As long as it is the same, it is only looked at, and its rows are as new as the look."""
    path = tmp_path / "rows.parquet"
    pq.write_table(AIRPORTS, path)

    with capture_logs() as logs:
        async with ParquetBackend(path, ["code"], clock=iter(range(100)).__next__) as backend:
            await backend.describe(timeout_s=TIMEOUT_S)
            ages = [(await names_of(backend, "JFK")).read_at for _ in range(2)]

    assert [entry["event"] for entry in logs] == ["dimension.file_read"]
    assert ages == [1.0, 3.0]


async def test_replaced_file_is_read(tmp_path: Path) -> None:
    """Whoever asks after another file took its place gets the rows of that one."""
    path = tmp_path / "rows.parquet"
    pq.write_table(AIRPORTS, path)

    async with ParquetBackend(path, ["code"]) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        before = await names_of(backend, "JFK", "EWR")
        pq.write_table(AIRPORTS.slice(1), tmp_path / "other.parquet")
        (tmp_path / "other.parquet").replace(path)
        after = await names_of(backend, "JFK", "EWR")

    assert before.rows["name"].to_pylist() == ["Kennedy", "Newark"]
    assert (after.ordinals.tolist(), after.rows["name"].to_pylist()) == ([1], ["Newark"])


async def test_folder_may_get_another_file(tmp_path: Path) -> None:
    """Rows of a file that came later are found, those of a file that went are not."""
    pq.write_table(AIRPORTS.slice(0, 1), tmp_path / "a.parquet")

    async with ParquetBackend(tmp_path, ["code"]) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS.slice(1), tmp_path / "b.parquet")
        (tmp_path / "a.parquet").unlink()

        found = await names_of(backend, "JFK", "EWR")

    assert found.rows["name"].to_pylist() == ["Newark"]


async def test_other_columns_must_be_described(tmp_path: Path) -> None:
    """A file with other columns is told as such, and after a description its rows are found."""
    path = tmp_path / "rows.parquet"
    pq.write_table(AIRPORTS, path)

    async with ParquetBackend(path, ["code"]) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS.select(["code", "altitude"]), path)
        with pytest.raises(BackendError) as caught:
            await names_of(backend, "JFK")
        schema = await backend.describe(timeout_s=TIMEOUT_S)
        found = await names_of(backend, "JFK")

    expected = f"{path}: has other columns than when it was described"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.SCHEMA_CHANGED, expected)
    assert (schema.columns.names, found.rows.to_pylist()) == (["altitude"], [{"altitude": 13}])


async def test_former_rows_stay_and_get_older(tmp_path: Path) -> None:
    """While the file cannot be read they are told as old as they are, and the log says why, once.

    As soon as it can be, a second later at most, its rows are found.
    """
    path, clock = tmp_path / "rows.parquet", [100.0]
    pq.write_table(AIRPORTS, path)
    with capture_logs() as logs:
        async with ParquetBackend(path, ["code"], clock=lambda: clock[0]) as backend:
            schema = await backend.describe(timeout_s=TIMEOUT_S)
            path.write_bytes(path.read_bytes()[:-8])
            clock[0] += 5.0
            kept = [await names_of(backend, "JFK")]
            assert await backend.describe(timeout_s=TIMEOUT_S) == schema
            pq.write_table(AIRPORTS.slice(1), path)
            kept.append(await names_of(backend, "JFK"))
            clock[0] += 1.0
            found = await names_of(backend, "JFK")

    assert [(each.rows["name"].to_pylist(), each.read_at) for each in kept] == [
        (["Kennedy"], 100.0)
    ] * 2
    assert (found.rows.num_rows, found.read_at) == (0, 106.0)
    events = [entry["event"] for entry in logs]
    assert events == ["dimension.file_read", "dimension.file_unavailable", "dimension.file_read"]
    assert str(path) in logs[1]["detail"]


async def test_file_that_is_replaced_meanwhile_is_not_taken(tmp_path: Path) -> None:
    """Half of what was read may be of either: the former rows stay, and the next look reads."""
    path, clock = tmp_path / "rows.parquet", [100.0]
    pq.write_table(AIRPORTS, path)
    replacing = [AIRPORTS.slice(2), AIRPORTS.slice(1)]  # the last one while the other is read

    def load(*args: Any, **kwargs: Any) -> ParquetFile:  # noqa: ANN401
        loaded = load_parquet_file(*args, **kwargs)
        if len(replacing) == 1:
            pq.write_table(replacing.pop(), path)
        return loaded

    async with ParquetBackend(path, ["code"], clock=lambda: clock[0], load=load) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        clock[0] += 5.0
        pq.write_table(replacing.pop(0), path)
        with capture_logs() as logs:
            kept = await names_of(backend, "JFK", "EWR")
        clock[0] += 5.0
        found = await names_of(backend, "JFK", "EWR")

    assert (kept.rows["name"].to_pylist(), kept.read_at) == (["Kennedy", "Newark"], 100.0)
    assert [entry["detail"] for entry in logs] == [f"{path}: was replaced while it was read"]
    assert (found.rows["name"].to_pylist(), found.read_at) == (["Newark"], 110.0)


async def test_large_folder_is_looked_at_once_a_second(tmp_path: Path) -> None:
    """In between its rows are as old as the look; what one look costs, one second has to pay."""
    for number in range(100):
        pq.write_table(AIRPORTS.slice(0, 1), tmp_path / f"{number:02}.parquet")
    clock, read = [100.0], []

    async with ParquetBackend(tmp_path, ["code"], clock=lambda: clock[0]) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS.slice(1), tmp_path / "new.parquet")
        for later_s in (0.019, 0.002):
            clock[0] += later_s
            found = await names_of(backend, "EWR")
            read.append((found.rows["name"].to_pylist(), found.read_at))

    assert read == [([], 100.0), (["Newark"], clock[0])]


async def test_reading_ends_at_its_timeout(tmp_path: Path) -> None:
    """A file that is not read in time is a timeout, not a wait."""
    pq.write_table(AIRPORTS, tmp_path / "rows.parquet")

    async with ParquetBackend(tmp_path / "rows.parquet", ["code"]) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=0.0)

    assert caught.value.code is ErrorCode.TIMEOUT


def test_rows_in_memory_have_an_index(tmp_path: Path) -> None:
    """Nothing is ever read from end to end for a lookup."""
    assert ParquetBackend(tmp_path / "rows.parquet", ["k"]).uses_index


async def names_of(backend: ParquetBackend, *codes: str) -> FetchedRows:
    """What is found of these airports."""
    keys = pa.record_batch([pa.array(codes, pa.utf8())], names=["code"])
    return await backend.fetch(keys, timeout_s=TIMEOUT_S)
