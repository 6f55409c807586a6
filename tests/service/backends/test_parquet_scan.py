"""A file that is read at each fetch keeps the contract, and holds nothing but its description."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.backend import ParquetScan
from tests.service.backends.backend_contract import (
    AIRPORTS,
    TIMEOUT_S,
    BackendContract,
    OpenBackend,
)

JFK = pa.record_batch([["JFK"]], names=["code"])


class TestParquetScan(BackendContract):
    """The contract, over a file."""

    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenBackend:
        """A backend over a file with the rows."""

        @asynccontextmanager
        async def opened(rows: pa.Table, key: Sequence[str]) -> AsyncIterator[ParquetScan]:
            pq.write_table(rows, tmp_path / "rows.parquet")
            async with ParquetScan(tmp_path / "rows.parquet", key) as backend:
                yield backend

        return opened


async def test_rows_are_those_of_now(tmp_path: Path) -> None:
    """Each fetch reads the file that is there; another one is as good, with the same columns."""
    path = tmp_path / "rows.parquet"
    pq.write_table(AIRPORTS, path)

    async with ParquetScan(path, ["code"]) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        await backend.probe(timeout_s=TIMEOUT_S)
        before = await backend.fetch(JFK, timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS.slice(1), path)
        after = await backend.fetch(JFK, timeout_s=TIMEOUT_S)

    assert (before.rows.num_rows, after.rows.num_rows, backend.uses_index) == (1, 0, False)


async def test_other_columns_must_be_described(tmp_path: Path) -> None:
    """Rows of a file with other columns are found once it was described anew."""
    path = tmp_path / "rows.parquet"
    pq.write_table(AIRPORTS, path)

    async with ParquetScan(path, ["code"]) as backend:
        await backend.describe(timeout_s=TIMEOUT_S)
        pq.write_table(AIRPORTS.select(["code", "altitude"]), path)
        with pytest.raises(BackendError) as caught:
            await backend.fetch(JFK, timeout_s=TIMEOUT_S)
        schema = await backend.describe(timeout_s=TIMEOUT_S)
        found = await backend.fetch(JFK, timeout_s=TIMEOUT_S)

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED
    assert (schema.columns.names, found.rows.to_pylist()) == (["altitude"], [{"altitude": 13}])


async def test_description_outlasts_its_file(tmp_path: Path) -> None:
    """A file that goes is told by the log, and by who needs its rows; what was described stays."""
    path = tmp_path / "rows.parquet"
    pq.write_table(AIRPORTS, path)

    with capture_logs() as logs:
        async with ParquetScan(path, ["code"]) as backend:
            described = await backend.describe(timeout_s=TIMEOUT_S)
            path.unlink()
            again = await backend.describe(timeout_s=TIMEOUT_S)
            with pytest.raises(BackendError) as caught:
                await backend.fetch(JFK, timeout_s=TIMEOUT_S)

    assert again == described
    assert caught.value.detail == f"{path}: no such file"
    assert [entry["event"] for entry in logs] == ["dimension.file_unavailable"]


async def test_file_may_come_later(tmp_path: Path) -> None:
    """While there has never been one, describing says so."""
    async with ParquetScan(tmp_path / "late.parquet", ["code"]) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=TIMEOUT_S)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
