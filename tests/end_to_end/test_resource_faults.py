"""The machine gives less than is wanted: memory, file descriptors, threads, room for logs."""

import json
import os
import random
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.end_to_end.parquet_sidecar import stopped_parquet_sidecar
from tools.processes.sidecar_process import SERVE, Reply, SidecarProcess
from tools.processes.until import until

MIB = 1024 * 1024
MEMORY_BYTES = 96 * MIB  # measured: 127 MiB more than at rest, 208 of 192
# What libraries take beside it, and allocators between two looks; it does not grow with the limit.
PASSING_BYTES = 64 * MIB
WIDE_ROWS = 25_000
WIDE_BYTES = 8_000
WIDE = f"""
limits: {{ memory: {MEMORY_BYTES // MIB}MiB }}
dimensions:
  wide: {{ source: {{ kind: parquet, path: wide.parquet }}, key: [id] }}
"""
CALLERS = 8
PATIENCE_S = 10.0
TIMEOUT_MS = 20_000  # of a lookup; none of these tests is of lookups that are late
# No address space is so large: no thread can be started.
NO_THREADS = (
    "import sys, threading; threading.stack_size(1 << 50); "
    "from service.commands.application import run; sys.exit(run(sys.argv[1:]))"
)


def ask(sidecar: SidecarProcess, keys: Sequence[int], dimension: str = "customers") -> Reply:
    """A lookup of its own connection."""
    return sidecar.post(
        f"/v1/dimensions/{dimension}/lookup", {"keys": list(keys), "timeout_ms": TIMEOUT_MS}
    )


def resident_bytes(process: "subprocess.Popen[bytes]") -> int:
    """What the process has in memory."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def processor_s(process: "subprocess.Popen[bytes]") -> float:
    """The processor time that the process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def wide_sidecar(folder: Path) -> Iterator[tuple[SidecarProcess, "subprocess.Popen[bytes]"]]:
    """A sidecar with twice as many bytes of rows as it may keep, at rest."""
    rows = {"id": pa.array(range(WIDE_ROWS), pa.int64()), "text": ["x" * WIDE_BYTES] * WIDE_ROWS}
    pq.write_table(pa.table(rows), folder / "wide.parquet")
    config = folder / "sidelook.yaml"
    config.write_text(WIDE)
    sidecar = SidecarProcess(folder, [*SERVE, "--config", str(config)])
    with sidecar.running() as process:
        yield sidecar, process


@dataclass(slots=True)
class Rest:
    """Sees that a process no longer grows or shrinks."""

    process: "subprocess.Popen[bytes]"
    seen: list[int] = field(default_factory=list)

    def is_reached(self) -> bool:
        """Whether all the last looks, over half a second, have found the same."""
        self.seen.append(resident_bytes(self.process))
        return len(self.seen) > 25 and len(set(self.seen[-25:])) == 1


def test_memory_stays_within_its_limit(tmp_path: Path) -> None:
    """Whatever is asked, the process grows by what it may; only what is too large is refused."""
    with wide_sidecar(tmp_path) as (sidecar, process), ThreadPoolExecutor(CALLERS) as callers:
        until(Rest(process).is_reached)
        base_bytes = resident_bytes(process)
        asking = [callers.submit(ask_for_wide_rows, sidecar, seed) for seed in range(CALLERS)]
        grown_bytes = 0
        while not all(caller.done() for caller in asking):
            grown_bytes = max(grown_bytes, resident_bytes(process) - base_bytes)
        statuses = {status for caller in asking for status in caller.result()}
        whole = ask(sidecar, range(WIDE_ROWS), "wide")
        after = ask(sidecar, range(100), "wide")

    assert grown_bytes < MEMORY_BYTES + PASSING_BYTES, f"{grown_bytes / MIB:.0f} MiB"
    assert statuses <= {200, 503}
    assert (whole.status, whole.json()["code"], after.status) == (413, "answer_too_large", 200)


