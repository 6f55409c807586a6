"""Cold rate: an empty cache against raw asyncpg."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import asyncpg
import psutil
import psycopg
import pyarrow.compute as pc
import pyarrow.parquet as pq
import uvloop
from pyspark.sql import DataFrame, SparkSession

from bench.cold_section import THIS_PROCESS, Cold, Queries, cold_section
from bench.contenders import SIDELOOK, sidelook
from bench.section import Section
from bench.sidecar_under_test import MAX_KEYS, Batch, SidecarUnderTest, sidecar_under_test
from bench.timing import Seconds, Timing, postmaster, seconds_of, time_in_turn
from bench.workload import Workload, workload_postgres
from demo.stream import spark_session

QUERIES = {
    "ANY": "SELECT id, name, segment, tier FROM customers WHERE id = ANY($1)",
    "unnest": """SELECT c.id, c.name, c.segment, c.tier
        FROM unnest($1::bigint[]) AS k (id) CROSS JOIN LATERAL
        (SELECT * FROM customers WHERE customers.id = k.id OFFSET 0) AS c""",
}


@dataclass(frozen=True, slots=True)
class RawFetch:
    """One way to do it."""

    query: str  # of QUERIES
    batch_keys: int
    connections: int

    def __str__(self) -> str:
        """How it is told."""
        return f"{self.query}, {self.batch_keys:,} keys, {self.connections} connections"

    @contextmanager
    def fetching(self, dsn: str, keys: Sequence[int]) -> Iterator[Callable[[], int]]:
        """A function that fetches the rows of all keys, and says how many there were.

        It connects and makes batches before, as a service that has run for a while has done.
        """
        batches = [
            keys[first : first + self.batch_keys] for first in range(0, len(keys), self.batch_keys)
        ]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            opened = runner.run(_connected(dsn, self.connections))
            yield lambda: runner.run(_fetch(opened, QUERIES[self.query], batches))
            runner.run(_closed(opened))


WAYS = [
    RawFetch(query, batch_keys, connections)
    for query, batch_keys, connections in product(QUERIES, (1_000, 5_000, 10_000), (2, 4, 8))
]

_Connections = list["asyncpg.Connection[asyncpg.Record]"]


async def _connected(dsn: str, connections: int) -> _Connections:
    return [await asyncpg.connect(dsn) for _ in range(connections)]


async def _closed(connections: _Connections) -> None:
    for each in connections:
        await each.close()


async def _fetch(connections: _Connections, query: str, batches: Sequence[Sequence[int]]) -> int:
    left = iter(batches)  # all take from it

    async def rows_of(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
        return sum([len(await connection.fetch(query, batch)) for batch in left])

    return sum(await asyncio.gather(*map(rows_of, connections)))


DISTINCT_MAX_KEYS = 10_000  # of a query: asyncpg's loop may choose, too
ZIPF_LINGER = "10ms"  # what few misses wait for others
RAW_FINALISTS = 2  # ways that were best at first sight, and take part in the rounds
TRANSACTIONS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
_REMARKS = """
Spark reads {keys:,} events, each of which asks for another customer, in random order, while the
cache is empty; it was emptied before each of {rounds} rounds. The loop against it is one process
with uvloop that keeps some connections to PostgreSQL busy, and throws asyncpg's records away; it
has its keys and connections before the clock starts. Of {ways} ways (`ANY` or `unnest`, keys by
query, connections) the best {finalists} on a part of the keys took part in all rounds. Sidelook's
`batch.max_keys` is {max_keys:,} here.

The job starts, reads Parquet, passes rows through Python and back: all of that is in Sidelook's
time. PostgreSQL, sidecar and Spark share the cores. Processor seconds were counted in a further
round.

With Zipf keys, of {events:,} events most ask for what another has asked for; `batch.max_keys` is
what it is by default, but misses may wait {linger} for others (`batch.linger`). Each mode was run
once. The sidecar counts its queries; PostgreSQL counts the transactions of both modes together,
those included that ask what the table is like.
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    events: int
    rows: int
    rounds: int
    sifted_keys: int  # by which the best ways of asyncpg are found


FULL = Size(events=4_000_000, rows=1_000_000, rounds=5, sifted_keys=200_000)
# Not fewer rows: else a job has begun for longer than it fetches.
QUICK = Size(events=1_000_000, rows=400_000, rounds=2, sifted_keys=50_000)


