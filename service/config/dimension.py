"""`dimensions.NAME`: source, key, columns, batches, retries and versions of a dimension."""

import math
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator, Field, ValidationInfo

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import nearest_name
from lookup_core.settings import (
    BatchSettings,
    CacheMode,
    CacheSettings,
    DimensionSettings,
    FullSettings,
    Match,
    OnMissingSettings,
    ReloadSettings,
    RetrySettings,
)
from lookup_core.type_texts import parsed_type
from service.config.cache import Cache
from service.config.postgres_address import SqlText
from service.config.quantity import count, duration, duration_text, factor
from service.config.refresh import Refresh, check_refresh
from service.config.section import Given, Section, copied, rule, written
from service.config.source import ParquetSource, Source


class Batch(Section):
    """Size, delay, concurrency and rate of a dimension's queries."""

    max_keys: Annotated[int, count(1, 100_000)] = 10_000
    """Maximum number of keys in a query. A batch starts at 500 keys and grows while queries are
    fast."""
    linger_s: Annotated[float, duration("0ms", "10s")] = written("0ms")
    """Delay of a query to collect more keys. `0ms`: a query starts as soon as a connection is
    free."""
    max_in_flight: Annotated[int, count(1, 1000)] = 2
    """Maximum number of concurrent queries; `limits.database_connections` also limits them."""
    max_queries_per_s: Annotated[int, count(1, 100_000)] | None = Field(
        default=None, alias="max_queries_per_second"
    )
    """Maximum rate of queries of this dimension in this sidecar, with retries. Further keys wait
    for the next query. `null`: no limit."""


class Versions(Section):
    """Columns with the validity of a row, for lookups with `as_of`."""

    valid_from: str = Field(min_length=1, max_length=255)
    """Column with the inclusive start of the validity. NULL: no start."""
    valid_to: str | None = Field(default=None, min_length=1, max_length=255)
    """Column with the exclusive end of the validity. NULL: no end. Without this key, a version is
    valid until the next version."""

    @rule("valid_to")
    def _is_another_column(cls, valid_to: str | None, given: Given) -> None:
        if valid_to is not None and valid_to == given.get("valid_from"):
            raise ValueError("is also valid_from: no version would ever be valid; leave it out")


class RetryBackoff(Section):
    """Exponential backoff between retries."""

    initial_s: Annotated[float, duration("1ms", "1h")] = written("50ms")
    """Delay before the first retry."""
    max_s: Annotated[float, duration("1ms", "1h")] = written("1s")
    """Maximum delay before a retry."""
    multiplier: Annotated[float, factor(1, 100)] = 2.0
    """Factor by which the delay grows with each retry. `1`: a constant delay."""

    @rule("max_s")
    def _is_not_below_initial(cls, max_s: float, given: Given) -> None:
        if max_s < given.get("initial_s", 0.0):
            raise ValueError("is less than backoff.initial; raise it, or lower backoff.initial")


class OnMissing(Section):
    """Retries for missing keys, for rows that arrive later than their records."""

    max_retries: Annotated[int, count(0, 100)] = 0
    """Maximum number of retries. `0`: none."""
    delay_s: Annotated[float, duration("1ms", "1h")] = written("1s")
    """Delay before each retry; shorter than `timeout`."""


class Retry(Section):
    """Retries within the timeout of the lookup."""

    max_retries: Annotated[int, count(0, 100)] = 2
    """Maximum number of retries of a failed query. `0`: none."""
    backoff: RetryBackoff = Field(default_factory=RetryBackoff)
    """Delays between retries."""
    on_missing: OnMissing = Field(
        default_factory=OnMissing, examples=[{"max_retries": 3, "delay": "500ms"}]
    )
    """Retries for missing keys."""


def _no_retry(delay: str, retries: str) -> ValueError:
    return ValueError(
        f"is not longer than {delay}: no retry could start in time; lower that, or set {retries} "
        "to 0"
    )


