"""Checks of the installed client: each operation once in one Spark session, with exact results.

A program for an environment of `tests.compat`, and the rows that its sidecar serves. Runs on Python
3.10 and imports nothing of the checkout. Prints the versions and the outcomes as a line of JSON.
"""

import datetime as dt
import json
import os
import subprocess
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

import lookup_core
import sidelook
import spark_client
from sidelook import Sidecar

LIBRARIES = ("pyspark", "pyarrow", "numpy", "pandas")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "America/New_York",
}
CONNECT_SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
CONNECT_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService"
WAIT_S = 30.0  # for the sidecar, which runs
CONNECT_TIMEOUT_S = 240.0

LINES = 4_000
ROWS = 1_000
CUSTOMERS = [{"id": key, "name": f"customer {key}", "tier": key % 5} for key in range(ROWS)]
NOON = dt.datetime(2013, 7, 1, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)


@dataclass(frozen=True)
class TypedColumn:
    """A column with its types, the value of its first row, and that value as Spark's text."""

    name: str
    spark: str
    arrow: pa.DataType
    value: object
    text: str


TYPED_COLUMNS = (
    TypedColumn("flag", "boolean", pa.bool_(), value=True, text="true"),
    TypedColumn("tiny", "tinyint", pa.int8(), -128, "-128"),
    TypedColumn("small", "smallint", pa.int16(), 32767, "32767"),
    TypedColumn("number", "int", pa.int32(), -(2**31), "-2147483648"),
    TypedColumn("large", "bigint", pa.int64(), 2**63 - 1, "9223372036854775807"),
    TypedColumn("single", "float", pa.float32(), 0.5, "0.5"),
    TypedColumn("double", "double", pa.float64(), 0.1, "0.1"),
    TypedColumn("amount", "decimal(9,2)", pa.decimal128(9, 2), Decimal("-12345.60"), "-12345.60"),
    TypedColumn("text", "string", pa.utf8(), "Ćirić 😀", "Ćirić 😀"),
    TypedColumn("raw", "binary", pa.binary(), b"\x00\xff", "00FF"),  # as hexadecimal digits
    TypedColumn("day", "date", pa.date32(), NOON.date(), "2013-07-01"),
    TypedColumn(
        *("at", "timestamp", pa.timestamp("us", "UTC"), NOON), text="2013-07-01 08:00:00.123456"
    ),
    TypedColumn(
        *("local", "timestamp_ntz", pa.timestamp("us"), NOON.replace(tzinfo=None)),
        text="2013-07-01 12:00:00.123456",
    ),
)
TYPED_NAMES = [column.name for column in TYPED_COLUMNS]
TYPED_KEY = [name for name in TYPED_NAMES if name not in {"tiny", "small", "single", "double"}]
NAN = float("nan")
# The rows of each key, in order.
GAPS: "dict[int, list[float | None]]" = {1: [0.5, None, NAN], 2: [NAN, 0.5], 3: [None]}
GAP_TEXTS = [('[0.5,null,"NaN"]', 0.5), ('["NaN",0.5]', NAN), ("[null]", None), (None, None)]
VERSIONS = [
    {"tailnum": "N1", "owner": "Bert", "since": dt.date(2013, 6, 1), "until": None},
    {"tailnum": "N1", "owner": "Ada", "since": dt.date(2013, 1, 1), "until": dt.date(2013, 6, 1)},
    {"tailnum": "N2", "owner": "Cy", "since": dt.date(2013, 3, 1), "until": dt.date(2013, 4, 1)},
]
OWNERS = [
    ("N1", "2012-12-31 23:59:59.999999", None),
    ("N1", "2013-01-01 00:00:00", "Ada"),
    ("N1", "2013-05-31 23:59:59.999999", "Ada"),
    ("N1", "2013-06-01 00:00:00", "Bert"),
    ("N2", "2013-04-01 00:00:00", None),
    ("N3", "2013-01-01 00:00:00", None),
]


