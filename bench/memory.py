"""Memory of a sidecar under load against `limits.memory`."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import psycopg

from bench.lookup_load import Asking, ask_on_many_channels, ask_without_end
from bench.section import FigureTable, Section
from bench.timing import listener
from bench.workload import customers_postgres
from demo.sidecar import Sidecar, running_sidecar
from demo.totals import LOOKUPS, dimension_counts

_FORGET_PEAK = "5"  # see proc(5), clear_refs


class ResidentMemory:
    """Of the process that listens on a Unix socket."""

    def __init__(self, socket_path: Path) -> None:
        self._folder = Path("/proc") / str(listener(socket_path).pid)

    def forget_peak(self) -> None:
        """Let the peak begin anew."""
        (self._folder / "clear_refs").write_text(_FORGET_PEAK)

    def peak_bytes(self) -> int:
        """The most that was resident since then."""
        status = (self._folder / "status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024


_CHANNELS = "sidelook_channels"
_WITH_ROW = ("hit", "fetched")
_FAILED = ("timeout", "error")


@dataclass(frozen=True, slots=True)
class LookupCounts:
    """Keys of one dimension, by how their lookup ended; and who may ask for more."""

    with_row: int
    failed: int
    channels: int = 0  # open now

    @classmethod
    def of(cls, metrics: str, dimension: str) -> Self:
        """Those of a page of metrics."""
        lookups = dimension_counts(metrics, dimension, LOOKUPS)
        return cls(
            with_row=sum(lookups.get(outcome, 0) for outcome in _WITH_ROW),
            failed=sum(lookups.get(outcome, 0) for outcome in _FAILED),
            channels=sum(dimension_counts(metrics, dimension, _CHANNELS).values()),
        )

    def since(self, earlier: "LookupCounts") -> "LookupCounts":
        """What was added."""
        with_row, failed = self.with_row - earlier.with_row, self.failed - earlier.failed
        return LookupCounts(with_row, failed, self.channels)

    def faults(self, fewest_rows: int) -> list[str]:
        """Too few rows, or more failures than rows: then something else was measured."""
        found = []
        if self.with_row < fewest_rows:
            found.append(f"the clients got {self.with_row:,} rows only, not {fewest_rows:,}")
        if self.failed > self.with_row:
            found.append(f"{self.failed:,} lookups failed, {self.with_row:,} ended with a row")
        return found


def ended_clients(exit_codes: Sequence[int | None]) -> list[str]:
    """A fault if there is one among the clients that ask without end; None: it still runs."""
    ended = [code for code in exit_codes if code is not None]
    if not ended:
        return []
    return [f"{len(ended)} of {len(exit_codes)} clients ended: {list(dict.fromkeys(ended))}"]


def unfinished_clients(exit_codes: Sequence[int | None]) -> list[str]:
    """A fault if one of the clients that come to an end failed, or still runs."""
    unfinished = [code for code in exit_codes if code != 0]
    if not unfinished:
        return []
    codes = list(dict.fromkeys(unfinished))
    return [f"{len(unfinished)} of {len(exit_codes)} clients did not finish: {codes}"]


LIMIT_BYTES = 512 * 1024 * 1024
CACHE_BYTES = 128 * 1024 * 1024
ROWS = 200_000
PROCESSES = 16
CHANNELS = 62  # of each process: with 16 of them about a thousand
WATCHED_S = 8.0  # how long clients are watched that ask without end, or that stopped reading
READING_S = 2.0  # how long they read before they stop
PATIENCE_S = 120.0  # then clients that have not begun, or not finished, never will
POLL_S = 0.1
_REMARK = (
    f"The most that was resident in each phase, with `limits.memory` of {LIMIT_BYTES // 2**20} MiB"
    f" and caches of {CACHE_BYTES // 2**20} MiB, which the dimensions share. Above the limit the"
    " run fails, and also if a client ends, or if clients get few rows or mostly failures. Of rows"
    " of 50 kB a query may ask for 50 (`batch.max_keys`), of others for 500."
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
class Phase:
    """What clients of one table do, and the fewest rows that they get if all is well."""

    run: Callable[[Sidecar], list[str]]  # says which clients went wrong
    table: str
    fewest_rows: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that the sidecar took in one phase, and what went wrong meanwhile."""

    name: str
    bytes: int
    rows: int
    client_faults: Sequence[str] = ()

    @property
    def faults(self) -> list[str]:
        """All that makes the run fail."""
        above = ["above limits.memory"] if self.bytes > LIMIT_BYTES else []
        return [f"{self.name}: {fault}" for fault in (*above, *self.client_faults)]


