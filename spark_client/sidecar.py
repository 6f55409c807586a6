"""Public entry point: a sidecar, and the lookups that it serves."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql.types import StructType

from lookup_core.keys.canonical_keys import KEY_GROUPS
from spark_client.key_repartition import KeyRepartition
from spark_client.lookup_join import EventTime, LookupFunction, LookupJoin, as_struct, lookup_udf
from spark_client.lookup_settings import FailurePolicy, LookupSettings, On, OutputMode, join_keys
from spark_client.lookup_task import trace_parent
from spark_client.schemas import ANY_KEY, chosen_columns, described_columns, dimension_columns
from spark_client.transport.connections import Address
from spark_client.transport.endpoint import SYSTEMS_TLS, ClientTls, endpoint_of

_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000),
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)")


def duration_ms(text: str) -> int:
    """Milliseconds; raises ValueError saying what is understood."""
    position, total = 0, 0
    words = text.strip().lower().removeprefix("interval ")
    while part := _PART.match(words, position):
        if part[2] not in _MS:
            break
        total += int(part[1]) * _MS[part[2]]
        position = part.end()
    if not words or position != len(words):
        raise ValueError(
            f"{text!r} is no duration; write whole numbers of milliseconds, seconds, minutes,"
            " hours, days or weeks, as in '10 seconds'"
        )
    return total


_HOW = ("left", "inner")


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A sidecar as the executors reach it.

    `url` is `unix:///path/of.sock`, `http://host:port` or `https://host:port`; `token_file` is
    read where the connection is made; `connect_timeout` is in seconds: how long a task waits for
    a sidecar that is not there (yet, or any more) before it fails. For https, read in the same
    place: `ca_file`, the authorities to trust instead of the system's, and `cert_file` with
    `key_file`, where the sidecar asks for a certificate. ValueError for another URL, or for files
    without https.
    """

    url: str
    token_file: str | None = None
    connect_timeout: float = 60.0
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        endpoint = endpoint_of(self.url)
        if self._tls() != SYSTEMS_TLS and not endpoint.is_secure:
            raise ValueError("ca_file, cert_file and key_file need a url with https://")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("give both or none of cert_file and key_file")
        if not self.connect_timeout > 0:
            raise ValueError(f"connect_timeout must be more than 0 s, not {self.connect_timeout}")

    def lookup_join(  # noqa: PLR0913 -- one call with all options is what a user reads
        self,
        dimension: str,
        *,
        on: On,
        as_of: str | None = None,
        columns: Sequence[str] | None = None,
        how: Literal["left", "inner"] = "left",
        mode: Literal["ordered", "unordered", "key_ordered"] = "ordered",
        capacity: int = 20_000,
        timeout: float = 5.0,
        on_timeout: Literal["fail", "null"] = "fail",
        on_error: Literal["fail", "null"] = "fail",
        event_time: str | None = None,
        watermark_delay: str | None = None,
        watermark_interval: str | None = None,
        prefix: str = "",
        status_column: str | None = None,
        schema: str | StructType | None = None,
        traceparent: str | None = None,
    ) -> LookupJoin:
        """Enrich a DataFrame with a dimension's columns: `events.transform(…lookup_join(…))`.

        `on`: the records' key column, a list of them in the order of the dimension's key, or
        `{"records' column": "key column"}`. A NULL in the key matches nothing.
        `as_of`: a timestamp or date column, for a dimension with versions, and only for one: each
        record gets the version of its row that is valid at that time (of several the one that began
        last). Without one, and for NULL, it is as without a row, and its outcome is `missing`.
        `columns`: of the dimension, default all but its key; `[]` adds none.
        `how`: `"left"` keeps records without a row, with nulls; `"inner"` drops them.
        `mode`: `"ordered"` keeps the order of each partition, `"key_ordered"` that of the records
        of each key in it; in `"unordered"` all overtake each other. Nothing overtakes a watermark.
        `capacity`: records of a task in flight, sent and not yet emitted.
        `timeout`: seconds for one lookup, retries included, from when its record has its place.
        `on_timeout`, `on_error`: `"fail"` raises LookupFailed in the task, `"null"` gives nulls.
        Whatever they say, a task without a sidecar fails with SidecarUnreachable after the
        `connect_timeout` (60 s by default).
        `event_time`: a timestamp column, or whole milliseconds since the epoch; makes watermarks,
        `watermark_delay` (default none) behind the largest event time: one at the end of each
        batch, or of several that come at once, and inside whenever the watermark advances by
        `watermark_interval`. Where the dimension has `wait_for_dimension`, a lookup waits so long
        for changes up to that time, or up to that of `as_of`; `timeout` must leave room for it.
        `prefix`: before the names of the added columns.
        `status_column`: name of an added struct<outcome string, age_ms bigint, error string>.
        `schema`: DDL or StructType of the dimension's columns, where the driver has no sidecar to
        ask; the answers are cast to it exactly.
        `traceparent`: the W3C's text of the trace that the lookups belong to; default the job's,
        its local property `traceparent`.

        Raises ValueError for arguments that contradict each other. Applying the result to a
        DataFrame raises InvalidRequest for unknown dimensions and columns, wrong key types and
        clashing names, BackendError, or SidecarUnreachable.
        """
        return LookupJoin(
            address=self._address(),
            dimension=dimension,
            keys=join_keys(on),
            columns=_names(columns),
            schema=schema,
            prefix=prefix,
            status_column=status_column,
            event_time=_event_time(event_time, watermark_delay, watermark_interval),
            as_of=as_of,
            settings=replace(
                _policies(on_timeout, on_error),
                mode=_mode(mode),
                capacity=capacity,
                timeout_s=timeout,
                is_inner=_is_inner(how),
                trace=trace_parent(traceparent),
            ),
        )

    def lookup_udf(  # noqa: PLR0913 -- as above
        self,
        dimension: str,
        *,
        columns: Sequence[str] | None = None,
        timeout: float = 5.0,
        on_timeout: Literal["fail", "null"] = "fail",
        on_error: Literal["fail", "null"] = "fail",
        schema: str | StructType | None = None,
        traceparent: str | None = None,
    ) -> LookupFunction:
        """A function of the key's columns, in the order of the dimension's key.

        Not for dimensions with versions: see `as_of` of `lookup_join`.
        Gives a struct of the dimension's columns, NULL where there is no row; always in order:
        `name = sidecar.lookup_udf("customers", columns=["name"])`, then
        `events.select(name("customer_id"))`. Options as in `lookup_join`.

        Raises ValueError, InvalidRequest, BackendError, or SidecarUnreachable if the driver has
        no sidecar and no `schema` was given.
        """
        names = _names(columns)
        if names == ():
            raise ValueError("columns must name at least one column: a struct needs a field")
        settings = replace(
            _policies(on_timeout, on_error), timeout_s=timeout, trace=trace_parent(traceparent)
        )
        if schema is None:
            described = described_columns(self._address(), dimension, columns=names, key=ANY_KEY)
            offered = dimension_columns(described)
        else:
            offered = chosen_columns(as_struct(schema), names)
        return lookup_udf(self._address(), dimension, columns=offered, settings=settings)

    def repartition_for(
        self, dimension: str, *, on: On | None = None, partitions: int | None = None
    ) -> KeyRepartition:
        """Bring equal keys into the same partition: `events.transform(…repartition_for(…))`.

        Keys that many partitions share are then looked up, and cached, by one executor each. Work
        is divided by key groups: another number of partitions moves whole groups of keys.
        `on`: the records' key columns as in `lookup_join`, default those that the dimension's key
        has; asked of a sidecar then. Which group a key has depends on their order.
        `partitions`: default `spark.sql.shuffle.partitions`; at most 4096.

        Raises ValueError; applying the result to a DataFrame raises InvalidRequest for columns that
        there are not or that are no keys, BackendError, or SidecarUnreachable.
        """
        if partitions is not None and not _is_partition_count(partitions):
            raise ValueError(f"partitions is a number from 1 to {KEY_GROUPS}, not {partitions!r}")
        columns = None if on is None else join_keys(on).columns
        return KeyRepartition(self._address(), dimension, columns, partitions)

    def _address(self) -> Address:
        return Address(self.url, self.token_file, self.connect_timeout, self._tls())

    def _tls(self) -> ClientTls:
        return ClientTls(self.ca_file, self.cert_file, self.key_file)


