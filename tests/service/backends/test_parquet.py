"""The Parquet backend keeps the contract, reads once, and lets missing files come later."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.backends.parquet import ParquetBackend
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
    """A file that goes away after it was read is not missed."""
    path = tmp_path / "rows.parquet"
    pq.write_table(AIRPORTS, path)

    async with ParquetBackend(path, ["code"]) as backend:
        before = await backend.describe(timeout_s=TIMEOUT_S)
        path.unlink()

        assert await backend.describe(timeout_s=TIMEOUT_S) == before


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