def cold(folder: Path, *, is_quick: bool) -> Section:
    """Measure both; a fault where rows did not come from the database."""
    size = QUICK if is_quick else FULL
    workload = Workload(folder, size.events, size.rows)
    workload.write()
    with (
        workload_postgres(folder / "postgres", workload) as dsn,
        spark_session(folder / "spark.log") as session,
    ):
        server = postmaster(folder / "postgres")
        race = _ColdRace(size, workload, dsn, session, server)
        large: Batch = {"max_keys": DISTINCT_MAX_KEYS}
        with sidecar_under_test(dsn, folder, batch=large) as sidecar:
            timings, spent, faults = race.distinct(sidecar)
        began = _transactions(dsn)
        lingering: Batch = {"max_keys": MAX_KEYS, "linger": ZIPF_LINGER}
        with sidecar_under_test(dsn, folder, batch=lingering) as sidecar:
            zipf = {name: race.zipf(sidecar, name) for name in SIDELOOK}
        # Sessions that have ended have told the statistics all that they did.
        transactions = _transactions(dsn) - began
    ours, raw = timings[: len(SIDELOOK)], timings[len(SIDELOOK) :]
    found = Cold(size.rows, ours, raw, spent, zipf, transactions)
    return cold_section(found, remarks=_remarks(size), faults=faults)


@dataclass(frozen=True, slots=True)
class _ColdRace:
    size: Size
    workload: Workload
    dsn: str
    session: SparkSession
    server: psutil.Process  # of PostgreSQL

    def distinct(
        self, sidecar: SidecarUnderTest
    ) -> tuple[list[Timing], dict[str, Seconds], list[str]]:
        """Each key once: timings, Sidelook's first; processor seconds; and what was wrong."""
        path = self.workload.distinct_events()
        keys = pq.read_table(path)["customer_id"].to_pylist()
        frames = {name: self._frame(sidecar, name, path) for name in SIDELOOK}
        runs: dict[str, Callable[[], object]] = {
            name: partial(_run, frame) for name, frame in frames.items()
        }
        with ExitStack() as stack:
            for way in self._finalists(keys):
                runs[f"asyncpg: {way}"] = stack.enter_context(way.fetching(self.dsn, keys))
            began = sidecar.queries()
            timings = time_in_turn(runs, rounds=self.size.rounds, before=sidecar.empty_cache)
            spent = {name: self._spent(run, sidecar) for name, run in runs.items()}
        queries = sidecar.queries() - began
        rounds = 1 + self.size.rounds + 1  # one warms up, in one processor time is counted
        fewest = len(SIDELOOK) * rounds * self.size.rows / DISTINCT_MAX_KEYS
        faults = [f"{queries:,} queries cannot have fetched all"] if queries < fewest else []
        return timings, spent, faults

    def zipf(self, sidecar: SidecarUnderTest, name: str) -> Queries:
        """The events with Zipf keys, once."""
        path = self.workload.events_of("zipf")
        frame = self._frame(sidecar, name, path)
        sidecar.empty_cache()
        began, began_s = sidecar.queries(), time.perf_counter()
        _run(frame)
        seconds = time.perf_counter() - began_s
        distinct = pc.count_distinct(pq.read_table(path)["customer_id"]).as_py()
        return Queries(sidecar.queries() - began, distinct, self.size.events, seconds)

    def _frame(self, sidecar: SidecarUnderTest, name: str, path: Path) -> DataFrame:
        return sidelook(sidecar.endpoint, SIDELOOK[name])(self.session.read.parquet(str(path)))

    def _spent(self, run: Callable[[], object], sidecar: SidecarUnderTest) -> Seconds:
        sidecar.empty_cache()
        began_s = time.process_time()
        seconds = seconds_of(run, postgres=self.server)
        return {**seconds, THIS_PROCESS: time.process_time() - began_s}

    def _finalists(self, keys: Sequence[int]) -> list[RawFetch]:
        seconds = {way: self._sift(way, keys[: self.size.sifted_keys]) for way in WAYS}
        return sorted(WAYS, key=seconds.__getitem__)[:RAW_FINALISTS]

    def _sift(self, way: RawFetch, keys: Sequence[int]) -> float:
        with way.fetching(self.dsn, keys) as fetch:
            return time_in_turn({"": fetch}, rounds=2)[0].median_s


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _transactions(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(TRANSACTIONS).fetchone()
    assert row is not None
    return int(row[0])


def _remarks(size: Size) -> list[str]:
    text = _REMARKS.format(
        keys=size.rows,
        max_keys=DISTINCT_MAX_KEYS,
        linger=ZIPF_LINGER,
        rounds=size.rounds,
        ways=len(WAYS),
        finalists=RAW_FINALISTS,
        events=size.events,
    )
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
