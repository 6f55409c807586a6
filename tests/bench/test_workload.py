"""Workload of the benchmark, compared caches, and processor time."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from bench.cache_flood import Flood, flood_of
from bench.hit_rates import HitRates, KeyTrace, LruKeys, S3FifoKeys, SidelookKeys, hit_rate
from bench.timing import KINDS, seconds_of
from bench.workload import KEYS, Workload

MIB = 2**20
WORKER = """
import subprocess, sys
input()
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.2: pass"])
print(flush=True); input()
"""


def test_events_are_the_same_everywhere(tmp_path: Path) -> None:
    """Two folders get the same events; every event has a row; Zipf keys are skewed."""
    first, second = (Workload(tmp_path / name, 10_000, 1_000) for name in ("a", "b"))
    first.write()
    second.write()

    assert pq.read_table(first.dimension)["id"].to_pylist() == list(range(1_000))
    most = {}
    for keys in KEYS:
        events = pq.read_table(first.events_of(keys))
        found = events["customer_id"].to_numpy()
        assert events == pq.read_table(second.events_of(keys))
        assert (found.min(), found.max() < 1_000) == (0, True)
        most[keys] = np.bincount(found).max()
    assert most["zipf"] > 20 * most["uniform"]
    distinct = pq.read_table(first.distinct_events())["customer_id"].to_pylist()
    assert sorted(distinct) == list(range(1_000)) != distinct


def test_hit_rates_are_comparable() -> None:
    """With room for all keys the caches are equal; with scans Sidelook's is better than LRU."""
    roomy = KeyTrace(1.0, distinct=3_000, batches=20)
    scans = KeyTrace(1.0, distinct=20_000, batches=60, scan_every=10)

    assert hit_rate(SidelookKeys(10_000), roomy) == hit_rate(LruKeys(10_000), roomy)
    assert hit_rate(SidelookKeys(2_000), scans) > hit_rate(LruKeys(2_000), scans) + 0.04


@pytest.mark.parametrize(
    ("trace", "lru", "has_fault"),
    [("Zipf 1.0", 0.6, False), ("Zipf, a scan", 0.6, True), ("Zipf, a scan", 0.4, False)],
)
def test_scans_must_be_resisted(*, trace: str, lru: float, has_fault: bool) -> None:
    """A rate that is no better than LRU is a fault only with scans."""
    assert HitRates(trace, 10, lru=lru, s3_fifo=0.5, sidelook=0.5).has_fault is has_fault


def test_compared_caches_follow_their_algorithms() -> None:
    """LRU drops the least recent key; in S3-FIFO hot keys survive a scan."""
    lru, fifo, hot = LruKeys(2), S3FifoKeys(20), list(range(10))
    hits = [lru.look_up(batch) for batch in ([1, 2], [1], [3], [1], [2])]
    for _ in range(3):
        fifo.look_up(hot)
    fifo.look_up(range(100, 300))

    assert (hits, fifo.look_up(hot)) == ([0, 1, 0, 1, 0], 10)


def test_flood_stays_within_its_bound() -> None:
    """A cache that gets many times its size never exceeds its bytes."""
    flood = flood_of(100_000, bound_bytes=MIB)

    assert MIB / 2 < flood.most_cache_bytes <= flood.bound_bytes == MIB


@pytest.mark.parametrize(
    ("most_bytes", "last_mib", "has_fault"),
    [(10, 101, False), (11, 101, True), (10, 110, True)],
)
def test_growth_and_excess_are_faults(*, most_bytes: int, last_mib: int, has_fault: bool) -> None:
    """A cache above its bound and steadily growing memory are faults."""
    resident = (100 * MIB, 100 * MIB, last_mib * MIB)

    flood = Flood(4_000_000, 1.0, most_bytes, 10, 1_000_000, resident, 50 * MIB)

    assert flood.has_fault is has_fault


def test_processor_time_has_a_kind() -> None:
    """The processor time of a worker's child counts only for the workers."""
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(["/bin/sleep", "60"]) as server,
        subprocess.Popen([sys.executable, "-c", WORKER], stdin=pipe, stdout=pipe) as worker,
    ):
        assert worker.stdin is not None
        assert worker.stdout is not None
        sent, printed = worker.stdin, worker.stdout

        def work() -> None:
            sent.write(b"\n")
            sent.flush()
            printed.readline()

        spent = seconds_of(work, postgres=psutil.Process(server.pid))
        worker.communicate(b"\n")
        server.kill()

    assert tuple(spent) == KINDS
    assert (spent["JVM"], spent["sidecar"], spent["PostgreSQL"]) == (0.0, 0.0, 0.0)
    assert spent["Python workers"] > 0.1
