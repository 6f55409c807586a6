"""Warm rate of a lookup join against other ways to add the same columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.contenders import SIDELOOK, THREADS, Contender, contenders
from bench.section import Section
from bench.sidecar_under_test import SidecarUnderTest, sidecar_under_test
from bench.speed_section import Rate, speed_section
from bench.timing import Seconds, postmaster, seconds_of, time_in_turn
from bench.workload import KEYS, ZIPF_EXPONENT, Workload, workload_postgres
from demo.stream import spark_session

ORDER = "event"


def differences(outputs: Mapping[str, pa.Table]) -> list[str]:
    """Who does not have the rows of the first one, and where; rows may come in any order."""
    (reference, first), *others = outputs.items()
    expected = first.sort_by(ORDER)
    found = ((name, _difference(table.sort_by(ORDER), expected)) for name, table in others)
    return [f"{name} is not {reference}: {difference}" for name, difference in found if difference]


def _difference(table: pa.Table, expected: pa.Table) -> str:
    if _columns(table) != _columns(expected):
        return f"its columns are {_columns(table)}"
    if table.num_rows != expected.num_rows:
        return f"it has {table.num_rows:,} rows of {expected.num_rows:,}"
    return next(filter(None, (_wrong(table, expected, name) for name in table.column_names)), "")


def _columns(table: pa.Table) -> dict[str, str]:
    # Whether a column may be null is not compared: Spark's ways differ in what they can promise.
    return {field.name: str(field.type) for field in table.schema}


def _wrong(table: pa.Table, expected: pa.Table, name: str) -> str:
    """What the column has that is not so; "" where nothing is wrong."""
    if table[name].equals(expected[name]):
        return ""
    pairs = zip(table[name].to_pylist(), expected[name].to_pylist(), strict=True)
    row, (found, wanted) = next(each for each in enumerate(pairs) if each[1][0] != each[1][1])
    return f"{name} of event {expected[ORDER][row]} is {found}, not {wanted}"


_REMARKS = """
{size.events:,} events over {size.rows:,} customers, in Parquet, by Spark with two tasks at a time,
which share the cores with the sidecar and PostgreSQL; all reach each other by Unix sockets, where a
query costs a fraction of what it costs over a network. Keys are uniform, or Zipf({exponent}): few
are asked for often, most seldom. {size.rounds} rounds in turn after those that warm up; rates are
those of the median.

`identity` passes events through Python; `widen` adds the three columns by one `take` from a table
that is resident in the worker: no lookup, and the limit of what any enrichment in Python can do.

Those who ask for each record or batch get the first events only ({fewer}), and some of the slow
ones take part in fewer rounds. Rates are compared; the start of a job weighs more in theirs.

The dict in the worker was filled in two rounds; in later ones it asks for the few keys that the
worker has not seen. It has no bound, each worker has its own, and rows that change stay as they
were read. The broadcast join reads the whole table anew for each job, as
it was when it was written to Parquet; it never leaves the JVM, and may so be faster than `widen`.

`spark.sql.execution.pythonUDF.arrow.concurrency.level` is {threads} for the contender with threads:
a plain UDF with Arrow, since pandas UDFs and `mapInPandas` do not heed it. Its threads share one
interpreter, whose lock they wait for.

The outputs of all contenders for {size.compared_events:,} events of each kind were compared row for
row, while the cache was cold and when it was warm; the sidecar sent no query in the rounds that
count.

Processor time is that of the median round, by the kind of process that spent it.
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    events: int
    rows: int
    rounds: int
    compared_events: int
    events_of: Mapping[str, int]  # {contender: events}, for those who would take too long
    rounds_of: Mapping[str, int]  # {contender: rounds}, the same


