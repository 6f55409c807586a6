"""Cold rate: an empty cache against raw asyncpg."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from bench.contenders import SIDELOOK, identity, run_fully, sidelook
from bench.section import FigureTable, Section, Target, paragraphs
from bench.sidecar_under_test import Batch, SidecarUnderTest, sidecar_under_test
from bench.timing import KINDS, Seconds, Timing, postmaster, seconds_of, time_in_turn
from bench.workload import Workload, workload_postgres
from demo.stream import spark_session

QUERIES = {
    "ANY": "SELECT id, name, segment, tier FROM customers WHERE id = ANY($1)",
    "unnest": """SELECT c.id, c.name, c.segment, c.tier
        FROM unnest($1::bigint[]) AS k (id) CROSS JOIN LATERAL
        (SELECT * FROM customers WHERE customers.id = k.id OFFSET 0) AS c""",
}
DISTINCT_MAX_KEYS = 10_000  # per query, as much as asyncpg's loop may choose
MAX_KEYS = 500  # per query, with Zipf keys
ZIPF_LINGER = "10ms"
RAW_FINALISTS = 2  # best variants of the asyncpg loop, which run in all rounds
TRANSACTIONS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
THIS_PROCESS = "this process"  # runs asyncpg's loop
SPENDERS = (*KINDS, THIS_PROCESS)
_REMARKS = """
Spark reads {size.rows:,} events, each with another customer, in random order. The cache is emptied
before each of {size.rounds} rounds. The baseline is an asyncpg loop with uvloop and several
connections that discards the records; its keys and connections exist beforehand. Of {variants}
variants (`ANY` or `unnest`, keys per query, connections), the {finalists} fastest run in all
rounds. Sidelook's `batch.max_keys` is {max_keys:,}.

Sidelook's time includes the start of the job, reading Parquet, and rows through Python and back.
Spark, sidecar and PostgreSQL share the cores. Processor seconds are those of an extra round.

With default settings, the {size.events:,} events have uniform keys, and each key is fetched once.
With Zipf keys, a query has at most {zipf_max_keys} keys, and misses wait {linger} for others
(`batch.linger`); each mode runs once. PostgreSQL's transactions include reads of the schema.
"""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a run."""

    events: int
    rows: int
    rounds: int
    default_rounds: int  # with default settings
    sifted_keys: int  # with which the variants of the asyncpg loop are compared


FULL = Size(4_000_000, rows=1_000_000, rounds=5, default_rounds=3, sifted_keys=200_000)
# With fewer rows, the start of the job would take longer than the fetch.
QUICK = Size(1_000_000, rows=400_000, rounds=2, default_rounds=1, sifted_keys=50_000)


def cold(folder: Path, *, is_quick: bool) -> Section:
    """Measure distinct and Zipf keys; it is a fault if rows did not come from the database."""
    size = QUICK if is_quick else FULL
    workload = Workload(folder, size.events, size.rows)
    workload.write()
    with (
        workload_postgres(workload) as dsn,
        spark_session(folder / "spark.log") as session,
    ):
        race = _ColdRace(size, workload, dsn, session, postmaster(dsn))
        with sidecar_under_test(dsn, folder, batch={"max_keys": DISTINCT_MAX_KEYS}) as sidecar:
            timings, spent, faults = race.distinct(sidecar)
        with sidecar_under_test(dsn, folder) as sidecar:
            defaults, default_faults = race.defaults(sidecar)
        began = _transactions(dsn)
        lingering: Batch = {"max_keys": MAX_KEYS, "linger": ZIPF_LINGER}
        with sidecar_under_test(dsn, folder, batch=lingering) as sidecar:
            zipf = {name: race.zipf(sidecar, name) for name in SIDELOOK}
        # The statistics of a session are complete once it has ended.
        transactions = _transactions(dsn) - began
    ours, raw = timings[: len(SIDELOOK)], timings[len(SIDELOOK) :]
    found = Cold(size.rows, ours, raw, spent, defaults, zipf, transactions)
    text = _REMARKS.format(
        size=size,
        max_keys=DISTINCT_MAX_KEYS,
        linger=ZIPF_LINGER,
        zipf_max_keys=MAX_KEYS,
        variants=len(VARIANTS),
        finalists=RAW_FINALISTS,
    )
    return cold_section(found, remarks=paragraphs(text), faults=[*faults, *default_faults])


