"""Time from an invalidation to the last answer with the former row, in a reader of shared memory.

A process looks up one key without pauses. The age of each answer tells when its row was read, and
so whether the row is older than the invalidation.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.lookup_load import TIMEOUT_S, LookupClient
from bench.section import FigureTable, Section, Target
from bench.sidecar_under_test import DIMENSION, invalidate, sidecar_under_test
from bench.workload import customers_postgres
from lookup_core.protocol.sent_lookups import RunId, SentKeys

ROWS = 10_000
MOST_MS = 1.0
FULL, QUICK = 300, 50  # invalidations
_PAUSE_S = 0.03
_TOLERANCE_S = 0.005  # of the time of a read: ages are whole milliseconds

_REMARK = (
    "A process looks up one key without pauses, while {count} requests invalidate it. The last"
    " former row is the time from the response to the last answer with that row, or 0."
)

Times = npt.NDArray[np.float64]  # monotonic seconds


def invalidation(folder: Path, *, is_quick: bool) -> Section:
    """Invalidate one key again and again, and compare with what a reader sees."""
    count = QUICK if is_quick else FULL
    with customers_postgres(rows=ROWS) as dsn, sidecar_under_test(dsn, folder) as tested:
        client = LookupClient(tested.sidecar.endpoint, DIMENSION, ROWS, 1, seed=1)
        with _reader(client) as reader, tested.admin() as admin:
            reader.recv()  # it has begun
            spans = np.array(list(_invalidations(admin, client, count)))
            reader.send(None)
            ended_at, read_at = reader.recv()
    sent_at, answered_at = spans.T
    beyond_ms = np.array(
        [
            _beyond_s(ended_at, read_at, sent_at=sent, answered_at=answered) * 1000
            for sent, answered in zip(sent_at, answered_at, strict=True)
        ]
    )
    own_ms = (answered_at - sent_at) * 1000
    return Section(
        name="invalidation",
        title="Invalidation seen by readers of shared memory",
        remarks=[_REMARK.format(count=count)],
        tables=[
            FigureTable(
                "Invalidation of one key",
                ("what", "median ms", "p99 ms", "longest ms"),
                [_row("request and response", own_ms), _row("last former row", beyond_ms)],
            )
        ],
        targets=[
            Target(
                "invalidation: last former row after the response, median ms",
                float(np.median(beyond_ms)),
                MOST_MS,
                is_at_least=False,
            )
        ],
        faults=[] if len(ended_at) > 10 * count else [f"only {len(ended_at)} answers were seen"],
    )


def _row(what: str, values_ms: Times) -> tuple[str, ...]:
    figures = (*np.percentile(values_ms, (50, 99)), values_ms.max())
    return (what, *(f"{each:.3f}" for each in figures))


def _beyond_s(ended_at: Times, read_at: Times, *, sent_at: float, answered_at: float) -> float:
    """Return how long after a response answers had a row that was read before the request."""
    is_former = (ended_at > answered_at) & (read_at < sent_at - _TOLERANCE_S)
    is_former &= ended_at < answered_at + _PAUSE_S
    return float(ended_at[is_former].max() - answered_at) if is_former.any() else 0.0


def _invalidations(
    admin: HTTPConnection, client: LookupClient, count: int
) -> Iterator[tuple[float, float]]:
    """Yield the time before each request and that after its response."""
    (batch,) = client.batches(1)
    for _ in range(count):
        time.sleep(_PAUSE_S)
        sent_at = time.monotonic()
        invalidate(admin, {"keys": batch.column(0).to_pylist()})
        yield sent_at, time.monotonic()


@contextmanager
def _reader(client: LookupClient) -> Iterator[Connection]:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_read, args=(client, theirs), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.terminate()
        process.join()


def _read(client: LookupClient, pipe: Connection) -> None:
    """Look up one key until told to stop; send when each answer came, and when its row was read."""
    session = client.open()
    (keys,) = client.batches(1)
    ended_at: list[float] = []
    read_at: list[float] = []
    while not pipe.poll():
        if len(ended_at) == 1:
            pipe.send("begun")
        deadline_s = time.monotonic() + TIMEOUT_S
        session.look_up(SentKeys(RunId(len(ended_at)), keys, deadline_s))
        while not (answers := session.answers(TIMEOUT_S)):
            pass
        now = time.monotonic()
        ended_at.append(now)
        read_at.append(now - answers[0].answer.ages_ms[0] / 1000)
    pipe.send((np.array(ended_at), np.array(read_at)))