FULL = Size(
    events=4_000_000,
    rows=1_000_000,
    rounds=5,
    compared_events=100_000,
    events_of={
        "query per record": 100_000,
        "query per record, threads": 100_000,
        "query per batch": 1_000_000,
    },
    rounds_of={"query per record, threads": 3, "query per batch": 3, "dict in the worker": 3},
)
QUICK = Size(
    events=1_000_000,
    rows=200_000,
    rounds=3,
    compared_events=10_000,
    events_of={
        "query per record": 20_000,
        "query per record, threads": 20_000,
        "query per batch": 400_000,
    },
    rounds_of={"query per record, threads": 1, "query per batch": 2, "dict in the worker": 2},
)


def speed(folder: Path, *, is_quick: bool) -> Section:
    """Measure all contenders with both kinds of key; a fault for each wrong answer."""
    size = QUICK if is_quick else FULL
    workload = Workload(folder, size.events, size.rows)
    workload.write()
    with (
        workload_postgres(folder / "postgres", workload) as dsn,
        sidecar_under_test(dsn, folder) as sidecar,
        spark_session(folder / "spark.log") as session,
    ):
        compared = contenders(workload, endpoint=sidecar.endpoint, dsn=dsn)
        server = postmaster(folder / "postgres")
        race = _Race(size, workload, session, sidecar, compared, server)
        rates = {keys: race.rates(keys) for keys in KEYS}
    return speed_section(rates, remarks=_remarks(size), faults=race.faults)


@dataclass(frozen=True, slots=True)
class _Race:
    size: Size
    workload: Workload
    session: SparkSession
    sidecar: SidecarUnderTest
    contenders: Mapping[str, Contender]
    server: psutil.Process  # of PostgreSQL
    faults: list[str] = field(default_factory=list)

    def rates(self, keys: str) -> dict[str, Rate]:
        """Of one kind of key; answers are compared before the cache is warm, and after."""
        self._compare(keys, "cold", before=self.sidecar.empty_cache)
        spent: dict[str, list[Seconds]] = {name: [] for name in self.contenders}
        runs = {
            name: partial(_run_counted, self._frame(keys, name), spent[name], postgres=self.server)
            for name in self.contenders
        }
        # Each worker has a dict of its own, and sees only its part of the events at a time.
        for name in [*runs, "dict in the worker"]:
            runs[name]()
        queries = self.sidecar.queries()
        timings = time_in_turn(
            runs, rounds=self.size.rounds, warm_ups=0, fewer_rounds=self.size.rounds_of
        )
        if self.sidecar.queries() != queries:
            self.faults.append(f"{keys} keys: the warm cache was not warm")
        self._compare(keys, "warm")
        return {
            each.name: Rate(each, self._events(each.name), tuple(spent[each.name]))
            for each in timings
        }

    def _compare(
        self, keys: str, state: str, *, before: Callable[[], object] | None = None
    ) -> None:
        path = self.workload.first_events_of(keys, self.size.compared_events)
        events = self.session.read.parquet(str(path))
        outputs: dict[str, pa.Table] = {}
        for name, add in self.contenders.items():
            if before is not None and name in SIDELOOK:
                before()
            if name != "identity":
                outputs[name] = add(events).toArrow()
        self.faults.extend(f"{keys} keys, {state}: {each}" for each in differences(outputs))

    def _frame(self, keys: str, name: str) -> DataFrame:
        path = self.workload.events_of(keys)
        if name in self.size.events_of:
            path = self.workload.first_events_of(keys, self._events(name))
        return self.contenders[name](self.session.read.parquet(str(path)))

    def _events(self, name: str) -> int:
        return self.size.events_of.get(name, self.size.events)


def _run_counted(frame: DataFrame, spent: list[Seconds], *, postgres: psutil.Process) -> None:
    run = frame.write.format("noop").mode("overwrite").save
    spent.append(seconds_of(run, postgres=postgres))


def _remarks(size: Size) -> list[str]:
    fewer = ", ".join(f"{name}: {count:,}" for name, count in size.events_of.items())
    text = _REMARKS.format(size=size, fewer=fewer, threads=THREADS, exponent=ZIPF_EXPONENT)
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
