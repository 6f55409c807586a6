"""Warm rate of a lookup join against other ways to add the same columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.contenders import SIDELOOK, THREADS, Contender, contenders, run_fully
from bench.section import FigureTable, Plot, Section, Target, paragraphs
from bench.sidecar_under_test import SidecarUnderTest, sidecar_under_test
from bench.timing import KINDS, Rate, Seconds, postmaster, seconds_of, time_in_turn
from bench.workload import KEYS, ZIPF_EXPONENT, Workload, workload_postgres
from demo.stream import spark_session

ORDER = "event"
REFERENCE = "widen"
_KEY_NAMES = {"zipf": "Zipf keys", "uniform": "uniform keys"}
_QUERY_REASON = "a query through a local Unix socket takes little time"
_DICT_REASON = "after the warm-up, the unbounded dicts have nearly all keys"
_REMARKS = """
Spark enriches {size.events:,} events over {size.rows:,} customers, read from Parquet, with two
tasks at a time. Spark, sidecar and PostgreSQL share the cores. They are connected by Unix sockets,
where a query is cheaper than over a network. Keys are uniform or Zipf({exponent}). After the
warm-up, contenders take turns for {size.rounds} rounds; rates are those of the median round.

`identity` passes events through Python. `widen` adds the three columns by one `take` from a table
in the worker, without a lookup. The broadcast join reads the whole table in each job, and never
leaves the JVM. Each worker has a dict of its own, which two rounds fill; it has no bound and no
refresh. The contender with threads is a plain UDF with Arrow and {threads} threads, which share one
interpreter lock.

Slow contenders get only the first events ({fewer}), and some run fewer rounds. The start of the job
weighs more in their rates.

The outputs for {size.compared_events:,} events are compared row by row, with a cold and a warm
cache. The sidecar sends no query in the counted rounds. Processor times are medians of these
rounds.
"""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a run."""

    events: int
    rows: int
    rounds: int
    compared_events: int
    events_of: Mapping[str, int]  # {slow contender: events}
    rounds_of: Mapping[str, int]  # {slow contender: rounds}


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
    """Measure all contenders with both kinds of key; each wrong output is a fault."""
    size = QUICK if is_quick else FULL
    workload = Workload(folder, size.events, size.rows)
    workload.write()
    with (
        workload_postgres(workload) as dsn,
        sidecar_under_test(dsn, folder) as tested,
        spark_session(folder / "spark.log") as session,
    ):
        compared = contenders(workload, endpoint=tested.sidecar.endpoint, dsn=dsn)
        server = postmaster(dsn)
        race = _Race(size, workload, session, tested, compared, server)
        rates = {keys: race.rates(keys) for keys in KEYS}
    fewer = "; ".join(f"{name} {count:,}" for name, count in size.events_of.items())
    text = _REMARKS.format(size=size, fewer=fewer, threads=THREADS, exponent=ZIPF_EXPONENT)
    return speed_section(rates, remarks=paragraphs(text), faults=race.faults)


@dataclass(frozen=True, slots=True)
class _Race:
    size: Size
    workload: Workload
    session: SparkSession
    tested: SidecarUnderTest
    contenders: Mapping[str, Contender]
    server: psutil.Process  # of PostgreSQL
    faults: list[str] = field(default_factory=list)

    def rates(self, keys: str) -> dict[str, Rate]:
        """Measure one kind of key; compare outputs before and after the cache is warm."""
        self._compare(keys, "cold", before=self.tested.empty_cache)
        spent: dict[str, list[Seconds]] = {name: [] for name in self.contenders}
        runs = {
            name: partial(_run_counted, self._frame(keys, name), spent[name], postgres=self.server)
            for name in self.contenders
        }
        # The dict warms up twice: each worker has its own and reads a part of the events per job.
        for name in [*runs, "dict in the worker"]:
            runs[name]()
        queries = self.tested.queries()
        timings = time_in_turn(
            runs, rounds=self.size.rounds, warm_ups=0, fewer_rounds=self.size.rounds_of
        )
        if self.tested.queries() != queries:
            self.faults.append(f"{keys} keys: the sidecar sent queries in the counted rounds")
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
    spent.append(seconds_of(partial(run_fully, frame), postgres=postgres))


def differences(outputs: Mapping[str, pa.Table]) -> list[str]:
    """Compare all outputs with the first one, in any order of the rows; one text per wrong one."""
    (reference, first), *others = outputs.items()
    expected = first.sort_by(ORDER)
    found = ((name, _difference(table.sort_by(ORDER), expected)) for name, table in others)
    return [f"{name} differs from {reference}: {text}" for name, text in found if text]


def _difference(table: pa.Table, expected: pa.Table) -> str:
    if _columns(table) != _columns(expected):
        return f"its columns are {_columns(table)}"
    if table.num_rows != expected.num_rows:
        return f"it has {table.num_rows:,} rows, not {expected.num_rows:,}"
    return next(filter(None, (_wrong(table, expected, name) for name in table.column_names)), "")


