"""Several lookups in one pass: micro-batches and long runs, against one lookup and none."""

import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from bench.contenders import Contender, identity, run_fully
from bench.section import FigureTable, Section, Target, paragraphs
from bench.timing import KINDS, Rate, Seconds, postmaster, seconds_of, time_in_turn
from bench.workload import SEED
from demo.postgres import embedded_postgres
from demo.sidecar import running_sidecar
from demo.stream import CORES, spark_session
from spark_client import Sidecar
from spark_client.driver.lookup_join import LookupJoin

ROWS = (10, 1_000, 100_000, 1_000_000)  # of dimension d0, d1, …
_CREATE = sql.SQL(
    """CREATE TABLE {table} AS SELECT id::bigint AS id, 'customer ' || id AS {name},
        'segment ' || id % 4 AS {segment}, (id % 10)::int AS {tier}
        FROM generate_series(0, {last}) AS id"""
)
_CACHE = {"max_bytes": "256MiB", "ttl": "1h"}
_REMARKS = """
Four dimensions have {rows} rows and three columns. Keys are uniform: 10,000 events have about
20,000 distinct keys. `four` looks up all dimensions in one pass (`lookup_joins`), `one` only the
largest, and `four passes` chains four lookup joins. All are ordered, and the cache is warm.
`identity` passes the events through Python once. `widen` adds the same twelve columns by `take`
from tables in the worker.

Micro-batches come from a stream of Parquet files into the sink `noop`: {batches} per contender and
round, {rounds} rounds. Figures are medians of Spark's `addBatch`, without the first batch of a
stream. Long runs have {events:,} events.
"""