def _is_partition_count(count: int) -> bool:
    return type(count) is int and 1 <= count <= KEY_GROUPS


def _names(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(columns, str):
        raise ValueError(f"columns is a list of names; write [{columns!r}]")  # noqa: TRY004 -- as documented
    return None if columns is None else tuple(columns)


def _mode(mode: str) -> OutputMode:
    _check_choice("mode", mode, tuple(OutputMode))
    return OutputMode(mode)


def _is_inner(how: str) -> bool:
    _check_choice("how", how, _HOW)
    return how == "inner"


def _policies(on_timeout: str, on_error: str) -> LookupSettings:
    return LookupSettings(
        on_timeout=_policy("on_timeout", on_timeout), on_error=_policy("on_error", on_error)
    )


def _policy(option: str, policy: str) -> FailurePolicy:
    _check_choice(option, policy, tuple(FailurePolicy))
    return FailurePolicy(policy)


def _event_time(column: str | None, delay: str | None, interval: str | None) -> EventTime | None:
    if column is None:
        if delay is not None or interval is not None:
            raise ValueError("watermark_delay and watermark_interval need event_time")
        return None
    interval_ms = None if interval is None else duration_ms(interval)
    if interval_ms == 0:
        raise ValueError("watermark_interval must be at least 1 millisecond")
    return EventTime(column, 0 if delay is None else duration_ms(delay), interval_ms)


def _check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        wanted = " or ".join(f"{choice!s}" for choice in choices)
        raise ValueError(f"{option} must be {wanted}, not {value!r}")
