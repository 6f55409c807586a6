"""Exhausted resources: memory, file descriptors, threads, and the log."""

import random
import resource
import socket
import subprocess
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tests.end_to_end.sidecars import (
    configured,
    customers_sidecar,
    lookup,
    parquet,
    processor_s,
)
from tools.processes.sidecar_process import SidecarProcess
from tools.processes.until import until

MIB = 1024 * 1024
MEMORY_BYTES = 96 * MIB
# Memory of libraries and allocators besides the limit; independent of it.
PASSING_BYTES = 64 * MIB
WIDE_ROWS = 25_000
WIDE_BYTES = 8_000
CALLERS = 8
PATIENCE_S = 10.0
TIMEOUT_MS = 20_000  # of lookups, which are not late in these tests


def resident_bytes(process: "subprocess.Popen[bytes]") -> int:
    """The resident memory of the process."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_memory_stays_within_its_limit(tmp_path: Path) -> None:
    """Under load the process grows by its limit at most; too large responses are refused."""
    rows = {"id": pa.array(range(WIDE_ROWS), pa.int64()), "text": ["x" * WIDE_BYTES] * WIDE_ROWS}
    wide = parquet(tmp_path, "wide", pa.table(rows), "id")
    limits = {"memory": f"{MEMORY_BYTES // MIB}MiB"}
    sidecar = configured(tmp_path, {"wide": wide}, limits=limits)
    with sidecar.running() as process, ThreadPoolExecutor(CALLERS) as callers:
        seen: deque[int] = deque(maxlen=25)

        def is_at_rest() -> bool:
            seen.append(resident_bytes(process))
            return len(seen) == 25 and len(set(seen)) == 1

        until(is_at_rest)
        base_bytes = seen[-1]
        asking = [callers.submit(ask_for_wide_rows, sidecar, seed) for seed in range(CALLERS)]
        grown_bytes = 0
        while not all(caller.done() for caller in asking):
            grown_bytes = max(grown_bytes, resident_bytes(process) - base_bytes)
        statuses = {status for caller in asking for status in caller.result()}
        whole = lookup(sidecar, "wide", TIMEOUT_MS, range(WIDE_ROWS))
        after = lookup(sidecar, "wide", TIMEOUT_MS, range(100))

    assert grown_bytes < MEMORY_BYTES + PASSING_BYTES, f"{grown_bytes / MIB:.0f} MiB"
    assert statuses <= {200, 503}
    assert (whole.status, whole.json()["code"], after.status) == (413, "answer_too_large", 200)


def ask_for_wide_rows(sidecar: SidecarProcess, seed: int) -> set[int]:
    """The statuses of fifty lookups of a hundred keys."""
    chosen = random.Random(seed)  # noqa: S311  # no secret
    batches = [chosen.choices(range(WIDE_ROWS), k=100) for _ in range(50)]
    return {lookup(sidecar, "wide", TIMEOUT_MS, keys).status for keys in batches}


def test_descriptors_run_out_and_come_back(tmp_path: Path) -> None:
    """Excess connections are refused, existing ones are served, and nothing spins."""
    sidecar = customers_sidecar(tmp_path)
    with sidecar.running() as process:
        with ExitStack() as connections:
            early = connections.enter_context(connection(sidecar))
            assert is_served(early)
            leave_descriptors(process, 8)
            late = [connections.enter_context(connection(sidecar)) for _ in range(40)]
            before_s = processor_s(process.pid)
            served = [is_served(each) for each in late]
            used_s = processor_s(process.pid) - before_s

            assert is_served(early)
        until(lambda: accepts(sidecar))

    assert 0 < sum(served) < len(late)
    assert used_s < 1.0


@contextmanager
def connection(sidecar: SidecarProcess) -> Iterator[socket.socket]:
    """A connection to the sidecar's socket."""
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(PATIENCE_S)
        connected.connect(str(sidecar.socket))
        yield connected


def is_served(connected: socket.socket) -> bool:
    """Whether a request on this connection is answered; otherwise it was closed."""
    try:
        connected.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connected.recv(4096).startswith(b"HTTP/1.1 200 ")
    except (BrokenPipeError, ConnectionResetError):
        return False


def accepts(sidecar: SidecarProcess) -> bool:
    """Whether a new connection is served."""
    with connection(sidecar) as connected:
        return is_served(connected)


def leave_descriptors(process: "subprocess.Popen[bytes]", count: int) -> None:
    """Let the process open this many more files."""
    highest = max(int(each.name) for each in Path(f"/proc/{process.pid}/fd").iterdir())
    hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (highest + 1 + count, hard))


def test_full_disk_of_the_log_does_no_harm(tmp_path: Path) -> None:
    """A sidecar whose log cannot be written starts, answers and stops."""
    sidecar = logging_to(Path("/dev/full"), customers_sidecar(tmp_path))
    with sidecar.running():
        assert lookup(sidecar, "customers", TIMEOUT_MS).json()["rows"] == [
            {"name": "customer 7", "tier": 2}
        ]


def logging_to(target: Path, sidecar: SidecarProcess) -> SidecarProcess:
    """The same sidecar with its standard error in this file."""
    shell = ("sh", "-c", 'target=$1; shift; exec "$@" 2>"$target"', "sh", str(target))
    return replace(sidecar, command=(*shell, *sidecar.command))