def _transactions(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(TRANSACTIONS).fetchone()
    assert row is not None
    return int(row[0])


_Connections = list["asyncpg.Connection[asyncpg.Record]"]


@dataclass(frozen=True, slots=True)
class RawFetch:
    """Variant of the asyncpg loop."""

    query: str  # of QUERIES
    batch_keys: int
    connections: int

    def __str__(self) -> str:
        return f"{self.query}, {self.batch_keys:,} keys, {self.connections} connections"

    @contextmanager
    def fetching(self, dsn: str, keys: Sequence[int]) -> Iterator[Callable[[], int]]:
        """Connect, and yield a function that fetches all rows and returns their number."""
        batches = [
            keys[first : first + self.batch_keys] for first in range(0, len(keys), self.batch_keys)
        ]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            opened = runner.run(_connected(dsn, self.connections))
            yield lambda: runner.run(_fetch(opened, QUERIES[self.query], batches))
            runner.run(_closed(opened))


VARIANTS = [
    RawFetch(query, batch_keys, connections)
    for query, batch_keys, connections in product(QUERIES, (1_000, 5_000, 10_000), (2, 4, 8))
]


async def _connected(dsn: str, connections: int) -> _Connections:
    return [await asyncpg.connect(dsn) for _ in range(connections)]


async def _closed(connections: _Connections) -> None:
    for each in connections:
        await each.close()


async def _fetch(connections: _Connections, query: str, batches: Sequence[Sequence[int]]) -> int:
    left = iter(batches)  # shared by all connections

    async def rows_of(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
        return sum([len(await connection.fetch(query, batch)) for batch in left])

    return sum(await asyncio.gather(*map(rows_of, connections)))


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
        """Measure each key once: timings (Sidelook's first), processor seconds and faults."""
        path = self.workload.distinct_events()
        keys = pq.read_table(path)["customer_id"].to_pylist()
        runs: dict[str, Callable[[], object]] = {
            name: partial(run_fully, self._frame(sidecar, name, path)) for name in SIDELOOK
        }
        with ExitStack() as stack:
            for variant in self._finalists(keys):
                runs[f"asyncpg: {variant}"] = stack.enter_context(variant.fetching(self.dsn, keys))
            began = sidecar.queries()
            timings = time_in_turn(runs, rounds=self.size.rounds, before=sidecar.empty_cache)
            spent = {name: self._spent(run, sidecar) for name, run in runs.items()}
        queries = sidecar.queries() - began
        rounds = 1 + self.size.rounds + 1  # with the warm-up and the round for processor time
        fewest = len(SIDELOOK) * rounds * self.size.rows / DISTINCT_MAX_KEYS
        faults = [f"{queries:,} queries cannot have fetched all"] if queries < fewest else []
        return timings, spent, faults

    def defaults(self, sidecar: SidecarUnderTest) -> tuple["Defaults", list[str]]:
        """Measure uniform keys with default settings; it is a fault if a key was not fetched."""
        path = self.workload.events_of("uniform")
        keys = pc.count_distinct(pq.read_table(path)["customer_id"]).as_py()
        runs: dict[str, Callable[[], object]] = {
            name: partial(run_fully, self._frame(sidecar, name, path)) for name in SIDELOOK
        }
        timings = time_in_turn(runs, rounds=self.size.default_rounds, before=sidecar.empty_cache)
        spent, queries, faults = {}, {}, []
        for name, run in runs.items():
            began, began_keys = sidecar.queries(), sidecar.fetched_keys()
            spent[name] = self._spent(run, sidecar)
            queries[name] = sidecar.queries() - began
            fetched = sidecar.fetched_keys() - began_keys
            if fetched < keys:
                faults.append(f"{name}: {fetched:,} of {keys:,} keys were fetched")
        through = self._spent(
            partial(run_fully, identity(self.session.read.parquet(str(path)))), sidecar
        )
        return Defaults(keys, timings, spent, queries, through), faults

    def zipf(self, sidecar: SidecarUnderTest, name: str) -> "Queries":
        """Run the events with Zipf keys once."""
        path = self.workload.events_of("zipf")
        frame = self._frame(sidecar, name, path)
        sidecar.empty_cache()
        began, began_s = sidecar.queries(), time.perf_counter()
        run_fully(frame)
        seconds = time.perf_counter() - began_s
        distinct = pc.count_distinct(pq.read_table(path)["customer_id"]).as_py()
        return Queries(sidecar.queries() - began, distinct, self.size.events, seconds)

    def _frame(self, tested: SidecarUnderTest, name: str, path: Path) -> DataFrame:
        events = self.session.read.parquet(str(path))
        return sidelook(tested.sidecar.endpoint, SIDELOOK[name])(events)

    def _spent(self, run: Callable[[], object], sidecar: SidecarUnderTest) -> Seconds:
        sidecar.empty_cache()
        began_s = time.process_time()
        seconds = seconds_of(run, postgres=self.server)
        return {**seconds, THIS_PROCESS: time.process_time() - began_s}

    def _finalists(self, keys: Sequence[int]) -> list[RawFetch]:
        seconds = {each: self._sift(each, keys[: self.size.sifted_keys]) for each in VARIANTS}
        return sorted(VARIANTS, key=seconds.__getitem__)[:RAW_FINALISTS]

    def _sift(self, variant: RawFetch, keys: Sequence[int]) -> float:
        with variant.fetching(self.dsn, keys) as fetch:
            return time_in_turn({"": fetch}, rounds=2)[0].median_s


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries for events with Zipf keys while the cache was empty."""

    queries: int  # counted by the sidecar
    distinct_keys: int
    events: int
    seconds: float

    @property
    def to_fewest(self) -> float:
        """Ratio to the number of queries if each one were full."""
        return self.queries / (self.distinct_keys / MAX_KEYS)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Events with uniform keys while the cache was empty, with default settings."""

    keys: int  # distinct ones
    timings: Sequence[Timing]
    spent: Mapping[str, Seconds]  # {contender: processor seconds of one round}
    queries: Mapping[str, int]  # {contender: in that round}
    through: Seconds  # of the same events through Python, without a lookup

    def sidecar_us(self, name: str) -> float:
        """The sidecar's processor time per fetched key."""
        return self.spent[name]["sidecar"] / self.keys * 1e6


@dataclass(frozen=True, slots=True)
class Cold:
    """All measurements."""

    keys: int  # distinct ones
    sidelook: Sequence[Timing]
    raw: Sequence[Timing]  # the best variants of the asyncpg loop
    spent: Mapping[str, Seconds]  # {contender: processor seconds of one round, by SPENDERS}
    defaults: Defaults
    zipf: Mapping[str, Queries]  # {contender: its queries}
    transactions: int  # of all Zipf rounds together, counted by PostgreSQL

    @property
    def best_raw(self) -> Timing:
        """The fastest variant of the asyncpg loop."""
        return min(self.raw, key=lambda timing: timing.median_s)

    def default_to_raw(self, timing: Timing) -> float:
        """Distinct keys per second with default settings, against the asyncpg loop."""
        return self.defaults.keys / timing.median_s / (self.keys / self.best_raw.median_s)


def cold_section(cold: Cold, *, remarks: Sequence[str] = (), faults: Sequence[str] = ()) -> Section:
    """Report the cost of an empty cache."""
    # Each round fetches every key: without processor time the wrong server was measured.
    unseen = [
        f"{name}: no processor time of PostgreSQL was measured"
        for name, spent in cold.spent.items()
        if spent["PostgreSQL"] <= 0.0
    ]
    return Section(
        name="cold",
        title="An empty cache",
        remarks=remarks,
        tables=[_rate_table(cold), _cpu_table(cold), _default_table(cold), _query_table(cold)],
        targets=[*_rate_targets(cold), *_default_targets(cold), *_query_targets(cold)],
        faults=[*faults, *unseen],
    )


def _rate_table(cold: Cold) -> FigureTable:
    rows = [
        timing.cells(cold.keys, _to_raw(cold, timing)) for timing in (*cold.sidelook, *cold.raw)
    ]
    headings = ["contender", "keys/s", "to asyncpg", "seconds, each round"]
    return FigureTable(f"cold, each of {cold.keys:,} keys once, in random order", headings, rows)


def _cpu_table(cold: Cold) -> FigureTable:
    rows = [
        [name, *(f"{spent[kind]:.2f}" for kind in SPENDERS), f"{sum(spent.values()):.2f}"]
        for name, spent in cold.spent.items()
    ]
    return FigureTable("cold, processor seconds", ["contender", *SPENDERS, "all"], rows)


def _default_table(cold: Cold) -> FigureTable:
    defaults = cold.defaults
    rows = [
        [
            *timing.cells(defaults.keys, cold.default_to_raw(timing)),
            f"{defaults.sidecar_us(timing.name):.2f}",
            f"{defaults.keys / defaults.queries[timing.name]:,.0f}",
        ]
        for timing in defaults.timings
    ]
    headings = ["contender", "keys/s", "to asyncpg", "seconds, each round"]
    headings += ["sidecar µs/key", "keys/query"]
    return FigureTable("cold, uniform keys, default settings", headings, rows)


def _query_table(cold: Cold) -> FigureTable:
    rows = [
        [
            name,
            f"{found.queries:,}",
            f"{found.distinct_keys:,}",
            f"{found.to_fewest:.3f}",
            f"{found.events / found.seconds:,.0f}",
        ]
        for name, found in cold.zipf.items()
    ]
    rows.append(["both, transactions in PostgreSQL", f"{cold.transactions:,}", "", "", ""])
    headings = ["contender", "queries", "distinct keys", "to the fewest", "records/s"]
    return FigureTable(f"cold, Zipf keys, at most {MAX_KEYS:,} keys per query", headings, rows)


def _rate_targets(cold: Cold) -> Iterator[Target]:
    for timing in cold.sidelook:
        name = f"cold, each key once, {SIDELOOK[timing.name]}: keys/s against asyncpg"
        reason = _reason(cold, cold.spent[timing.name])
        yield Target(name, _to_raw(cold, timing), 0.65, miss_reason=reason)


def _default_targets(cold: Cold) -> Iterator[Target]:
    for timing in cold.defaults.timings:
        name = f"cold, default settings, {SIDELOOK[timing.name]}"
        spent = cold.defaults.spent[timing.name]
        reason = (
            f"{_reason(cold, spent)}; the events through Python without a lookup take"
            f" {sum(cold.defaults.through.values()):.2f}"
        )
        rate = cold.default_to_raw(timing)
        yield Target(f"{name}: keys/s against asyncpg", rate, 0.60, miss_reason=reason)
        yield Target(
            f"{name}: sidecar, µs per key",
            cold.defaults.sidecar_us(timing.name),
            2.5,
            is_at_least=False,
            miss_reason=_sidecar_reason(spent),
        )


def _query_targets(cold: Cold) -> Iterator[Target]:
    for contender, found in cold.zipf.items():
        name = f"cold, Zipf keys, {SIDELOOK[contender]}: queries against the fewest"
        yield Target(name, found.to_fewest, 1.3, is_at_least=False)


def _reason(cold: Cold, ours: Seconds) -> str:
    raw = cold.spent[cold.best_raw.name]
    return (
        f"the job takes {sum(ours.values()):.2f} processor seconds (Spark"
        f" {ours['JVM'] + ours['Python workers']:.2f}, PostgreSQL {ours['PostgreSQL']:.2f}, sidecar"
        f" {ours['sidecar']:.2f}), and the loop {sum(raw.values()):.2f}"
    )


def _sidecar_reason(ours: Seconds) -> str:
    return (
        f"the sidecar takes {ours['sidecar']:.2f} of the job's {sum(ours.values()):.2f} processor"
        " seconds"
    )


def _to_raw(cold: Cold, timing: Timing) -> float:
    return cold.best_raw.median_s / timing.median_s