@dataclass(frozen=True)
class CheckRun:
    """One session, the sidecar, the folder of its Parquet files, and a folder for output."""

    session: SparkSession
    url: str
    data: Path
    folder: Path

    @property
    def sidecar(self) -> Sidecar:
        """The sidecar with the dimensions of this module."""
        return Sidecar(self.url, connect_timeout=WAIT_S)

    def records(self) -> DataFrame:
        """Lines 0 to 3,999 in two partitions: a third has an unknown key, some have NULL."""
        key = f"IF(id % 100 = 0, NULL, id * 7919 % {ROWS * 3 // 2}) AS key"
        return self.session.range(0, LINES, 1, 2).selectExpr("id AS line", key)

    def new_folder(self, name: str) -> Path:
        """A folder for one check in this session."""
        folder = self.folder / f"{name} of {type(self.session).__module__}"
        folder.mkdir(parents=True)
        return folder


def _key(line: int) -> "int | None":
    return None if line % 100 == 0 else line * 7919 % (ROWS * 3 // 2)


def _customer(key: "int | None") -> "tuple[str, int] | None":
    return None if key is None or key >= ROWS else (f"customer {key}", key % 5)


def _expected() -> "list[tuple[Any, ...]]":
    keys = [_key(line) for line in range(LINES)]
    return [(line, key, *(_customer(key) or (None, None))) for line, key in enumerate(keys)]


def _require_equal(found: Sequence[Any], expected: Sequence[Any]) -> None:
    if len(found) != len(expected):
        raise AssertionError(f"{len(found)} rows instead of {len(expected)}")
    for number, (one, other) in enumerate(zip(found, expected)):  # noqa: B905 -- same lengths
        if one != other:
            raise AssertionError(f"row {number} is {one!r} instead of {other!r}")


def _rows(frame: DataFrame) -> "list[tuple[Any, ...]]":
    return [tuple(row) for row in frame.collect()]


def _joined(run: CheckRun, **options: Any) -> DataFrame:  # noqa: ANN401 -- of lookup_join
    return run.records().transform(run.sidecar.lookup_join("customers", on="key", **options))


def check_import(run: CheckRun) -> None:
    """Driver and workers import the installed packages, not a checkout."""

    def files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            found = [lookup_core.__file__, spark_client.__file__, sidelook.__file__]
            yield pa.RecordBatch.from_pydict({"file": pa.array(found, pa.utf8())})

    paths = [
        row[0] for row in run.session.range(0, 2, 1, 2).mapInArrow(files, "file string").collect()
    ]
    outside = {path for path in [*paths, spark_client.__file__] if not path.startswith(sys.prefix)}
    if outside or len(paths) != 6:
        raise AssertionError(f"not installed: {outside or paths}")


def check_ordered(run: CheckRun) -> None:
    """An ordered join gives each record its row, in the order of the records, with outcomes."""
    rows = _rows(_joined(run, status_column="status"))
    _require_equal([row[:-1] for row in rows], _expected())
    outcomes = [(row[-1]["outcome"] == "missing", row[-1]["error"]) for row in rows]
    _require_equal(outcomes, [(name is None, None) for _, _, name, _ in _expected()])
    inner = _rows(_joined(run, how="inner"))
    _require_equal(inner, [row for row in _expected() if row[2] is not None])
    nested = run.records().selectExpr("line", "key", "named_struct('id', key) AS `in`")
    by_path = run.sidecar.lookup_join("customers", on="in.id")
    _require_equal(_rows(nested.transform(by_path).drop("in")), _expected())
    by_value = run.sidecar.lookup_join("customers", on=[(F.col("key") + 0, "id")])
    _require_equal(_rows(run.records().transform(by_value)), _expected())
    expanded = run.session.range(1, 5, 1, 1).transform(
        run.sidecar.lookup_join("gaps", on="id", expand=True)
    )
    gaps = [(key, value) for key in range(1, 5) for value in GAPS.get(key, [None])]
    _require_equal([repr(row) for row in _rows(expanded)], [repr(row) for row in gaps])


def check_unordered(run: CheckRun) -> None:
    """An unordered join with watermarks loses and doubles no record."""
    joined = _joined(run, mode="unordered", event_time="line", watermark_interval="500 ms")
    _require_equal(sorted(_rows(joined)), _expected())


def check_key_ordered(run: CheckRun) -> None:
    """A key-ordered join loses and doubles no record, and keeps the order of each key."""
    rows = _rows(_joined(run, mode="key_ordered"))
    _require_equal(sorted(rows), _expected())
    lines: dict[int | None, list[int]] = defaultdict(list)
    for line, key, *_ in rows:
        lines[key].append(line)
    for found in lines.values():
        _require_equal(found, sorted(found))


def check_as_of(run: CheckRun) -> None:
    """A join as of a time gives each record the version that is valid at that time."""
    listed = ", ".join(f"('{tailnum}', timestamp_ntz'{at}')" for tailnum, at, _ in OWNERS)
    records = run.session.sql(f"SELECT * FROM VALUES {listed} AS records(tailnum, at)").coalesce(1)
    join = run.sidecar.lookup_join("planes", on="tailnum", as_of="at", columns=["owner"])
    found = records.transform(join).select("tailnum", F.col("at").cast("string"), "owner")
    _require_equal(_rows(found), OWNERS)


def check_udf(run: CheckRun) -> None:
    """A lookup function in a DataFrame gives a struct, NULL without a row, in order."""
    customer = run.sidecar.lookup_udf("customers")
    found = run.records().select("line", customer("key").alias("row"))
    rows = [(line, row if row is None else tuple(row)) for line, row in _rows(found)]
    _require_equal(rows, [(line, _customer(_key(line))) for line in range(LINES)])


def check_sql(run: CheckRun) -> None:
    """Functions of `register`, and a registered lookup function, work in SQL."""
    run.session.udf.register("lookup_customers", run.sidecar.lookup_udf("customers"))
    run.records().createOrReplaceTempView("records")
    query = "SELECT line, lookup_customers(key).name FROM records WHERE line < 300 ORDER BY line"
    expected = [(line, name) for line, _, name, _ in _expected()[:300]]
    _require_equal(_rows(run.session.sql(query)), expected)
    for is_deterministic in (True, False):
        _check_register(run, is_deterministic=is_deterministic)


def _check_register(run: CheckRun, *, is_deterministic: bool) -> None:
    prefix = f"register_{is_deterministic}_"
    found = run.sidecar.register(run.session, prefix=prefix, deterministic=is_deterministic)
    # Without `planes`, which has versions.
    names = ["customers", "first_gaps", "gaps", "pairs", "things", "typed"]
    _require_equal(sorted(found.items()), [(prefix + name, name) for name in names])
    call = f"SELECT line, {prefix}customers(key) AS row FROM records"
    query = f"SELECT line, row.name FROM ({call}) WHERE row.tier = 1 ORDER BY line"
    expected = [(line, name) for line, _, name, tier in _expected() if tier == 1]
    _require_equal(_rows(run.session.sql(query)), expected)
    plan = run.session.sql(f"EXPLAIN {query}").collect()[0][0]
    _require_equal([plan.count("ArrowEvalPython")], [2 if is_deterministic else 1])


def check_repartition(run: CheckRun) -> None:
    """`repartition_for` brings equal keys into one partition, in sequence, and keeps all rows."""
    spread = run.records().transform(
        run.sidecar.repartition_for("customers", on="key", partitions=3, sequence="line")
    )
    rows = _rows(spread.withColumn("partition", F.spark_partition_id()))
    for partition in range(3):
        lines = [row[0] for row in rows if row[-1] == partition]
        _require_equal(lines, sorted(lines))
    _require_equal(sorted(row[0] for row in rows), range(LINES))
    partitions = defaultdict(set)
    for _, key, partition in rows:
        partitions[key].add(partition)
    _require_equal([len(found) for found in partitions.values()], [1] * len(partitions))
    _require_equal(sorted(set.union(*partitions.values())), range(3))
    by_value = run.sidecar.repartition_for("customers", on=F.col("key") + 0, partitions=3)
    again = run.records().transform(by_value).withColumn("partition", F.spark_partition_id())
    _require_equal(sorted(_rows(again)), sorted(rows))


def check_stream(run: CheckRun) -> None:
    """A stream that is stopped and restarted from its checkpoint loses and doubles nothing."""
    folder = run.new_folder("stream")
    _write_part(run, folder, 0)
    query = _started(run, folder)
    query.processAllAvailable()
    _write_part(run, folder, 1)  # while the query runs, which may be in this batch when it stops
    query.stop()
    for part in (2, 3):
        _write_part(run, folder, part)
    query = _started(run, folder)
    query.processAllAvailable()
    query.stop()
    found = run.session.read.parquet(str(folder / "output")).select("line", "key", "name", "tier")
    _require_equal(sorted(_rows(found)), _expected())


def _write_part(run: CheckRun, folder: Path, part: int) -> None:
    lines = run.records().where(f"line DIV {LINES // 4} = {part}").coalesce(1)
    lines.write.mode("append").parquet(str(folder / "events"))


def _started(run: CheckRun, folder: Path) -> Any:  # noqa: ANN401 -- a query, classic or Connect
    schema = "line long, key long"
    events = run.session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    join = run.sidecar.lookup_join("customers", on="key")
    return _written(events.parquet(str(folder / "events")).transform(join), folder).start()


def _written(stream: DataFrame, folder: Path) -> Any:  # noqa: ANN401 -- as above
    writer = stream.writeStream.format("parquet").outputMode("append")
    checkpoint = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return checkpoint.option("path", str(folder / "output"))


def check_watermark(run: CheckRun) -> None:
    """The event-time watermark passes the join: windows after it close in append mode."""
    folder = run.new_folder("watermark")
    events = run.session.range(0, 100, 1, 1).selectExpr("id AS key", "timestamp_seconds(id) AS at")
    events.write.parquet(str(folder / "events"))
    stream = run.session.readStream.schema(events.schema).parquet(str(folder / "events"))
    join = run.sidecar.lookup_join("customers", on="key", event_time="at")
    enriched = stream.withWatermark("at", "1 second").transform(join)
    windows = enriched.groupBy(F.window("at", "10 seconds")).agg(F.sum("tier").alias("tiers"))
    _written(windows, folder).trigger(availableNow=True).start().awaitTermination()
    found = run.session.read.parquet(str(folder / "output")).select(
        F.unix_timestamp("window.start"), "tiers"
    )
    _require_equal(sorted(_rows(found)), [(start, 20) for start in range(0, 90, 10)])  # one is open


def check_types(run: CheckRun) -> None:
    """Values and arrays of all types of a dimension arrive exactly; keys of them find their row."""
    records = run.session.range(1, 4, 1, 1)
    values = records.transform(run.sidecar.lookup_join("things", on="id", columns=TYPED_NAMES))
    kinds = [(column.name, column.spark) for column in TYPED_COLUMNS]
    _require_equal(values.dtypes, [("id", "bigint"), *kinds])
    texts, nothing = [column.text for column in TYPED_COLUMNS], [None] * len(TYPED_COLUMNS)
    shown = [_shown(name, F.col(name)) for name in TYPED_NAMES]
    _require_equal(_rows(values.select("id", *shown)), [(1, *texts), (2, *nothing), (3, *nothing)])
    _check_arrays(run)
    _check_function_values(run)
    _check_typed_keys(run)


def _shown(name: str, value: Column) -> Column:
    return F.hex(value) if name == "raw" else value.cast("string")


def _check_arrays(run: CheckRun) -> None:
    join = run.sidecar.lookup_join("pairs", on={"id": "pair"}, columns=TYPED_NAMES)
    arrays = run.session.range(7, 8).transform(join)
    kinds = [(column.name, f"array<{column.spark}>") for column in TYPED_COLUMNS]
    _require_equal(arrays.dtypes, [("id", "bigint"), *kinds])
    values = [_shown(name, F.col(name)[position]) for position in range(2) for name in TYPED_NAMES]
    texts = [column.text for column in TYPED_COLUMNS]
    lengths = F.concat_ws(",", *(F.size(name).cast("string") for name in TYPED_NAMES))
    expected = (",".join("2" * len(TYPED_NAMES)), *texts, *[None] * len(texts))
    _require_equal(_rows(arrays.select(lengths, *values)), [expected])


def _check_function_values(run: CheckRun) -> None:
    """NULL, NaN and NULL arrays stay what they are; the last key has no row."""
    every, first = run.sidecar.lookup_udf("gaps"), run.sidecar.lookup_udf("first_gaps")
    rows = run.session.range(1, 5, 1, 1).select(every("id").alias("all"), first("id").alias("one"))
    found = rows.select(F.to_json("all.double"), "one.double", F.col("all").isNull())
    expected = [(*values, number == 3) for number, values in enumerate(GAP_TEXTS)]
    _require_equal([repr(row) for row in _rows(found)], [repr(row) for row in expected])


def _check_typed_keys(run: CheckRun) -> None:
    join = run.sidecar.lookup_join("typed", on=TYPED_KEY, columns=["id"], prefix="found_")
    records = run.session.read.parquet(str(run.data / "things.parquet"))
    found = records.transform(join).select("id", "found_id").orderBy("id")
    _require_equal(_rows(found), [(1, 1), (2, None)])


def check_connect(run: CheckRun) -> None:
    """The other checks pass in a Spark Connect session, in a process of its own."""
    # PySpark's own tests read the port in this way; Python code cannot name Scala objects.
    service = getattr(run.session._jvm, f"{CONNECT_SERVICE}$")
    remote = f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"
    names = [name for name in CHECKS if name not in {"import", "connect"}]
    command = [sys.executable, "-I", __file__, run.url, str(run.data), str(run.folder), *names]
    environ = {
        **{name: text for name, text in os.environ.items() if "SPARK" not in name},
        "SPARK_REMOTE": remote,
    }
    done = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, timeout=CONNECT_TIMEOUT_S, check=True
    )
    outcomes = json.loads(done.stdout.splitlines()[-1])["outcomes"]
    _require_equal(list(outcomes.items()), [(name, None) for name in names])