def _columns(table: pa.Table) -> dict[str, str]:
    # Nullability is not compared: it depends on how Spark adds the columns.
    return {field.name: str(field.type) for field in table.schema}


def _wrong(table: pa.Table, expected: pa.Table, name: str) -> str:
    """Describe the first wrong value of a column; "" if all are right."""
    if table[name].equals(expected[name]):
        return ""
    pairs = zip(table[name].to_pylist(), expected[name].to_pylist(), strict=True)
    row, (found, wanted) = next(each for each in enumerate(pairs) if each[1][0] != each[1][1])
    return f"{name} of event {expected[ORDER][row]} is {found}, not {wanted}"


Rates = Mapping[str, Mapping[str, Rate]]  # {kind of key: {contender: rate}}


def speed_section(
    rates: Rates, *, remarks: Sequence[str] = (), faults: Sequence[str] = ()
) -> Section:
    """Report the rates of both kinds of key, as ratios to `widen` and to other contenders."""
    series = {
        _KEY_NAMES[keys]: [(name, _ratio(found, name, REFERENCE)) for name in found]
        for keys, found in rates.items()
    }
    title = "Rate of enriching events, against adding the same columns without a lookup"
    return Section(
        name="speed",
        title="Speed of a lookup join",
        remarks=remarks,
        tables=[table(*each) for each in rates.items() for table in (_rate_table, _cpu_table)],
        plots=[Plot("speed", title, x_label="", y_label="rate (widen is 1)", series=series)],
        targets=list(_targets(rates)),
        faults=faults,
    )


def _rate_table(keys: str, rates: Mapping[str, Rate]) -> FigureTable:
    rows = [
        rate.timing.cells(rate.events, _ratio(rates, name, REFERENCE))
        for name, rate in rates.items()
    ]
    headings = ["contender", "records/s", "to widen", "seconds, each round"]
    return FigureTable(f"warm, {_KEY_NAMES[keys]}", headings, rows)


def _cpu_table(keys: str, rates: Mapping[str, Rate]) -> FigureTable:
    rows = [
        [name, *(f"{rate.cpu_ns(kind):,.0f}" for kind in KINDS)] for name, rate in rates.items()
    ]
    title = f"warm, {_KEY_NAMES[keys]}: processor time, ns per record"
    return FigureTable(title, ["contender", *KINDS], rows)


def _targets(rates: Rates) -> Iterator[Target]:
    zipf, uniform = rates["zipf"], rates["uniform"]
    for found, keys, *limits in ((zipf, "Zipf", 0.95, 0.74), (uniform, "uniform", 0.90, 0.70)):
        for name in SIDELOOK:
            what = f"warm, {keys} keys, {SIDELOOK[name]}"
            reasons = (
                _worker_reason(found, name),
                _with_most("", _ratio(found, REFERENCE, "identity")),
            )
            for reference, limit, reason in zip(
                (REFERENCE, "identity"), limits, reasons, strict=True
            ):
                ratio = _ratio(found, name, reference)
                yield Target(
                    f"{what}: rate against `{reference}`", ratio, limit, miss_reason=reason
                )
            sidecar_ns = found[name].cpu_ns("sidecar")
            yield Target(f"{what}: sidecar, ns per record", sidecar_ns, 5.0, is_at_least=False)
    for other, title, limit, reason in (
        ("query per record", "one query per record", 50.0, _QUERY_REASON),
        ("query per batch", "the per-batch query", 2.0, _QUERY_REASON),
    ):
        least = min(_least(found, other) for found in rates.values())
        most = min(_ratio(found, REFERENCE, other) for found in rates.values())
        what = f"warm, any keys and mode: rate against {title}"
        yield Target(what, least, limit, miss_reason=_with_most(reason, most))
    for found, keys, limit in ((zipf, "Zipf", 1.3), (uniform, "uniform", 3.0)):
        what = f"warm, {keys} keys, any mode: rate against the worker's dict"
        most = _ratio(found, REFERENCE, "dict in the worker")
        least = _least(found, "dict in the worker")
        yield Target(what, least, limit, miss_reason=_with_most(_DICT_REASON, most))


def _worker_reason(rates: Mapping[str, Rate], name: str) -> str:
    own, reference = (rates[each].cpu_ns("Python workers") for each in (name, REFERENCE))
    return (
        f"Python workers take {own:,.0f} ns per record, and those of `widen` {reference:,.0f}: a"
        " lookup hashes the key, finds its row in shared memory, and checks it"
    )


def _with_most(reason: str, ratio: float) -> str:
    """Add the ratio of what does no lookup, which bounds that of all others."""
    most = f"`widen`, without a lookup, reaches {ratio:.2f}"
    return f"{reason}; {most}" if reason else most


def _least(rates: Mapping[str, Rate], other: str) -> float:
    """Return the ratio of the slower mode."""
    return min(_ratio(rates, name, other) for name in SIDELOOK)


def _ratio(rates: Mapping[str, Rate], name: str, other: str) -> float:
    return rates[name].per_second / rates[other].per_second