def ask_for_wide_rows(sidecar: SidecarProcess, seed: int) -> set[int]:
    """Fifty times a hundred keys, and what became of it."""
    chosen = random.Random(seed)  # noqa: S311  # no secret
    return {ask(sidecar, chosen.choices(range(WIDE_ROWS), k=100), "wide").status for _ in range(50)}


def test_descriptors_run_out_and_come_back(tmp_path: Path) -> None:
    """Who comes too late is turned away, those who are in go on, and nothing spins."""
    sidecar = stopped_parquet_sidecar(tmp_path)
    with sidecar.running() as process:
        with ExitStack() as connections:
            early = connections.enter_context(connection(sidecar))
            assert is_served(early)
            leave_descriptors(process, 8)
            late = [connections.enter_context(connection(sidecar)) for _ in range(40)]
            before_s = processor_s(process)
            served = [is_served(each) for each in late]
            used_s = processor_s(process) - before_s

            assert is_served(early)
        until(lambda: sidecar_answers(sidecar))

    assert 0 < sum(served) < len(late)
    assert used_s < 1.0


@contextmanager
def connection(sidecar: SidecarProcess) -> Iterator[socket.socket]:
    """A connection to the sidecar's socket, on which nothing was said."""
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(PATIENCE_S)
        connected.connect(str(sidecar.socket))
        yield connected


def is_served(connected: socket.socket) -> bool:
    """Whether a request on this connection is answered, or the connection was closed."""
    try:
        connected.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connected.recv(4096).startswith(b"HTTP/1.1 200 ")
    except (BrokenPipeError, ConnectionResetError):
        return False


def sidecar_answers(sidecar: SidecarProcess) -> bool:
    """Whether a newcomer is served."""
    with connection(sidecar) as connected:
        return is_served(connected)


def leave_descriptors(process: "subprocess.Popen[bytes]", count: int) -> None:
    """Let it open so many files more, and no others."""
    highest = max(int(each.name) for each in Path(f"/proc/{process.pid}/fd").iterdir())
    hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (highest + 1 + count, hard))


def test_full_disk_of_the_log_does_no_harm(tmp_path: Path) -> None:
    """A sidecar whose log cannot be written starts, answers and stops as any other."""
    sidecar = logging_to(Path("/dev/full"), stopped_parquet_sidecar(tmp_path))
    with sidecar.running():
        assert ask(sidecar, [7]).json()["rows"] == [{"name": "customer 7", "tier": 2}]


def test_stuck_reader_of_the_log_does_no_harm(tmp_path: Path) -> None:
    """Nobody reads the log: lookups do not wait; later lines say how many were dropped."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sidecar = logging_to(pipe, stopped_parquet_sidecar(tmp_path))
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    fill(reader)
    with sidecar.running():
        answered = ask(sidecar, [7]).status
        os.read(reader, 1 << 20)
    told = json.loads(os.read(reader, 1 << 20).splitlines()[0])
    os.close(reader)

    assert answered == 200
    assert told["event"] == "log.lines_dropped"
    # Of the start, and for each of three caches that it gets less than its bound. On a machine that
    # stands still, the watchdog has something to say, too.
    assert told["lines"] - (4 + 3) in range(3)


def logging_to(target: Path, sidecar: SidecarProcess) -> SidecarProcess:
    """The same with its standard error there."""
    shell = ("sh", "-c", 'target=$1; shift; exec "$@" 2>"$target"', "sh", str(target))
    return replace(sidecar, command=(*shell, *sidecar.command))


def fill(pipe: int) -> None:
    """Write until nothing more fits."""
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b"\n" * 4096)


def test_too_few_threads_refuse_the_start(tmp_path: Path) -> None:
    """The process ends with 78 and says how many threads it needs, before it serves anybody."""
    sidecar = stopped_parquet_sidecar(tmp_path)
    arguments = sidecar.command[sidecar.command.index("serve") :]
    ended = subprocess.run(
        (sys.executable, "-c", NO_THREADS, *arguments),
        cwd=sidecar.code,
        env=sidecar.whole_environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78
    assert re.fullmatch(
        r"threads: the sidecar needs \d+ besides its main thread, the system allows 0; .*\n",
        ended.stderr,
    )
