"""Memory of a sidecar under load against `limits.memory`."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import psycopg

from bench.lookup_load import LookupClient, endless_lookups, lookup_per_channel
from bench.section import FigureTable, Section
from bench.timing import listener
from bench.workload import customers_postgres
from demo.sidecar import Sidecar, running_sidecar
from demo.totals import LOOKUPS, dimension_counts

LIMIT_BYTES = 512 * 1024 * 1024
CACHE_BYTES = 128 * 1024 * 1024
ROWS = 200_000
PROCESSES = 16
CHANNELS = 62  # per process; about a thousand in all
WATCHED_S = 8.0  # time under load, or after the clients stop reading
READING_S = 2.0  # before the clients stop reading
PATIENCE_S = 120.0  # for clients to connect or to finish
POLL_S = 0.1
_RESET_PEAK = "5"  # see proc(5), clear_refs
_CHANNELS = "sidelook_channels"
_WITH_ROW = ("hit", "fetched")
_FAILED = ("timeout", "error")
_REMARK = (
    f"Peaks of resident memory, with `limits.memory` of {LIMIT_BYTES // 2**20} MiB and caches of"
    f" {CACHE_BYTES // 2**20} MiB in all. The run fails if a peak exceeds the limit, a client ends,"
    " or clients get few rows or mostly failures. `batch.max_keys` is 50 for rows of 50 kB, else"
    " 500."
)


@dataclass(frozen=True, slots=True)
class _Texts:
    """A table whose rows have one size, and its clients."""

    table: str
    rows: int
    row_bytes: int
    keys: int  # per lookup
    clients: int
    cache_bytes: int
    max_keys: int = 500  # per query


_DOCUMENTS = _Texts("documents", 4_000, 50_000, 4_000, 8, CACHE_BYTES // 2, max_keys=50)
_ARTICLES = _Texts("articles", 30_000, 20_000, 10_000, 16, CACHE_BYTES // 8)
_SCANS = _Texts("scans", 200, 1_000_000, 100, 8, CACHE_BYTES // 8)
_MAKE_TABLE = """CREATE TABLE {table} AS SELECT id::bigint AS id,
    repeat(md5(id::text), {row_bytes} / 32) AS content FROM generate_series(0, {rows} - 1) AS id"""


@dataclass(frozen=True, slots=True)
class LookupCounts:
    """Lookups of one dimension by outcome, and its channels."""

    with_row: int
    failed: int
    channels: int = 0  # open now

    @classmethod
    def of(cls, metrics: str, dimension: str) -> Self:
        """Read the counts from a metrics page."""
        lookups = dimension_counts(metrics, dimension, LOOKUPS)
        return cls(
            with_row=sum(lookups.get(outcome, 0) for outcome in _WITH_ROW),
            failed=sum(lookups.get(outcome, 0) for outcome in _FAILED),
            channels=sum(dimension_counts(metrics, dimension, _CHANNELS).values()),
        )

    def since(self, earlier: "LookupCounts") -> "LookupCounts":
        """Return the lookups added since an earlier page."""
        with_row, failed = self.with_row - earlier.with_row, self.failed - earlier.failed
        return LookupCounts(with_row, failed, self.channels)

    def faults(self, fewest_rows: int) -> list[str]:
        """Report too few rows, or more failures than rows: the load was not as intended."""
        found = []
        if self.with_row < fewest_rows:
            found.append(f"the clients got only {self.with_row:,} rows, not {fewest_rows:,}")
        if self.failed > self.with_row:
            found.append(f"{self.failed:,} lookups failed, {self.with_row:,} returned a row")
        return found


def ended_clients(exit_codes: Sequence[int | None]) -> list[str]:
    """Report endless clients that ended; None is the code of a running process."""
    return _exit_faults(exit_codes, "ended", [code for code in exit_codes if code is not None])


def unfinished_clients(exit_codes: Sequence[int | None]) -> list[str]:
    """Report finite clients that failed or still run."""
    return _exit_faults(exit_codes, "did not finish", [code for code in exit_codes if code != 0])


def _exit_faults(codes: Sequence[int | None], what: str, wrong: list[int | None]) -> list[str]:
    if not wrong:
        return []
    return [f"{len(wrong)} of {len(codes)} clients {what}: {list(dict.fromkeys(wrong))}"]


@dataclass(frozen=True, slots=True)
class Phase:
    """Load on one table."""

    run: Callable[[Sidecar], list[str]]  # returns faults of clients
    table: str
    fewest_rows: int  # that the clients must get


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak memory of the sidecar in one phase, and faults of clients."""

    name: str
    bytes: int
    rows: int
    client_faults: Sequence[str] = ()

    @property
    def faults(self) -> list[str]:
        """Everything that makes the run fail."""
        above = ["above limits.memory"] if self.bytes > LIMIT_BYTES else []
        return [f"{self.name}: {fault}" for fault in (*above, *self.client_faults)]


