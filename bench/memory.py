"""Whether a sidecar stays within `limits.memory`, whatever its clients do.

A thousand channels at once, rows of many kilobytes, and clients that stop reading in the middle.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench.customers_postgres import customers_postgres
from bench.lookup_client import Asking, ask_on_many_channels, ask_without_end
from bench.resident_memory import ResidentMemory
from bench.section import FigureTable, Section
from demo.sidecar import Sidecar, running_sidecar

LIMIT_BYTES = 512 * 1024 * 1024
CACHE_BYTES = 128 * 1024 * 1024
ROWS = 200_000
DOCUMENTS = 4_000
DOCUMENT_BYTES = 50_000
PROCESSES = 16
CHANNELS = 62  # of each process: with 16 of them about a thousand
STOPPED_S = 8.0  # how long the clients that stopped reading are watched
_REMARK = (
    f"The most that was resident in each phase, with `limits.memory` of {LIMIT_BYTES // 2**20} MiB"
    f" and caches of {CACHE_BYTES // 2**20} MiB."
)


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
        f"rows of {DOCUMENT_BYTES // 1000} kB, {PROCESSES // 2} clients": _documents,
        "the same, and the clients stop reading": _stalled_readers,
    }
    with (
        customers_postgres(
            folder / "postgres", rows=ROWS, documents=DOCUMENTS, document_bytes=DOCUMENT_BYTES
        ) as dsn,
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


def _documents(sidecar: Sidecar) -> None:
    with _document_clients(sidecar):
        time.sleep(STOPPED_S)


def _stalled_readers(sidecar: Sidecar) -> None:
    with _document_clients(sidecar) as clients:
        time.sleep(STOPPED_S / 4)  # they are in the middle of it
        for client in clients:
            assert client.pid is not None
            os.kill(client.pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)


@contextmanager
def _document_clients(sidecar: Sidecar) -> Iterator[list[BaseProcess]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                _process(
                    partial(ask_without_end, interval_s=0.0),
                    Asking(
                        sidecar.endpoint,
                        "documents",
                        DOCUMENTS,
                        DOCUMENTS,
                        seed=number,
                        columns=("content",),
                    ),
                )
            )
            for number in range(PROCESSES // 2)
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


def _settings(dsn: str) -> dict[str, Any]:
    def dimension(table: str, cache_bytes: int) -> dict[str, Any]:
        return {
            "source": {"kind": "postgres", "dsn": dsn, "table": f"public.{table}"},
            "key": ["id"],
            "cache": {"max_bytes": f"{cache_bytes // 2**20}MiB"},
            "timeout": "30s",
        }

    return {
        "limits": {"memory": f"{LIMIT_BYTES // 2**20}MiB"},
        "dimensions": {
            "customers": dimension("customers", CACHE_BYTES // 2),
            "documents": {**dimension("documents", CACHE_BYTES // 2), "batch": {"max_keys": 50}},
        },
    }