def memory(folder: Path, *, is_quick: bool) -> Section:
    """Measure the peak of each phase; above the limit is wrong, and so are clients without rows."""
    with (
        _postgres(folder / "postgres") as dsn,
        running_sidecar(_settings(dsn), folder) as sidecar,
    ):
        resident = ResidentMemory(sidecar.socket)
        phases = _phases(keys=1_000 if is_quick else 5_000)
        peaks = [_peak(name, phase, sidecar, resident=resident) for name, phase in phases.items()]
    return Section(
        name="memory",
        title="The sidecar's memory",
        remarks=[_REMARK],
        tables=[_table(peaks)],
        faults=[fault for peak in peaks for fault in peak.faults],
    )


def _phases(*, keys: int) -> Mapping[str, Phase]:
    channels = PROCESSES * CHANNELS
    return {
        "idle": Phase(lambda _: [], "customers", 0),
        f"{channels} channels, {keys:,} keys each": Phase(
            partial(_many_channels, keys=keys), "customers", channels * keys
        ),
        "rows of 1 MB, 8 clients, whose size nobody knows yet": _flood_of(_SCANS),
        "rows of 50 kB, 8 clients": _flood_of(_DOCUMENTS),
        "the same, and the clients stop reading": Phase(
            partial(_stalled_readers, texts=_DOCUMENTS),
            _DOCUMENTS.table,
            LIMIT_BYTES // 8 // _DOCUMENTS.row_bytes,  # in the end they took none
        ),
        "rows of 20 kB, 16 clients, few of them cached": _flood_of(_ARTICLES),
    }


def _flood_of(texts: _Texts) -> Phase:
    # Rows that together are smaller than the limit would not have to be held back.
    return Phase(partial(_flood, texts=texts), texts.table, LIMIT_BYTES // texts.row_bytes)


def _peak(name: str, phase: Phase, sidecar: Sidecar, *, resident: ResidentMemory) -> Peak:
    before = _counts(sidecar, phase.table)
    resident.forget_peak()
    client_faults = phase.run(sidecar)
    peak_bytes = resident.peak_bytes()
    counts = _counts(sidecar, phase.table).since(before)
    client_faults += counts.faults(phase.fewest_rows)
    return Peak(name, peak_bytes, counts.with_row, client_faults)


def _counts(sidecar: Sidecar, table: str) -> LookupCounts:
    return LookupCounts.of(sidecar.get("/metrics"), table)


def _many_channels(sidecar: Sidecar, *, keys: int) -> list[str]:
    deadline_s = time.monotonic() + PATIENCE_S
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
            process.join(max(deadline_s - time.monotonic(), 0.0))
        return unfinished_clients([process.exitcode for process in processes])


def _flood(sidecar: Sidecar, *, texts: _Texts) -> list[str]:
    with _clients(sidecar, texts) as clients:
        time.sleep(WATCHED_S)
        return ended_clients([client.exitcode for client in clients])


def _stalled_readers(sidecar: Sidecar, *, texts: _Texts) -> list[str]:
    with _clients(sidecar, texts) as clients:
        time.sleep(READING_S)  # they are in the middle of it
        for client in clients:
            assert client.pid is not None
            if client.exitcode is None:
                os.kill(client.pid, signal.SIGSTOP)
        time.sleep(WATCHED_S)
        return ended_clients([client.exitcode for client in clients])


@contextmanager
def _clients(sidecar: Sidecar, texts: _Texts) -> Iterator[list[BaseProcess]]:
    """Those that ask without end, all of them connected and the first rows answered."""
    before = _counts(sidecar, texts.table)
    with ExitStack() as stack:
        clients = [
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
        _wait_for_answers(sidecar, texts, clients, before=before)
        yield clients


def _wait_for_answers(
    sidecar: Sidecar, texts: _Texts, clients: Sequence[BaseProcess], *, before: LookupCounts
) -> None:
    """Clients that end, or never begin, are told by what is judged at the end of the phase."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s and all(client.is_alive() for client in clients):
        counts = _counts(sidecar, texts.table).since(before)
        if counts.with_row and counts.channels >= texts.clients:
            return
        time.sleep(POLL_S)


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
        (
            peak.name,
            f"{peak.bytes / 2**20:,.0f}",
            f"{peak.bytes / LIMIT_BYTES:.2f}",
            f"{peak.rows:,}",
        )
        for peak in peaks
    ]
    headings = ("phase", "peak MiB", "to the limit", "rows answered")
    return FigureTable("Peaks by phase", headings, rows)


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
