"""Public API of the client: a sidecar's address and options, and the lookups that it serves.

Validates arguments; `lookup_join` and `key_repartition` apply the lookups to a DataFrame.
"""

import os
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lookup_core.keys.canonical_keys import KEY_GROUPS
from spark_client.driver.input_columns import On, parsed_on
from spark_client.driver.key_repartition import KeyRepartition
from spark_client.driver.local_sidecar import LocalProcess
from spark_client.driver.lookup_functions import LookupFunction, LookupFunctions
from spark_client.driver.lookup_join import JoinArguments, LookupJoin, LookupJoins
from spark_client.driver.options import (
    Duration,
    How,
    LookupArguments,
    Mode,
    OnFailure,
    PassArguments,
    RetryMissing,
    Route,
    check_libraries,
    dimension_name,
    distinct_names,
    file_path,
    flag,
    is_whole,
    name_prefix,
    optional,
    refused,
    schema_text_or_type,
    seconds,
    some_names,
    text,
)
from spark_client.driver.sql_functions import Dimensions, SqlFunctions, parsed_dimensions
from spark_client.transport.connections import SidecarAddress
from spark_client.transport.endpoint import SYSTEMS_TLS, ClientTls, endpoint_of


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The address of a sidecar, as the executors see it. It connects with the first lookup.

    Args:
        url: `unix:///path/of.sock`, `http://host:port` or `https://host:port`. Only over `unix://`
            do workers read shared caches.
        token_file: Path of the bearer token. Each connection reads it again.
        connect_timeout: Seconds that a task waits for a missing sidecar before it fails.
        ca_file: PEM file with the CAs of `https://`, instead of the system's. Each connection
            reads the PEM files again. The certificate of the sidecar contains the name in `url`.
        cert_file: PEM file with the client certificate.
        key_file: PEM file with the key of the client certificate, without a password.

    Raises:
        ValueError: The URL has another form, the timeout is not positive, TLS files are given
            without `https://`, or only one of `cert_file` and `key_file`.

    """

    url: str
    token_file: str | None = None
    connect_timeout: float = 60.0
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        text("url", self.url, accepted="a text as unix:///path/of.sock or http://host:port")
        seconds("connect_timeout", self.connect_timeout)
        for option in ("token_file", "ca_file", "cert_file", "key_file"):
            optional(file_path, option, getattr(self, option))
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

        Use `with Sidecar.local("sidelook.yaml") as dims:`, or call `close()` at the end. The
        process also ends with the Spark session and with this process, even if that is killed.

        Args:
            config: The configuration file. A Unix socket in a private folder replaces its listeners
                and tokens, so no port is opened.
            python: An interpreter, 3.11 or newer, with the package sidelook-service. Default: this
                one.
            start_timeout: Seconds until all dimensions accept lookups, loads of full tables
                included.

        Raises:
            ConfigurationError: The file has faults; the error lists them all.
            BackendError: A database cannot be reached, or lacks a table.
            ModuleNotFoundError: The interpreter lacks the package.
            ValueError: Executors of the session may be on other machines.
            SidecarUnreachable: The sidecar did not start in time.

        """
        file, timeout_s = Path(file_path("config", config)), seconds("start_timeout", start_timeout)
        optional(file_path, "python", python)
        process = LocalProcess(file, python=python)
        process.wait_until_ready(timeout_s)
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
        """Add columns of a dimension to a DataFrame: `events.transform(dims.lookup_join(…))`.

        Cancelling the task, or reading only a part of its output, cancels its open lookups.

        Args:
            dimension: Name of the dimension in the configuration.
            on: The key column of the records, or a list in the order of the dimension's key, or
                `{"column of the records": "column of the key"}`. A name that is no column is a path
                into structs, such as `"order.customer.id"`. A key may be a Column, such as
                `F.lower("email")`, or a pair of it and the name of the key, such as
                `[(F.lower("email"), "email")]`. A NULL in a key counts as a missing key.
            as_of: A timestamp or date column, for dimensions with versions only, which require it.
                Each record gets the version that is valid at that time, of several the one with the
                latest start. A NULL, or a time without a version, is `missing`.
            columns: Columns of the dimension. Default: all except its key. `[]` adds none.
            how: `"left"` keeps records without a row, with NULLs. `"inner"` drops them. `"semi"`
                keeps the records with a row, `"anti"` those without; both add no columns. If the
                dimension has a default row, every key has a row.
            expand: For a dimension with `match: all`, whose columns are arrays otherwise: one
                output record for each row, in their order. Several such lookups of a pass give all
                combinations. With `"left"`, a record without a row is kept once, with NULLs.
            mode: `"ordered"`, the default, keeps the order of each partition. `"key_ordered"` keeps
                the order of equal keys in a partition. `"unordered"` keeps no order. Records never
                overtake a watermark.
            capacity: Maximum number of records of a task that are sent and not yet emitted.
                Default: 20,000.
            timeout: Seconds for the lookups of a record, retries included, from its place in the
                capacity. Default: 5.
            on_timeout: `"fail"` raises LookupFailed in the task. `"null"` gives NULLs, which count
                as no row for `how`. `"default"` gives the default row of the configuration, which
                counts as a row for `how`. The status keeps the failure.
            on_error: As `on_timeout`, for errors. Neither covers a missing sidecar: after
                `connect_timeout` the task raises SidecarUnreachable.
            max_age: Seconds, or a text such as `"10 minutes"`. An older cached row, or negative
                entry, is read again, for all users of the cache.
            retry_missing: `{"max_retries": 3, "delay": "1 second"}` looks up keys without a row
                again, within `timeout`. Default: as the dimension is configured.
            retry_if: A column of the dimension. A row with NULL in it is retried like a missing
                one; after the last retry, the record gets that row.
            event_time: A timestamp column, or milliseconds since the epoch, that watermarks are
                made from. If the dimension has `wait_for_dimension`, lookups wait for the changes
                up to their event time, or `as_of` time; `timeout` includes that wait.
            watermark_delay: Lag of watermarks behind the largest event time. Default: 0.
            watermark_interval: Also sends a watermark within a batch, whenever it advances by this
                interval. Default: at the end of each batch, or of several that arrive together.
            via: `"udf"` sends only key and time columns through Python, `"batch"` all columns of
                the records. `"auto"`, the default, chooses by the mode and the number of columns.
                `"udf"` needs PySpark 4.1 and mode `"ordered"`. With it, Spark does not read columns
                that the query does not use, and skips lookups whose columns it does not use.
            prefix: Prefix of the names of the added columns.
            status_column: Name of an added `struct<outcome string, age_ms bigint, error string>`.
            schema: DDL or StructType of the dimension's columns, for a driver without a sidecar. It
                has their types or wider ones; otherwise tasks raise InvalidRequest. With `expand`
                and `as_of`, it has the types of one row.
            traceparent: W3C trace context of the lookups. Default: the local property `traceparent`
                of the job.
            show_keys: Whether LookupFailed names up to three failed keys. Set False if keys are
                personal data: Spark's logs and web page show errors of tasks.

        Raises:
            ValueError: Arguments are invalid or contradict each other.
            InvalidRequest: By applying the result: an unknown dimension or column, a wrong key
                type, or a name that exists already.
            BackendError: By applying the result: the sidecar cannot read the table.
            SidecarUnreachable: By applying the result: the driver has neither a sidecar nor
                `schema`.

        """
        join = JoinArguments(
            dimension, on, as_of, columns, schema, prefix, status_column, how, expand
        )
        lookup = LookupArguments(
            on_timeout, on_error, max_age, retry_missing, retry_if, traceparent, show_keys
        )
        shared = PassArguments(
            mode, capacity, timeout, event_time, watermark_delay, watermark_interval, via
        )
        parsed = join.parsed(self._address(), lookup.settings(), shared.options())
        check_libraries()
        return parsed

    def lookup_joins(  # noqa: D417, PLR0913 -- the other options are documented once
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
        """Look up several dimensions in one pass: `events.transform(dims.lookup_joins([…]))`.

        All lookups of a record run at the same time; the record is emitted after the last answer.
        The output has the added columns in the order of the list. The options are those of
        `lookup_join`: `timeout` is for all lookups of a record together, and `mode="key_ordered"`
        keeps the order of equal keys of the first lookup.

        Args:
            lookups: Results of `lookup_join`, also of other sidecars, and several of one dimension.
                A key may be a column that an earlier lookup of the list adds, by its name in the
                output.

        Raises:
            ValueError: The list is empty, an option is invalid, or an option has two values: here
                and in a `lookup_join` of the list. Applying the result raises the errors of
                `lookup_join`.

        """
        options = PassArguments(
            mode, capacity, timeout, event_time, watermark_delay, watermark_interval, via
        ).options()
        is_list = type(lookups) in {list, tuple} and lookups
        if not is_list or not all(isinstance(lookup, LookupJoin) for lookup in lookups):
            accepted = "a list of at least one lookup_join(…)"
            raise ValueError(f"lookups is {accepted}, not {reprlib.repr(lookups)}")
        for lookup in lookups:
            options = options.joined(lookup.options)
        return LookupJoins(tuple(lookups), options)

    def lookup_udf(  # noqa: D417, PLR0913 -- the other options are documented once
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
        """Return a function from the key's columns, in the dimension's order, to a struct column.

        The struct has the columns of the dimension, and is NULL without a row. The order of records
        is kept. Use `name = dims.lookup_udf("customers", columns=["name"])`, then
        `events.select(name("customer_id"))`. Dimensions with versions need `lookup_join`, which
        documents the other options.

        Args:
            deterministic: Whether Spark may evaluate a call for each use of its result, and get two
                answers. False prevents that, some optimizations, and the use in join conditions and
                aggregates.

        Raises:
            ValueError: An argument is invalid.
            InvalidRequest: An unknown dimension or column.
            BackendError: The sidecar cannot read the table.
            SidecarUnreachable: The driver has neither a sidecar nor `schema`.

        """
        lookup = LookupArguments(
            on_timeout, on_error, max_age, retry_missing, retry_if, traceparent, show_keys
        )
        functions = self._functions(lookup, timeout, deterministic=deterministic)
        return functions.declared(
            dimension_name(dimension),
            optional(distinct_names, "columns", columns),
            optional(schema_text_or_type, "schema", schema),
        )

    def register(  # noqa: D417, PLR0913 -- the other options are documented once
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

        Arguments and results of the functions are those of `lookup_udf`. They
        replace functions of the same names in the session, classic or Connect. After an error, no
        function is registered. `lookup_join` documents the options that are not listed.

        Args:
            spark: The session.
            prefix: Prefix of the names of the functions. SQL needs backticks for names with dots or
                hyphens.
            dimensions: Names, or `{name: columns}` with a list, None for all columns, or a schema
                as DDL or StructType, which needs no sidecar on the driver. Default: all dimensions
                of the sidecar. Those with versions, types that Spark lacks or no readable database,
                or without a default row that an option needs, are left out with a warning; if none
                is left, the error of the first one is raised.

        Returns:
            `{name of the function: dimension}`.

        Raises:
            ValueError: An argument is invalid, or Spark has a function of the name, or does not
                distinguish two names.
            InvalidRequest: An unknown dimension or column.
            BackendError: The sidecar cannot read a named table.
            SidecarUnreachable: The driver has no sidecar.

        """
        if not hasattr(spark, "udf"):
            raise refused("spark", "a SparkSession", spark)
        lookup = LookupArguments(
            on_timeout, on_error, max_age, retry_missing, retry_if, traceparent, show_keys
        )
        functions = self._functions(lookup, timeout, deterministic=deterministic)
        chosen = None if dimensions is None else parsed_dimensions(dimensions)
        return SqlFunctions(functions, name_prefix(prefix), chosen).register(spark)

    def repartition_for(
        self,
        dimension: str,
        *,
        on: On | None = None,
        partitions: int | None = None,
        sequence: str | Sequence[str] | None = None,
    ) -> KeyRepartition:
        """Bring equal keys into the same partition: `events.transform(dims.repartition_for(…))`.

        One executor then looks up and caches each key. Another number of partitions moves whole
        groups of keys.

        Args:
            dimension: Name of the dimension in the configuration.
            on: Key columns as in `lookup_join`; their order decides the group. Default: the names
                of the dimension's key, which the driver reads from a sidecar.
            partitions: 1 to 4096. Default: `spark.sql.shuffle.partitions`.
            sequence: Columns that order the records of each partition, such as a time or an offset:
                ascending, NULLs first. Without it, equal keys have no order. Spark does not sort
                streams: use it within `foreachBatch` there.

        Raises:
            ValueError: An argument is invalid.
            InvalidRequest: By applying the result: an unknown column, or one that is no key.
            BackendError: By applying the result: the sidecar cannot read the table.
            SidecarUnreachable: By applying the result: the driver has no sidecar, and `on` is not
                given.

        """
        if partitions is not None and not (is_whole(partitions) and 1 <= partitions <= KEY_GROUPS):
            raise refused("partitions", f"a number from 1 to {KEY_GROUPS}", partitions)
        names = (sequence,) if isinstance(sequence, str) else sequence
        repartition = KeyRepartition(
            address=self._address(),
            dimension=dimension_name(dimension),
            on=None if on is None else parsed_on(on),
            partitions=partitions,
            sequence=() if names is None else some_names("sequence", names),
        )
        check_libraries()
        return repartition

    def _functions(
        self, lookup: LookupArguments, timeout: float | None, *, deterministic: bool
    ) -> LookupFunctions:
        options = PassArguments(timeout=timeout).options()
        functions = LookupFunctions(
            address=self._address(),
            lookup=lookup.settings(),
            settings=options.settings(None),
            is_deterministic=flag("deterministic", deterministic),
        )
        check_libraries()
        return functions

    def _address(self) -> SidecarAddress:
        tls = ClientTls(self.ca_file, self.cert_file, self.key_file)
        return SidecarAddress(self.url, self.token_file, self.connect_timeout, tls)


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

    def _address(self) -> SidecarAddress:
        self.process.check()
        return super()._address()
