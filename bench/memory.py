"""Whether a sidecar stays within `limits.memory`, whatever its clients do.

A thousand channels at once, rows of many kilobytes and of a megabyte, of which most are not cached,
and clients that stop reading in the middle.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psycopg

from bench.customers_postgres import customers_postgres
from bench.lookup_client import Asking, ask_on_many_channels, ask_without_end
from bench.resident_memory import ResidentMemory
from bench.section import FigureTable, Section
from demo.sidecar import Sidecar, running_sidecar

LIMIT_BYTES = 512 * 1024 * 1024
CACHE_BYTES = 128 * 1024 * 1024
ROWS = 200_000
PROCESSES = 16
CHANNELS = 62  # of each process: with 16 of them about a thousand
STOPPED_S = 8.0  # how long the clients that stopped reading are watched
_REMARK = (
    f"The most that was resident in each phase, with `limits.memory` of {LIMIT_BYTES // 2**20} MiB"
    f" and caches of {CACHE_BYTES // 2**20} MiB, which the dimensions share. Above the limit the"
    " run fails. Of rows of 50 kB a query may ask for 50 (`batch.max_keys`), of others for 500."
)


@dataclass(frozen=True, slots=True)
class _Texts:
    """A table of rows that are all of one size."""

    table: str
    rows: int
    row_bytes: int
    keys: int  # of each lookup
    clients: int
    cache_bytes: int
    max_keys: int = 500  # of each query


_DOCUMENTS = _Texts("documents", 4_000, 50_000, 4_000, 8, CACHE_BYTES // 2, max_keys=50)
_ARTICLES = _Texts("articles", 30_000, 20_000, 10_000, 16, CACHE_BYTES // 8)
_SCANS = _Texts("scans", 200, 1_000_000, 100, 8, CACHE_BYTES // 8)
_MAKE_TABLE = """CREATE TABLE {table} AS SELECT id::bigint AS id,
    repeat(md5(id::text), {row_bytes} / 32) AS content FROM generate_series(0, {rows} - 1) AS id"""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that the sidecar took in one phase."""

    name: str
    bytes: int


def memory(folder: Path, *, is_quick: bool) -> Section:
    """Measure the peak of each phase; above the limit is wrong."""
    keys = 1_000 if is_quick else 5_000
    phases: dict[str, Callable[[Sidecar], None]] = {
        "idle": lambda _: None,
        f"{PROCESSES * CHANNELS} channels, {keys:,} keys each": partial(_many_channels, keys=keys),
        "rows of 1 MB, 8 clients, whose size nobody knows yet": partial(_flood, texts=_SCANS),
        "rows of 50 kB, 8 clients": partial(_flood, texts=_DOCUMENTS),
        "the same, and the clients stop reading": partial(_stalled_readers, texts=_DOCUMENTS),
        "rows of 20 kB, 16 clients, few of them cached": partial(_flood, texts=_ARTICLES),
    }
    with (
        _postgres(folder / "postgres") as dsn,
        running_sidecar(_settings(dsn), folder) as sidecar,
    ):
        resident = ResidentMemory(sidecar.socket)
        peaks = [_peak(name, partial(run, sidecar), resident) for name, run in phases.items()]
    return Section(
        name="memory",
        title="The sidecar's memory",
        remarks=[_REMARK],
        tables=[_table(peaks)],
        faults=[f"above limits.memory: {peak.name}" for peak in peaks if peak.bytes > LIMIT_BYTES],
    )


def _peak(name: str, run: Callable[[], None], resident: ResidentMemory) -> Peak:
    resident.forget_peak()
    run()
    return Peak(name, resident.peak_bytes())


def _many_channels(sidecar: Sidecar, *, keys: int) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                _process(
                    partial(ask_on_many_channels, channels=CHANNELS),
                    Asking(sidecar.endpoint, "customers", ROWS, keys, seed=number),
                )
            )
            for number in range(PROCESSES)
        ]
        for process in processes:
            process.join()
    failed = [process.exitcode for process in processes if process.exitcode]
    assert not failed, f"{len(failed)} clients failed"


def _flood(sidecar: Sidecar, *, texts: _Texts) -> None:
    with _clients(sidecar, texts):
        time.sleep(STOPPED_S)


def _stalled_readers(sidecar: Sidecar, *, texts: _Texts) -> None:
    with _clients(sidecar, texts) as clients:
        time.sleep(STOPPED_S / 4)  # they are in the middle of it
        for client in clients:
            assert client.pid is not None
            os.kill(client.pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)


@contextmanager
def _clients(sidecar: Sidecar, texts: _Texts) -> Iterator[list[BaseProcess]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                _process(
                    partial(ask_without_end, interval_s=0.0),
                    Asking(
                        sidecar.endpoint,
                        texts.table,
                        texts.rows,
                        texts.keys,
                        seed=number,
                        columns=("content",),
                    ),
                )
            )
            for number in range(texts.clients)
        ]


@contextmanager
def _process(target: Callable[[Asking], None], asking: Asking) -> Iterator[BaseProcess]:
    process = get_context("spawn").Process(target=target, args=(asking,), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()  # also one that was stopped
        process.join()


def _table(peaks: Sequence[Peak]) -> FigureTable:
    rows = [
        (peak.name, f"{peak.bytes / 2**20:,.0f}", f"{peak.bytes / LIMIT_BYTES:.2f}")
        for peak in peaks
    ]
    return FigureTable("Peaks by phase", ("phase", "peak MiB", "to the limit"), rows)


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    with (
        customers_postgres(folder, rows=ROWS) as dsn,
        psycopg.connect(dsn, autocommit=True) as admin,
    ):
        for texts in (_DOCUMENTS, _ARTICLES, _SCANS):
            # A folder that is used again holds them from the last time.
            admin.execute(f"DROP TABLE IF EXISTS {texts.table}".encode())
            admin.execute(_MAKE_TABLE.format(**asdict(texts)).encode())
            admin.execute(f"ALTER TABLE {texts.table} ADD PRIMARY KEY (id)".encode())
        admin.execute(b"ANALYZE")
        yield dsn


def _settings(dsn: str) -> dict[str, Any]:
    def dimension(table: str, cache_bytes: int, *, max_keys: int = 500) -> dict[str, Any]:
        return {
            "source": {"kind": "postgres", "dsn": dsn, "table": f"public.{table}"},
            "key": ["id"],
            "cache": {"max_bytes": f"{cache_bytes // 2**20}MiB"},
            "batch": {"max_keys": max_keys},
            "timeout": "30s",
        }

    texts = {
        each.table: dimension(each.table, each.cache_bytes, max_keys=each.max_keys)
        for each in (_DOCUMENTS, _ARTICLES, _SCANS)
    }

    return {
        "limits": {"memory": f"{LIMIT_BYTES // 2**20}MiB"},
        "dimensions": {"customers": dimension("customers", CACHE_BYTES // 4), **texts},
    }
