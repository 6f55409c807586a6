"""Contenders of the benchmark: lookup joins, baselines, and common practice."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

import asyncpg
import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast, udf
from pyspark.sql.functions import pandas_udf as series_udf  # type: ignore[attr-defined]  # not in its stubs

from bench.workload import Workload
from spark_client import Sidecar

Contender = Callable[[DataFrame], DataFrame]
Mode = Literal["ordered", "unordered"]
SIDELOOK: Mapping[str, Mode] = {"sidelook ordered": "ordered", "sidelook unordered": "unordered"}
THREADS = 4  # per worker, for the contender whose UDF runs in threads

_NAMES = ["name", "segment", "tier"]
_TYPES = "name string, segment string, tier int"
_NO_ROW = (None, None, None)
_QUERY_OF_ONE = "SELECT name, segment, tier FROM customers WHERE id = %s"
_QUERY_OF_MANY = "SELECT id, name, segment, tier FROM customers WHERE id = ANY($1)"
_THREADS_SETTING = "spark.sql.execution.pythonUDF.arrow.concurrency.level"
_Kept = TypeVar("_Kept")

# Workers need not import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # no types


def contenders(workload: Workload, *, endpoint: str, dsn: str) -> dict[str, Contender]:
    """Return all contenders by name, in the order of the table."""
    return {
        "identity": identity,
        "widen": widen(str(workload.dimension)),
        **{name: sidelook(endpoint, mode) for name, mode in SIDELOOK.items()},
        "query per record": _query_per_record(dsn),
        "query per record, threads": _query_per_record_by_threads(dsn),
        "query per batch": _query_per_batch(dsn),
        "dict in the worker": _dict_in_worker(dsn),
        "broadcast join": _broadcast_join(workload.dimension),
    }


def sidelook(endpoint: str, mode: Mode) -> Contender:
    """Return the lookup join in one of its modes."""
    join = Sidecar(endpoint).lookup_join(
        "customers",
        on={"customer_id": "id"},
        columns=_NAMES,
        mode=mode,
        timeout=60.0,  # the first round starts cold on a busy machine
    )

    def add(events: DataFrame) -> DataFrame:
        return events.transform(join)

    return add


def run_fully(frame: DataFrame) -> None:
    """Compute all columns and rows, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def identity(events: DataFrame) -> DataFrame:
    """Pass the events through Python."""

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return events.mapInArrow(through, events.schema)


def widen(dimension: str) -> Contender:
    """Return what adds the columns by one `take` from the Parquet file, without a lookup."""

    def widened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        customers = pq.read_table(dimension, columns=["name", "segment", "tier"])
        resident = customers.combine_chunks().to_batches()[0]
        for batch in batches:
            taken = resident.take(batch.column("customer_id"))  # row n has key n
            names = [*batch.schema.names, *taken.schema.names]
            yield pa.record_batch([*batch.columns, *taken.columns], names=names)

    def add(events: DataFrame) -> DataFrame:
        return events.mapInArrow(widened, _widened_schema(events))

    return add


def _query_per_record(dsn: str) -> Contender:
    """Query in a pandas UDF, over one connection per task."""

    def found(batches: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for keys in batches:
                rows = [_row(connection, key) for key in keys.tolist()]
                yield pd.DataFrame(rows, columns=_NAMES)

    return _with_columns_of(series_udf(found, _TYPES))


def _query_per_record_by_threads(dsn: str) -> Contender:
    """Query in a plain UDF with Arrow, the only kind here that Spark runs in threads."""

    def found(key: int) -> Any:  # noqa: ANN401  a row as psycopg returns it
        connections = _kept_in_worker("connections", threading.local)
        if not hasattr(connections, "own"):  # each batch has new threads
            connections.own = psycopg.connect(dsn, autocommit=True)
        return _row(connections.own, key)

    add = _with_columns_of(udf(found, _TYPES, useArrow=True))

    def add_by_threads(events: DataFrame) -> DataFrame:
        events.sparkSession.conf.set(_THREADS_SETTING, str(THREADS))  # ignored by the others
        return add(events)

    return add_by_threads


def _query_per_batch(dsn: str) -> Contender:
    """Send one query per batch in `mapInPandas`."""

    def joined(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        with _fetching(dsn) as fetch:
            for batch in batches:
                rows = fetch(batch["customer_id"].unique().tolist())
                found = pd.DataFrame(map(tuple, rows), columns=["id", *_NAMES])
                found = found.astype({"id": "int64"})  # also without rows
                yield batch.merge(found, how="left", left_on="customer_id", right_on="id").drop(
                    columns="id"
                )

    return _mapped(joined)


def _dict_in_worker(dsn: str) -> Contender:
    """Query per batch with an unbounded dict that later tasks reuse and that is never refreshed."""

    def joined(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        known: dict[int, Any] = _kept_in_worker("rows", dict)
        with _fetching(dsn) as fetch:
            for batch in batches:
                keys = batch["customer_id"].tolist()
                unknown = set(keys).difference(known)
                if unknown:
                    known.update(dict.fromkeys(unknown, _NO_ROW))
                    known.update((row[0], row[1:]) for row in fetch(list(unknown)))
                columns = zip(*map(known.__getitem__, keys), strict=True)
                yield batch.assign(**dict(zip(_NAMES, columns, strict=True)))

    return _mapped(joined)


def _broadcast_join(dimension: Path) -> Contender:
    def add(events: DataFrame) -> DataFrame:
        customers = events.sparkSession.read.parquet(str(dimension))
        is_theirs = events["customer_id"] == customers["id"]
        return events.join(broadcast(customers), is_theirs, "left").drop("id")

    return add


def _with_columns_of(find: Callable[..., Any]) -> Contender:
    def add(events: DataFrame) -> DataFrame:
        return events.withColumn("customer", find("customer_id")).select(
            *events.columns, "customer.*"
        )

    return add


def _mapped(function: Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]) -> Contender:
    def add(events: DataFrame) -> DataFrame:
        return events.mapInPandas(function, _widened_schema(events))

    return add


def _widened_schema(events: DataFrame) -> str:
    own = (f"{field.name} {field.dataType.simpleString()}" for field in events.schema)
    return ", ".join([*own, _TYPES])


def _row(connection: psycopg.Connection[Any], key: int) -> Any:  # noqa: ANN401  as psycopg returns it
    return connection.execute(_QUERY_OF_ONE, [key]).fetchone() or _NO_ROW


@contextmanager
def _fetching(dsn: str) -> Iterator[Callable[[list[int]], list[asyncpg.Record]]]:
    """Yield a function that fetches the rows of keys over one connection per task."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(dsn))
        yield lambda keys: runner.run(connection.fetch(_QUERY_OF_MANY, keys))
        runner.run(connection.close())


def _kept_in_worker(name: str, make: Callable[[], _Kept]) -> _Kept:
    """Return an object that later tasks of the worker reuse.

    Module globals of pickled functions are new in each task; `sys.modules` stays.
    """
    keeper = sys.modules.setdefault("kept_in_worker", ModuleType("kept_in_worker"))
    kept: _Kept = vars(keeper).setdefault(name, make())
    return kept
