"""Lookup joins of wide records, by all columns and by the needed columns only.

Compares `via="batch"` with `via="udf"`, which decides the rule of `via="auto"`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from bench.contenders import Contender, run_fully, widen
from bench.section import FigureTable, Section, Target, paragraphs
from bench.sidecar_under_test import sidecar_under_test
from bench.speed import differences
from bench.timing import Timing, time_in_turn
from bench.workload import SEED, ZIPF_EXPONENT, Workload, workload_postgres, zipf_keys
from demo.stream import CORES, spark_session
from spark_client import Sidecar
from spark_client.driver.options import Route

ADDED = ("name", "segment", "tier")
USED = ("event", "amount")
SELECT = "select and identity"
TAKE = "take in a function"
WIDEN = "widen"
LEAST_RATIO = 0.85
_TARGET_WIDTH = 50
_FEWEST_COLUMNS = 3  # event, customer_id, amount
_COMPARED_EVENTS = 10_000
_REMARKS = """
Spark enriches events of {widths} columns (integers, doubles, texts) with three columns of
{size.rows:,} customers. Keys are Zipf({exponent}). The query uses all columns, or two of them and
one added column. Contenders take turns for {size.rounds} rounds; rates are those of the median
round.

`via batch` and `via udf` are the ways of an ordered lookup join. `widen` sends all columns through
Python and adds three by one `take` from a table in the worker. `select and identity` sends one of
three columns through a scalar Arrow function that returns its input. `{take}` takes the added
column from a table in the worker: no lookup in a function is faster.
"""


# Workers need not import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # no types


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a run."""

    rows: int  # of the dimension
    rounds: int
    events_of: Mapping[int, int]  # {columns: events}


FULL = Size(100_000, 7, {5: 2_000_000, 10: 2_000_000, 50: 2_000_000, 200: 250_000})
QUICK = Size(100_000, 3, {5: 500_000, 50: 500_000, 200: 60_000})


@dataclass(frozen=True, slots=True)
class WideRates:
    """The timings of one width, and what the query uses."""

    columns: int
    events: int
    keeps_all: bool
    timings: Sequence[Timing]

    def per_second(self, name: str) -> float:
        """Events per second of a contender in the median round."""
        return next(self.events / each.median_s for each in self.timings if each.name == name)

    def ratio(self, name: str) -> float:
        """The rate against that of the reference."""
        return self.per_second(name) / self.per_second(WIDEN if self.keeps_all else SELECT)


def wide_records(folder: Path, *, is_quick: bool) -> Section:
    """Measure all widths; each wrong output is a fault."""
    size = QUICK if is_quick else FULL
    workload = Workload(folder, events=100_000, rows=size.rows)
    workload.write()
    faults: list[str] = []
    rates: list[WideRates] = []
    with (
        workload_postgres(workload) as dsn,
        sidecar_under_test(dsn, folder) as tested,
        spark_session(folder / "spark.log") as session,
    ):
        endpoint, dimension = tested.sidecar.endpoint, str(workload.dimension)
        for columns, events in size.events_of.items():
            path = folder / f"events-wide-{columns}-{events}-{size.rows}.parquet"
            write_events(path, events, columns=columns, rows=size.rows)
            for keeps_all in (True, False):
                make = wide_contenders if keeps_all else narrow_contenders
                race = _Race(session, str(path), make(endpoint, dimension), size.rounds)
                wrong = race.faults(WIDEN if keeps_all else TAKE)
                faults += [f"{columns} columns: {each}" for each in wrong]
                rates.append(WideRates(columns, events, keeps_all, race.timings()))
    widths = ", ".join(map(str, size.events_of))
    remarks = paragraphs(
        _REMARKS.format(size=size, widths=widths, exponent=ZIPF_EXPONENT, take=TAKE)
    )
    return wide_section(rates, remarks=remarks, faults=faults)


