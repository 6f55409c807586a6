"""A dimension in a Parquet file that changes while it is served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from lookup_core.statistics import InvalidationOrigin, LoadResult
from service.engine.dimension import Dimension
from service.wiring.configured_parts import ConfiguredParts
from tests.service.config.configuration import dimension as configured
from tests.service.engine.refreshing import load_of, staleness_s, until, until_whole
from tests.service.engine.running import in_words, typed

PATIENCE_S = 20.0
FULL = {"mode": "full", "max_bytes": "1MiB"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of two planes, with two columns."""
    write(tmp_path / "planes.parquet", ["Ada", "Bert"])
    return tmp_path / "planes.parquet"


def write(path: Path, names: list[str], column: str = "name") -> None:
    """Replace the file; a plane's id is its position."""
    rows = pa.table({"id": pa.array(range(len(names)), pa.int64()), column: names})
    pq.write_table(rows, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def remove(path: Path) -> None:
    """Remove the file."""
    path.unlink()


def write_bomb(path: Path) -> None:
    """Replace the file by one of less than a megabyte, and of 500 MB when unpacked."""
    rows, text = 10_000, "x" * 50_000
    names = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [text])
    pq.write_table(pa.table({"id": range(rows), "name": names}), path)
    assert path.stat().st_size < 1_000_000


@asynccontextmanager
async def running(path: Path, cache: object) -> AsyncIterator[Dimension]:
    """The dimension, with its schema."""
    config = configured(source={"kind": "parquet", "path": str(path)}, key=["id"], cache=cache)
    parts = ConfiguredParts("planes", config)
    async with parts.backend() as backend, asyncio.timeout(PATIENCE_S):
        settings = config.engine_settings("planes")
        dimension = Dimension(settings, backend, sources=parts.sources())
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(dimension.run())
            await dimension.schema.wait(PATIENCE_S)
            yield dimension
            task.cancel()


async def look_up(dimension: Dimension, *keys: int) -> dict[int, str]:
    """Names of planes."""
    return in_words(await dimension.lookup(typed(*keys), columns=["name"], timeout_s=None))


async def test_reload_brings_the_new_file(path: Path) -> None:
    """A key with several rows in the new file is an error of its lookups only."""
    async with running(path, FULL) as dimension:
        await until_whole(dimension)
        before = await look_up(dimension, 0, 1, 2)
        rows = {"id": pa.array([0, 1, 1], pa.int64()), "name": ["Ada", "Bea", "Ben"]}
        pq.write_table(pa.table(rows), path)
        dimension.reload()
        await until(lambda: load_of(dimension).counts[LoadResult.OK] == 2)
        after = await look_up(dimension, 0, 1, 2)

    assert before == {0: "hit Ada", 1: "hit Bert", 2: "missing"}
    assert after == {0: "hit Ada", 1: "error ambiguous", 2: "missing"}


async def test_old_rows_outlast_their_file(path: Path) -> None:
    """While the file is missing its rows are served and age; the next file is loaded."""
    with capture_logs() as logs:
        async with running(path, FULL) as dimension:
            await until_whole(dimension)
            remove(path)
            dimension.reload()
            await until(lambda: "source.discovery_failed" in [entry["event"] for entry in logs])
            kept, stale_s = await look_up(dimension, 1), staleness_s(dimension)
            is_same = await dimension.schema.describe_again()
            await until(lambda: staleness_s(dimension) > stale_s)
            write(path, ["Ada", "Bea"])
            await until(lambda: load_of(dimension).counts[LoadResult.OK] == 2)
            found = await look_up(dimension, 1)

    assert (kept, is_same, found) == ({0: "hit Bert"}, True, {0: "hit Bea"})
    failure = next(entry for entry in logs if entry["event"] == "source.discovery_failed")
    assert failure["detail"].startswith(f"{path}: no such file")


async def test_file_that_unpacks_to_too_much_is_refused(path: Path) -> None:
    """A load ends as soon as it exceeds the cache, however small the file is."""
    async with running(path, FULL) as dimension:
        await until_whole(dimension)
        write_bomb(path)
        dimension.reload()
        await until(lambda: load_of(dimension).counts[LoadResult.ERROR] == 1)
        kept, reason = await look_up(dimension, 1), load_of(dimension).last_error

    assert kept == {0: "hit Bert"}
    assert reason is not None
    assert "max_bytes" in reason


async def test_rows_expire_into_the_new_file(path: Path) -> None:
    """A partial cache serves rows of the old file until they expire or are invalidated."""
    async with running(path, {"ttl": "1h"}) as dimension:
        first = await look_up(dimension, 0, 1)
        write(path, ["Anna", "Bea"])
        cached = await look_up(dimension, 0, 1)
        dimension.invalidate(typed(1), origin=InvalidationOrigin.ADMIN)
        found = await look_up(dimension, 0, 1)

    assert first == {0: "fetched Ada", 1: "fetched Bert"}
    assert cached == {0: "hit Ada", 1: "hit Bert"}
    assert found == {0: "hit Ada", 1: "fetched Bea"}