ColumnName = Annotated[SqlText, Field(min_length=1, max_length=255)]


def _offered(name: str, info: ValidationInfo) -> str:
    if name in info.data.get("key", ()):
        raise ValueError("part of the key; remove it")
    # Without a list of columns, only the table knows them.
    offered = info.data.get("columns")
    if offered is not None and name not in offered:
        raise ValueError(f"not listed in columns{nearest_name(name, offered)}")
    return name


OfferedColumn = Annotated[ColumnName, AfterValidator(_offered)]


def _known_type(text: str) -> str:
    parsed_type(text)
    return text


TypeText = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_known_type)]


class DimensionConfig(Section):
    """A dimension: its source, its key, and the rules for its lookups."""

    source: Source
    """Table, view, query or file with the rows."""
    key: tuple[ColumnName, ...]
    """Columns of the key. Lookups give their values in this order."""
    columns: tuple[ColumnName, ...] | None = None
    """Columns that lookups may read. `null`: all columns except the key."""
    types: dict[OfferedColumn, TypeText] | None = Field(
        default=None, examples=[{"attrs": "struct<a int, b string>", "price": "decimal(18,4)"}]
    )
    """Types of columns in Spark's notation, such as `decimal(18,4)`. Other columns have the type
    that the source determines."""
    match: Match | None = None
    """Answer for a key with several rows: the `first` one, in PostgreSQL by the primary key, or
    `all`, as lists. `null`: the error `ambiguous`."""
    versions: Versions | None = Field(
        default=None, examples=[{"valid_from": "since", "valid_to": "until"}]
    )
    """Columns with the validity of a row, for lookups with `as_of`."""
    cache: Cache = Field(default_factory=Cache, examples=[{"ttl": "10m"}])
    """Mode, size and expiry of the cache."""
    batch: Batch = Field(default_factory=Batch, examples=[{"max_keys": 500}])
    """Size, delay, concurrency and rate of queries."""
    retry: Retry = Field(default_factory=Retry, examples=[{"max_retries": 2}])
    """Retries of failed queries and for missing keys."""
    refresh: Refresh = Field(default_factory=Refresh)
    """Change feed and reloads of the cache."""
    default: dict[OfferedColumn, Any] | None = None
    """Row for missing keys, such as `{ name: unknown }`; columns without a value are NULL. The
    outcome is `default`."""
    timeout_s: Annotated[float, duration("1ms", "1h")] = written("2s")
    """Timeout of one query, and by default of a lookup over HTTP, retries included. A lookup join
    repeats failed queries within its own `timeout`: keep that above this one."""
    wait_for_dimension_s: Annotated[float, duration("0ms", "1h")] = written("0ms")
    """Maximum time that a lookup waits until the feed has applied all changes up to the event time
    of its record. Needs a change feed; shorter than `timeout`."""

    @rule("key", "columns")
    def _names_each_once(cls, names: tuple[str, ...] | None, given: Given) -> None:
        if names is None:
            return
        if not names:
            raise ValueError("must not be empty")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)}: named more than once")
        both = [name for name in given.get("key", ()) if name in names]
        if both:
            raise ValueError(f"{', '.join(both)}: part of the key; remove it from columns")

    @rule("types")
    def _are_types_of_a_table(cls, types: dict[str, str] | None, given: Given) -> None:
        if types is not None and isinstance(given.get("source"), ParquetSource):
            raise ValueError("has no effect on a Parquet file, which has exact types; remove it")

    @rule("versions")
    def _names_offered_times(cls, versions: Versions | None, given: Given) -> None:
        if versions is not None and given.get("match") is not None:
            raise ValueError("includes all rows of a key; leave match out")
        # Without a list of columns, only the table knows them.
        key, offered = given.get("key", ()), given.get("columns")
        for name in () if versions is None else copied(VersionColumns, versions).names:
            if name in key:
                raise ValueError(f"{name} is part of the key; name another column")
            if offered is not None and name not in offered:
                raise ValueError(f"{name} is not listed in columns; add it")

    @rule("cache")
    def _has_one_row_of_a_key(cls, cache: Cache, given: Given) -> None:
        several = [name for name in ("match", "versions") if given.get(name) is not None]
        if cache.mode is CacheMode.FULL and several:
            raise ValueError(f"mode full stores one row of a key; leave {several[0]} out")

    @rule("refresh")
    def _fits_source_and_cache(cls, refresh: Refresh, given: Given) -> None:
        # Faults of the cache or the source cause no second fault here.
        mode = given["cache"].mode if "cache" in given else CacheMode.FULL
        check_refresh(refresh, given.get("source"), mode)

    @rule("default")
    def _fits_rows_of_a_key(cls, default: dict[str, Any] | None, given: Given) -> None:
        if default is not None and given.get("versions") is not None:
            raise ValueError("has no effect with versions: a key without a version is missing")
        lists = {k: len(v) for k, v in (default or {}).items() if isinstance(v, list)}
        if given.get("match") is Match.ALL and len({*lists.values()}) > 1:
            lengths = ", ".join(f"{name} has {count}" for name, count in lists.items())
            raise ValueError(
                f"the lists are columns of the same rows, and {lengths} values; write as many for"
                " each column, with null for unknown ones"
            )

    @rule("timeout_s")
    def _leaves_room(cls, timeout_s: float, given: Given) -> None:
        batch, retry = given.get("batch"), given.get("retry")
        if batch is not None and batch.linger_s >= timeout_s:
            raise ValueError("is not longer than batch.linger: every lookup would time out")
        rate = None if batch is None else batch.max_queries_per_s
        if rate is not None and 1 / rate >= timeout_s:
            raise ValueError(
                "is not longer than the time between two queries (batch.max_queries_per_second):"
                " lookups would time out"
            )
        if retry is None:
            return
        # A default delay with a short timeout is no contradiction.
        is_written = "initial_s" in retry.backoff.model_fields_set
        if is_written and retry.max_retries > 0 and retry.backoff.initial_s >= timeout_s:
            raise _no_retry("retry.backoff.initial", "retry.max_retries")
        if retry.on_missing.max_retries > 0 and retry.on_missing.delay_s >= timeout_s:
            raise _no_retry("retry.on_missing.delay", "retry.on_missing.max_retries")

    @rule("wait_for_dimension_s")
    def _waits_for_something(cls, wait_s: float, given: Given) -> None:
        refresh = given.get("refresh")
        if wait_s and refresh is not None and refresh.feed is None:
            raise ValueError("needs a change feed: set refresh.listen or refresh.changelog")
        if wait_s >= given.get("timeout_s", math.inf):
            timeout = duration_text(given["timeout_s"])
            raise ValueError(
                f"{duration_text(wait_s)} is not shorter than timeout ({timeout}) of the same "
                "dimension: every waiting lookup would time out; raise timeout, or lower this"
            )

    @property
    def version_columns(self) -> VersionColumns | None:
        """The columns with the validity of a version; None if rows have no versions."""
        return None if self.versions is None else copied(VersionColumns, self.versions)

    def arrow_types(self) -> dict[str, pa.DataType]:
        """Return the requested types of columns."""
        return {name: parsed_type(text) for name, text in (self.types or {}).items()}

    def engine_settings(self, name: str) -> DimensionSettings:
        """Return the settings for the engine, in seconds and bytes."""
        retry, reload = self.retry, self.refresh.reload
        return copied(
            DimensionSettings,
            self,
            name=name,
            cache=copied(CacheSettings, self.cache),
            batch=copied(BatchSettings, self.batch),
            retry=copied(
                RetrySettings,
                retry.backoff,
                max_retries=retry.max_retries,
                on_missing=copied(OnMissingSettings, retry.on_missing),
            ),
            full=copied(FullSettings, self.cache, reload=copied(ReloadSettings, reload)),
            feed=self.refresh.feed_settings(),
        )