def memory(folder: Path, *, is_quick: bool) -> Section:
    """Measure the peak of each phase."""
    with (
        _postgres() as dsn,
        running_sidecar(_settings(dsn), folder) as sidecar,
    ):
        process = Path("/proc") / str(listener(sidecar.socket).pid)
        phases = _phases(keys=1_000 if is_quick else 5_000)
        peaks = [_peak(name, phase, sidecar, process=process) for name, phase in phases.items()]
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
        "rows of 1 MB, 8 clients, row size still unknown": _flood_of(_SCANS),
        "rows of 50 kB, 8 clients": _flood_of(_DOCUMENTS),
        "the same, and the clients stop reading": Phase(
            partial(_flood, texts=_DOCUMENTS, stalls=True),
            _DOCUMENTS.table,
            LIMIT_BYTES // 8 // _DOCUMENTS.row_bytes,  # before they stop
        ),
        "rows of 20 kB, 16 clients, few of them cached": _flood_of(_ARTICLES),
    }


def _flood_of(texts: _Texts) -> Phase:
    # Rows smaller than the limit in total would fit into memory all at once.
    return Phase(partial(_flood, texts=texts), texts.table, LIMIT_BYTES // texts.row_bytes)


def _peak(name: str, phase: Phase, sidecar: Sidecar, *, process: Path) -> Peak:
    before = _counts(sidecar, phase.table)
    (process / "clear_refs").write_text(_RESET_PEAK)
    client_faults = phase.run(sidecar)
    lines = (process / "status").read_text().splitlines()
    peak_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    counts = _counts(sidecar, phase.table).since(before)
    client_faults += counts.faults(phase.fewest_rows)
    return Peak(name, peak_kib * 1024, counts.with_row, client_faults)


def _counts(sidecar: Sidecar, table: str) -> LookupCounts:
    return LookupCounts.of(sidecar.get("/metrics"), table)


def _many_channels(sidecar: Sidecar, *, keys: int) -> list[str]:
    deadline_s = time.monotonic() + PATIENCE_S
    clients = [
        LookupClient(sidecar.endpoint, "customers", ROWS, keys, seed=number)
        for number in range(PROCESSES)
    ]
    with _processes(partial(lookup_per_channel, channels=CHANNELS), clients) as processes:
        for process in processes:
            process.join(max(deadline_s - time.monotonic(), 0.0))
        return unfinished_clients([process.exitcode for process in processes])


def _flood(sidecar: Sidecar, *, texts: _Texts, stalls: bool = False) -> list[str]:
    with _endless_clients(sidecar, texts) as processes:
        if stalls:
            time.sleep(READING_S)
            for process in processes:
                assert process.pid is not None
                if process.exitcode is None:
                    os.kill(process.pid, signal.SIGSTOP)
        time.sleep(WATCHED_S)
        return ended_clients([process.exitcode for process in processes])


@contextmanager
def _endless_clients(sidecar: Sidecar, texts: _Texts) -> Iterator[list[BaseProcess]]:
    """Start clients without an end; all are connected and the first rows answered."""
    before = _counts(sidecar, texts.table)
    clients = [
        LookupClient(
            sidecar.endpoint, texts.table, texts.rows, texts.keys, seed=seed, columns=("content",)
        )
        for seed in range(texts.clients)
    ]
    with _processes(partial(endless_lookups, interval_s=0.0), clients) as processes:
        # A client that ends or never connects is a fault of the phase, found at its end.
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s and all(each.is_alive() for each in processes):
            counts = _counts(sidecar, texts.table).since(before)
            if counts.with_row and counts.channels >= texts.clients:
                break
            time.sleep(POLL_S)
        yield processes


@contextmanager
def _processes(
    target: Callable[[LookupClient], None], clients: Sequence[LookupClient]
) -> Iterator[list[BaseProcess]]:
    processes: list[BaseProcess] = []
    try:
        for client in clients:
            process = get_context("spawn").Process(target=target, args=(client,), daemon=True)
            process.start()
            processes.append(process)
        yield processes
    finally:
        for each in processes:
            each.kill()  # also ends a stopped process
            each.join()


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
def _postgres() -> Iterator[str]:
    with (
        customers_postgres(rows=ROWS) as dsn,
        psycopg.connect(dsn, autocommit=True) as admin,
    ):
        for texts in (_DOCUMENTS, _ARTICLES, _SCANS):
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