def check_no_sidecar(run: CheckRun) -> None:
    """Without a sidecar, driver and task fail with the error that names its address."""
    url = f"unix://{run.folder}/nothing.sock"
    absent = Sidecar(url, connect_timeout=0.2)
    without_schema = absent.lookup_join("customers", on="key")
    _require_error(lambda: run.records().transform(without_schema), "SidecarUnreachable", url)
    join = absent.lookup_join("customers", on="key", schema="name string, tier int")
    _require_error(run.records().transform(join).collect, "SidecarUnreachable", url)


def _require_error(call: Callable[[], Any], *words: str) -> None:
    try:
        call()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        missing = [word for word in words if word not in text]
        if missing:
            raise AssertionError(f"the error lacks {missing}: {text}") from error
    else:
        raise AssertionError("no error")


CHECKS: "dict[str, Callable[[CheckRun], None]]" = {
    "import": check_import,
    "ordered": check_ordered,
    "unordered": check_unordered,
    "key_ordered": check_key_ordered,
    "as_of": check_as_of,
    "udf": check_udf,
    "sql": check_sql,
    "repartition": check_repartition,
    "stream": check_stream,
    "watermark": check_watermark,
    "types": check_types,
    "no_sidecar": check_no_sidecar,
    "connect": check_connect,
}


def main(url: str, data: str, folder: str, *names: str) -> "dict[str, Any]":
    """Run the named checks; the versions, and {check: None or its error}."""
    session = _session(serves_connect="connect" in names)
    run = CheckRun(session, url, Path(data), Path(folder))
    outcomes = {name: _outcome(CHECKS[name], run) for name in names}
    session.stop()
    return {"versions": _versions(), "outcomes": outcomes}


def _session(*, serves_connect: bool) -> SparkSession:
    remote = os.environ.get("SPARK_REMOTE")
    builder: Any = SparkSession.builder
    if remote is not None:
        return builder.remote(remote).getOrCreate()
    builder = builder.master("local[2]")
    for name, text in {**SETTINGS, **(CONNECT_SETTINGS if serves_connect else {})}.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def _outcome(check: Callable[[CheckRun], None], run: CheckRun) -> "str | None":
    try:
        check(run)
    except Exception as error:  # noqa: BLE001 -- a failure is the result
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"[:2000]
    return None


def _versions() -> "dict[str, str]":
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        **{name: version(name) for name in LIBRARIES},
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