def write_events(path: Path, events: int, *, columns: int, rows: int) -> None:
    """Write events of `columns` columns, with Zipf keys, unless the file exists."""
    if path.exists():
        return
    random = np.random.default_rng(SEED)
    numbers = np.arange(events)
    table: dict[str, object] = {
        "event": numbers,
        "customer_id": zipf_keys(events, rows, random),
        "amount": np.round(numbers % 9973 / 7, 2),
    }
    table |= {f"c{at}": _filler(numbers, at) for at in range(columns - _FEWEST_COLUMNS)}
    groups = 4 * CORES
    pq.write_table(pa.table(table), path, row_group_size=-(-events // groups))


def _filler(numbers: npt.NDArray[np.int64], at: int) -> object:
    codes = (numbers * (at + 1)) % (89 + at)
    match at % 3:
        case 0:
            return codes
        case 1:
            return codes / 7
    texts = pa.array([f"text number {code}" for code in range(89 + at)])
    return texts.take(pa.array(codes))


def wide_contenders(endpoint: str, dimension: str) -> dict[str, Contender]:
    """Return the contenders by name, where a query uses all columns."""
    return {
        "via batch": _join(endpoint, ADDED, via="batch"),
        "via udf": _join(endpoint, ADDED, via="udf"),
        WIDEN: widen(dimension),
    }


def narrow_contenders(endpoint: str, dimension: str) -> dict[str, Contender]:
    """Return the contenders by name, where a query uses two of the events' columns and one more."""
    added = ADDED[:1]
    joins = {
        "via batch": _join(endpoint, added, via="batch"),
        "via udf": _join(endpoint, added, via="udf"),
    }
    functions = {TAKE: _taken(dimension), SELECT: _identity()}
    return {
        **{name: partial(_used, join, added[0]) for name, join in joins.items()},
        **{name: partial(_called, function) for name, function in functions.items()},
    }


def _join(endpoint: str, added: Sequence[str], *, via: Route) -> Contender:
    return Sidecar(endpoint).lookup_join(
        "customers", on={"customer_id": "id"}, columns=added, via=via, timeout=60.0
    )


def _used(join: Contender, added: str, events: DataFrame) -> DataFrame:
    return join(events).select(*USED, added)


def _called(function: Callable[..., Column], events: DataFrame) -> DataFrame:
    return events.select(*USED, function("customer_id").alias(ADDED[0]))


@dataclass(frozen=True, slots=True)
class _Race:
    session: SparkSession
    path: str
    contenders: Mapping[str, Contender]
    rounds: int

    def faults(self, reference: str) -> list[str]:
        """Compare the outputs for the first events with those of the reference."""
        first = self._events().where(F.col("event") < _COMPARED_EVENTS)
        outputs = {
            name: add(first).toArrow() for name, add in self.contenders.items() if name != SELECT
        }
        return differences({reference: outputs.pop(reference), **outputs})

    def timings(self) -> list[Timing]:
        """Time all contenders in turn."""
        runs = {
            name: partial(run_fully, add(self._events())) for name, add in self.contenders.items()
        }
        return time_in_turn(runs, rounds=self.rounds, warm_ups=2)

    def _events(self) -> DataFrame:
        return self.session.read.parquet(self.path)


def _taken(dimension: str) -> Callable[..., Column]:
    def taken(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        names = pq.read_table(dimension, columns=[ADDED[0]]).combine_chunks().column(0).chunk(0)
        for keys in batches:
            yield names.take(keys)  # row n has key n

    return F.arrow_udf(taken, returnType="string")  # type: ignore[attr-defined]  # not in its stubs


def _identity() -> Callable[..., Column]:
    def returned(keys: pa.Array) -> pa.Array:
        return keys

    return F.arrow_udf(returned, returnType="long")  # type: ignore[attr-defined]  # not in its stubs


def wide_section(
    rates: Sequence[WideRates], *, remarks: Sequence[str] = (), faults: Sequence[str] = ()
) -> Section:
    """Report the rates of all widths, as ratios to the reference of each."""
    return Section(
        name="wide",
        title="Lookup joins of wide records",
        remarks=remarks,
        tables=[_table(each) for each in rates],
        targets=list(_targets(rates)),
        faults=faults,
    )


def _table(rates: WideRates) -> FigureTable:
    rows = [each.cells(rates.events, rates.ratio(each.name)) for each in rates.timings]
    used = "all used" if rates.keeps_all else "two used"
    reference = WIDEN if rates.keeps_all else SELECT
    headings = ["contender", "records/s", f"to {reference}", "seconds, each round"]
    return FigureTable(f"{rates.columns} columns, {used}", headings, rows)


def _targets(rates: Sequence[WideRates]) -> Iterator[Target]:
    for each in rates:
        if each.columns == _TARGET_WIDTH and not each.keeps_all:
            what = f"{each.columns} columns, two used: rate against `{SELECT}`"
            reason = f"`{TAKE}`, without a lookup, reaches {each.ratio(TAKE):.2f}"
            yield Target(what, each.ratio("via udf"), LEAST_RATIO, miss_reason=reason)
