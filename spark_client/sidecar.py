"""Public API of the client: a sidecar's address and options, and the lookups that it serves.

Validates arguments; `lookup_join` and `key_repartition` apply the lookups to a DataFrame.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_client.call_options import (
    Duration,
    How,
    Mode,
    OnFailure,
    RetryMissing,
    Route,
    check_libraries,
    pass_options,
)
from spark_client.input_columns import On
from spark_client.key_repartition import KeyRepartition
from spark_client.local_sidecar import LocalProcess
from spark_client.lookup_join import LookupFunctions, LookupJoin, LookupJoins
from spark_client.option_parsers import parsed
from spark_client.pandas_function import LookupFunction
from spark_client.sql_functions import Dimensions, SqlFunctions
from spark_client.transport.connections import Address
from spark_client.transport.endpoint import SYSTEMS_TLS, ClientTls, endpoint_of


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The address of a sidecar, as seen by the executors; connects with the first lookup.

    `url`: `unix:///path/of.sock`, `http://host:port` or `https://host:port`.
    `token_file`: path of the bearer token; each connection reads it again.
    `connect_timeout`: seconds that a task waits for a missing sidecar before it fails.
    `ca_file`, `cert_file`, `key_file`: PEM files for https, read with each connection. `ca_file`
    replaces the system's authorities; the other two are the client's certificate and its key.

    Raises ValueError for another URL, a timeout that is not positive, TLS files without https, or
    only one of `cert_file` and `key_file`.
    """

    url: str
    token_file: str | None = None
    connect_timeout: float = 60.0
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        parsed({each.name: getattr(self, each.name) for each in fields(Sidecar)})
        endpoint = endpoint_of(self.url)
        if self._address().tls != SYSTEMS_TLS and not endpoint.is_secure:
            raise ValueError("ca_file, cert_file and key_file need a url with https://")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file must be given together")

    @staticmethod
    def local(
        config: "str | os.PathLike[str]", *, python: str | None = None, start_timeout: float = 60.0
    ) -> "LocalSidecar":
        """Start a sidecar as a child process, for Spark on this machine: laptops and notebooks.

        Use: `with Sidecar.local("sidelook.yaml") as dims:`, or `close()` it at the end. It ends
        with the Spark session and with this process, too, also if that is killed.
        `config`: the configuration file. Its listeners and tokens are replaced by a Unix socket in
        a private folder, so no port is opened.
        `python`: an interpreter with the package sidelook-service, 3.11 or newer; default this one.
        `start_timeout`: seconds until all dimensions accept lookups, loads of full tables included.

        Raises ConfigurationError with all faults of the file, BackendError if a database cannot be
        reached or lacks a table, ModuleNotFoundError without the service's package, ValueError if
        the session's executors may be on other machines, or SidecarUnreachable.
        """
        parsed(locals())
        process = LocalProcess(Path(config), python=python)
        process.wait_until_ready(start_timeout)
        return LocalSidecar(process.url, process=process)

    def lookup_join(  # noqa: PLR0913 -- one call with all options is what a user reads
        self,
        dimension: str,
        *,
        on: On,
        as_of: str | None = None,
        columns: Sequence[str] | None = None,
        how: How = "left",
        expand: bool = False,
        mode: Mode | None = None,
        capacity: int | None = None,
        timeout: float | None = None,
        on_timeout: OnFailure = "fail",
        on_error: OnFailure = "fail",
        max_age: Duration | None = None,
        retry_missing: RetryMissing | None = None,
        retry_if: str | None = None,
        event_time: str | None = None,
        watermark_delay: str | None = None,
        watermark_interval: str | None = None,
        via: Route | None = None,
        prefix: str = "",
        status_column: str | None = None,
        schema: str | StructType | None = None,
        traceparent: str | None = None,
        show_keys: bool = True,
    ) -> LookupJoin:
        """Enrich a DataFrame with a dimension's columns: `events.transform(…lookup_join(…))`.

        `on`: the records' key column, a list of them in the order of the dimension's key, or
        `{"records' column": "key column"}`. A NULL in the key matches nothing. A name that is no
        column is a path into structs, as `"order.customer.id"`. A key may be a Column, as
        `F.lower("email")`; with the key's name as a pair, `[(F.lower("email"), "email")]`.
        `as_of`: a timestamp or date column, required for a dimension with versions and refused for
        others. Each record gets the version that is valid at that time; if several are, the one
        with the latest start. A NULL, or a time without a version, gives `missing`.
        `columns`: of the dimension, default all but its key; `[]` adds none.
        `how`: `"left"` keeps records without a row, with nulls; `"inner"` drops them. `"semi"`
        keeps the records with a row and `"anti"` those without, and neither adds columns.
        `expand`: for a dimension with `match: all`, whose columns are arrays otherwise: one output
        record for each row, in their order, with single values. Several such lookups of a pass
        give all combinations. With `"left"`, a record without a row leaves once, with nulls.
        `mode`: `"ordered"` (the default) keeps the order of each partition, `"key_ordered"` the
        order of equal keys in a partition, `"unordered"` none. Records never overtake a watermark.
        `capacity`: most records of a task that are sent and not yet emitted; default 20,000.
        `timeout`: seconds for one lookup, retries included, from its place in the capacity;
        default 5.
        `on_timeout`, `on_error`: `"fail"` raises LookupFailed in the task, `"null"` gives nulls,
        `"default"` the default row of the dimension's configuration, which counts as a row for
        `how`; the status keeps the failure. None covers a missing sidecar: after `connect_timeout`
        the task raises SidecarUnreachable.
        `max_age`: seconds, or a text as `"10 minutes"`. A cached row or missing key that is older
        is read again, for all users of the cache.
        `retry_missing`: `{"max_retries": 3, "delay": "1 second"}` looks up keys without a row
        again, within `timeout`; default as the dimension is configured.
        `retry_if`: a column of the dimension; a row with NULL in it is retried like a missing one,
        and leaves as it is after the last retry.
        `event_time`: a timestamp column, or whole milliseconds since the epoch; makes watermarks.
        They lag the largest event time by `watermark_delay` (default 0) and are sent at the end of
        each batch, or of several that come at once; also within a batch, whenever the watermark
        advances by `watermark_interval`. If the dimension has `wait_for_dimension`, lookups wait
        for the changes up to their event time (or `as_of` time); `timeout` includes that wait.
        `via`: `"udf"` sends only key and time columns through Python, `"batch"` all columns of the
        records; `"auto"` (the default) chooses by the mode and the number of columns. With
        `"udf"`, which needs PySpark 4.1 and mode `"ordered"`, columns that the query does not use
        are not read, and records whose added columns it does not use are not looked up.
        `prefix`: before the names of the added columns.
        `status_column`: name of an added struct<outcome string, age_ms bigint, error string>.
        `schema`: DDL or StructType of the dimension's columns, for a driver without a sidecar: in
        their types or wider ones, else tasks raise InvalidRequest. With `expand` and `as_of` in
        the types of one row.
        `traceparent`: W3C trace context of the lookups; default the job's local property
        `traceparent`.
        `show_keys`: whether LookupFailed names up to three of the keys that failed. False where
        keys are personal data: errors of tasks are in Spark's logs and its web page.

        Cancelling the task, or reading only part of its output, cancels its open lookups.

        Raises ValueError for invalid or contradictory arguments. Applying the result to a
        DataFrame raises InvalidRequest for unknown dimensions and columns, wrong key types and
        clashing names, BackendError, or SidecarUnreachable.
        """
        values = parsed(locals())
        check_libraries()
        return LookupJoin.of(self._address(), values)

    def lookup_joins(  # noqa: PLR0913 -- as above
        self,
        lookups: Sequence[LookupJoin],
        *,
        mode: Mode | None = None,
        capacity: int | None = None,
        timeout: float | None = None,
        event_time: str | None = None,
        watermark_delay: str | None = None,
        watermark_interval: str | None = None,
        via: Route | None = None,
    ) -> LookupJoins:
        """Enrich a DataFrame by several lookups in one pass: `events.transform(…lookup_joins(…))`.

        `lookups`: results of `lookup_join`, also of other sidecars, and several of one dimension.
        All lookups of a record run at once, and it leaves when the last is answered. The key of a
        lookup may be a column that an earlier one of the list adds, by its name in the output; it
        is looked up as soon as that column is known. The output has the added columns in the order
        of the list.

        The other options are those of `lookup_join`; they hold for the record, and `timeout` for
        all of its lookups together. In mode `"key_ordered"`, records with equal keys of the first
        lookup stay in order. An option may also be given to a `lookup_join` of the list.

        Raises ValueError for an empty list, invalid options, and two values of one option.
        Applying the result to a DataFrame raises as that of `lookup_join` does.
        """
        options = pass_options(parsed(locals()))
        for lookup in lookups:
            options = options.joined(lookup.options)
        return LookupJoins(tuple(lookups), options)

    def lookup_udf(  # noqa: PLR0913 -- as above
        self,
        dimension: str,
        *,
        columns: Sequence[str] | None = None,
        timeout: float | None = None,
        on_timeout: OnFailure = "fail",
        on_error: OnFailure = "fail",
        max_age: Duration | None = None,
        retry_missing: RetryMissing | None = None,
        retry_if: str | None = None,
        schema: str | StructType | None = None,
        traceparent: str | None = None,
        show_keys: bool = True,
        deterministic: bool = True,
    ) -> LookupFunction:
        """A function from the key's columns, in the dimension's order, to a struct column.

        The struct has the dimension's columns and is NULL where there is no row; order is kept.
        Use: `name = sidecar.lookup_udf("customers", columns=["name"])`, then
        `events.select(name("customer_id"))`. Options as in `lookup_join`. For dimensions with
        versions use `lookup_join(as_of=…)`.
        `deterministic`: whether Spark may evaluate a call for each use of its result, and see two
        answers. False prevents that, some optimizations, and use in joins' conditions and sums.

        Raises ValueError, InvalidRequest, BackendError, or SidecarUnreachable if the driver has
        no sidecar and no `schema` was given.
        """
        values = parsed(locals())
        check_libraries()
        functions = LookupFunctions.of(self._address(), values)
        return functions.declared(dimension, values["columns"], schema)

    def register(  # noqa: PLR0913 -- as above
        self,
        spark: SparkSession,
        *,
        prefix: str = "lookup_",
        dimensions: Dimensions | None = None,
        timeout: float | None = None,
        on_timeout: OnFailure = "fail",
        on_error: OnFailure = "fail",
        max_age: Duration | None = None,
        retry_missing: RetryMissing | None = None,
        retry_if: str | None = None,
        traceparent: str | None = None,
        show_keys: bool = True,
        deterministic: bool = True,
    ) -> dict[str, str]:
        """Register a SQL function for each dimension: `SELECT lookup_airports(dest).name FROM t`.

        Returns {name of the function: dimension}. Functions of the same names in the session,
        classic or Connect, are replaced. Options, arguments and result are those of `lookup_udf`.
        `prefix`: of the functions' names; those with dots or hyphens need backticks in SQL.
        `dimensions`: names, or `{name: columns}` with a list, a schema as DDL or StructType, which
        needs no sidecar on the driver, or None for all columns. Default all of the sidecar, without
        those that have versions, types that Spark lacks, no readable database or a default row
        that they lack: a warning says so.

        Raises ValueError, also for names that Spark has or does not distinguish; InvalidRequest,
        BackendError or SidecarUnreachable. Nothing is registered then.
        """
        values = parsed(locals())
        check_libraries()
        functions = LookupFunctions.of(self._address(), values)
        return SqlFunctions(functions, prefix, values["dimensions"]).register(spark)

    def repartition_for(
        self,
        dimension: str,
        *,
        on: On | None = None,
        partitions: int | None = None,
        sequence: str | Sequence[str] | None = None,
    ) -> KeyRepartition:
        """Bring equal keys into the same partition: `events.transform(…repartition_for(…))`.

        Each key is then looked up, and cached, by one executor. Work is divided by key groups:
        another number of partitions moves whole groups of keys.
        `on`: the records' key columns as in `lookup_join`; their order decides the group. The
        default is the names of the dimension's key, which the driver reads from a sidecar.
        `partitions`: 1 to 4096, default `spark.sql.shuffle.partitions`.
        `sequence`: columns that order the records of each partition, such as a time or an offset;
        ascending, NULLs first. Without it, records of one key have the order of Spark's shuffle,
        which is none. A stream cannot be sorted: then apply this within `foreachBatch`.

        Raises ValueError. Applying the result to a DataFrame raises InvalidRequest for unknown
        columns and columns that are no keys, BackendError, or SidecarUnreachable.
        """
        values = parsed(locals())
        check_libraries()
        return KeyRepartition(
            self._address(), dimension, values["on"], partitions, values["sequence"]
        )

    def _address(self) -> Address:
        tls = ClientTls(self.ca_file, self.cert_file, self.key_file)
        return Address(self.url, self.token_file, self.connect_timeout, tls)


@dataclass(frozen=True)  # with slots, `super()` fails
class LocalSidecar(Sidecar):
    """The address of a sidecar that `Sidecar.local` started; a context manager that closes it.

    Its lookups raise SidecarUnreachable once it has ended.
    """

    process: LocalProcess = field(kw_only=True, repr=False)

    def close(self) -> None:
        """End the process, after lookups in progress; a second call does nothing."""
        self.process.close()

    def __enter__(self) -> "LocalSidecar":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as the address alone: the process belongs to the driver."""
        return Sidecar, (self.url, self.token_file, self.connect_timeout)

    def _address(self) -> Address:
        self.process.check()
        return super()._address()