# Workers need not import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # no types


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a run."""

    events: int
    batches: int  # of a stream
    rounds: int


FULL = Size(events=4_000_000, batches=8, rounds=5)
QUICK = Size(events=1_000_000, batches=5, rounds=3)


def one_pass(folder: Path, *, is_quick: bool) -> Section:
    """Measure micro-batches and long runs of four lookups in one pass."""
    size = QUICK if is_quick else FULL
    with (
        TemporaryDirectory(dir=folder) as own,
        _postgres() as dsn,
        running_sidecar(_settings(dsn), folder) as sidecar,
        spark_session(folder / "spark.log") as session,
    ):
        race = _Race(Path(own), size, session, contenders(sidecar.endpoint, Path(own)), dsn)
        race.write()
        race.warm()
        long_run = race.long_run()
        batches = {rows: race.micro_batches(rows) for rows in (100_000, 1_000)}
    rows = ", ".join(f"{each:,}" for each in ROWS)
    text = _REMARKS.format(rows=rows, events=size.events, batches=size.batches, rounds=size.rounds)
    return Section(
        name="one-pass",
        title="Several lookups in one pass",
        remarks=paragraphs(text),
        tables=[_run_table(long_run), _cpu_table(long_run), *map(_batch_table, batches.items())],
        targets=list(_targets(long_run, batches)),
    )


def contenders(endpoint: str, folder: Path) -> dict[str, Contender]:
    """Return all contenders by name."""
    sidecar = Sidecar(endpoint)
    joins = [
        sidecar.lookup_join(f"d{number}", on={f"k{number}": "id"}, timeout=120.0)
        for number in range(len(ROWS))
    ]
    return {
        "identity": identity,
        "widen": _widen([str(_table(folder, number)) for number in range(len(ROWS))]),
        "one": lambda events: events.transform(joins[-1]),
        "four": lambda events: events.transform(sidecar.lookup_joins(joins)),
        "four passes": partial(_chained, joins),
    }


def _chained(joins: Sequence[LookupJoin], events: DataFrame) -> DataFrame:
    for join in joins:
        events = events.transform(join)
    return events


def _widen(tables: Sequence[str]) -> Contender:
    def widened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        resident = [pq.read_table(path).combine_chunks().to_batches()[0] for path in tables]
        for batch in batches:
            columns, names = [*batch.columns], [*batch.schema.names]
            for number, rows in enumerate(resident):
                taken = rows.take(batch.column(f"k{number}"))  # row n has key n
                columns += taken.columns
                names += taken.schema.names
            yield pa.record_batch(columns, names=names)

    def add(events: DataFrame) -> DataFrame:
        own = [f"{field.name} {field.dataType.simpleString()}" for field in events.schema]
        added = [
            f"name{each} string, segment{each} string, tier{each} int" for each in range(len(ROWS))
        ]
        return events.mapInArrow(widened, ", ".join([*own, *added]))

    return add


@dataclass(frozen=True, slots=True)
class _Race:
    folder: Path
    size: Size
    session: SparkSession
    contenders: Mapping[str, Contender]
    dsn: str

    def write(self) -> None:
        """Write events, and the tables of `widen`."""
        random = np.random.default_rng(SEED)
        _write(self.folder / "events.parquet", _events(self.size.events, random))
        for number, rows in enumerate(ROWS):
            pq.write_table(_resident(number, rows), _table(self.folder, number))
        for rows in (100_000, 1_000):
            folder = self.folder / f"batches-{rows}"
            folder.mkdir()
            for batch in range(self.size.batches):
                _write(folder / f"{batch:03}.parquet", _events(rows, random))

    def warm(self) -> None:
        """Look up every key, so that the cache has all rows."""
        keys = np.arange(max(ROWS))
        path = self.folder / "keys.parquet"
        _write(path, pa.table({f"k{number}": keys % rows for number, rows in enumerate(ROWS)}))
        run_fully(self.contenders["four"](self.session.read.parquet(str(path))))

    def long_run(self) -> dict[str, Rate]:
        """Time all contenders in turn over all events."""
        events = self.session.read.parquet(str(self.folder / "events.parquet"))
        spent: dict[str, list[Seconds]] = {name: [] for name in self.contenders}
        server = postmaster(self.dsn)

        def counted(name: str) -> None:
            run = partial(run_fully, self.contenders[name](events))
            spent[name].append(seconds_of(run, postgres=server))

        runs = {name: partial(counted, name) for name in self.contenders}
        timings = time_in_turn(runs, rounds=self.size.rounds)
        return {each.name: Rate(each, self.size.events, spent[each.name]) for each in timings}

    def micro_batches(self, rows: int) -> dict[str, list[float]]:
        """Return `addBatch` of the micro-batches of each contender, in milliseconds."""
        found: dict[str, list[float]] = {name: [] for name in self.contenders if name != "widen"}
        for _ in range(self.size.rounds):
            for name, each in found.items():
                each.extend(self._stream(rows, self.contenders[name]))
        return found

    def _stream(self, rows: int, add: Contender) -> list[float]:
        folder, checkpoint = str(self.folder / f"batches-{rows}"), self.folder / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        reader = self.session.readStream.schema(self.session.read.parquet(folder).schema)
        events = reader.option("maxFilesPerTrigger", 1).parquet(folder)
        query = (
            add(events)
            .writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        times = {each.batchId: each.durationMs["addBatch"] for each in query.recentProgress}
        return [float(times[batch]) for batch in sorted(times)[1:]]


def _table(folder: Path, number: int) -> Path:
    return folder / f"d{number}.parquet"


def _resident(number: int, rows: int) -> pa.Table:
    keys = np.arange(rows)
    return pa.table(
        {
            f"name{number}": [f"customer {key}" for key in keys],
            f"segment{number}": [f"segment {key % 4}" for key in keys],
            f"tier{number}": (keys % 10).astype(np.int32),
        }
    )


def _events(count: int, random: np.random.Generator) -> pa.Table:
    keys = {f"k{number}": random.integers(0, rows, count) for number, rows in enumerate(ROWS)}
    return pa.table({"event": np.arange(count), **keys, "amount": random.random(count)})


def _write(path: Path, table: pa.Table) -> None:
    # Spark splits a file by row group.
    pq.write_table(table, path, row_group_size=min(250_000, -(-table.num_rows // CORES)))


@contextmanager
def _postgres() -> Iterator[str]:
    with embedded_postgres() as server:
        dsn = server.get_uri()
        with psycopg.connect(dsn, autocommit=True) as admin:
            for number, rows in enumerate(ROWS):
                table = sql.Identifier(f"d{number}")
                columns = {
                    each: sql.Identifier(f"{each}{number}") for each in ("name", "segment", "tier")
                }
                admin.execute(_CREATE.format(table=table, last=sql.Literal(rows - 1), **columns))
                admin.execute(sql.SQL("ALTER TABLE {} ADD PRIMARY KEY (id)").format(table))
                admin.execute(sql.SQL("VACUUM (ANALYZE) {}").format(table))
        yield dsn


def _settings(dsn: str) -> dict[str, object]:
    dimensions = {
        f"d{number}": {
            "source": {"kind": "postgres", "dsn": dsn, "table": f"public.d{number}"},
            "key": ["id"],
            "cache": _CACHE,
        }
        for number in range(len(ROWS))
    }
    return {"limits": {"memory": "2GiB"}, "dimensions": dimensions}


def _run_table(runs: Mapping[str, Rate]) -> FigureTable:
    reference = runs["widen"]
    rows = [
        run.timing.cells(run.events, run.per_second / reference.per_second) for run in runs.values()
    ]
    headings = ["contender", "events/s", "to widen", "seconds, each round"]
    return FigureTable(f"{reference.events:,} events, warm", headings, rows)


def _cpu_table(runs: Mapping[str, Rate]) -> FigureTable:
    rows = [[name, *(f"{run.cpu_s(kind):.2f}" for kind in KINDS)] for name, run in runs.items()]
    title = f"{runs['widen'].events:,} events, warm: processor seconds"
    return FigureTable(title, ["contender", *KINDS], rows)


def _batch_table(measured: tuple[int, Mapping[str, Sequence[float]]]) -> FigureTable:
    rows, found = measured
    reference = statistics.median(found["identity"])
    lines = [
        [name, f"{statistics.median(each):,.0f}", f"{statistics.median(each) / reference:.2f}"]
        for name, each in found.items()
    ]
    headings = ["contender", "addBatch, ms", "to identity"]
    return FigureTable(f"micro-batches of {rows:,} events, warm", headings, lines)


def _targets(
    runs: Mapping[str, Rate], batches: Mapping[int, Mapping[str, Sequence[float]]]
) -> Iterator[Target]:
    medians = {
        rows: {name: statistics.median(each) for name, each in found.items()}
        for rows, found in batches.items()
    }
    large, small = medians[100_000], medians[1_000]
    for rows, found, limit in ((1_000, small, 1.05), (100_000, large, 1.35)):
        what = f"{rows:,} events, one lookup: addBatch against `identity`"
        yield Target(what, found["one"] / found["identity"], limit, is_at_least=False)
    what = "100,000 events, four lookups: addBatch against one lookup"
    yield Target(what, large["four"] / large["one"], 1.8, is_at_least=False)
    what = "1,000 events, four lookups: addBatch against `identity`"
    yield Target(what, small["four"] / small["identity"], 1.3, is_at_least=False)
    ratio = runs["four"].per_second / runs["widen"].per_second
    reason = (
        "workers take {four:,.0f} ns per record and lookup, and those of `widen` {widen:,.0f}"
    ).format_map(
        {name: runs[name].cpu_ns("Python workers") / len(ROWS) for name in ("four", "widen")}
    )
    yield Target("four lookups, warm: rate against `widen`", ratio, 0.85, miss_reason=reason)
