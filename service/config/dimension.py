"""`dimensions.NAME`: source, key, columns, batches, retries and versions of a dimension."""

import math
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

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
from service.config.refresh import FittingRefresh, Refresh
from service.config.section import Section, copied, written
from service.config.source import ParquetSource, Source


class Batch(Section):
    """Size, delay, concurrency and rate of a dimension's queries."""

    max_keys: Annotated[int, count(1, 100_000)] = Field(
        default=10_000,
        description="Maximum number of keys in a query. A batch starts at 500 keys and grows while"
        " queries are fast.",
    )
    linger_s: Annotated[float, duration("0ms", "10s")] = written(
        "0ms",
        alias="linger",
        description="Delay of a query to collect more keys. `0ms`: a query starts as soon as a"
        " connection is free.",
    )
    max_in_flight: Annotated[int, count(1, 1000)] = Field(
        default=2,
        description="Maximum number of concurrent queries; `limits.database_connections` also"
        " limits them.",
    )
    max_queries_per_s: Annotated[int, count(1, 100_000)] | None = Field(
        default=None,
        alias="max_queries_per_second",
        description="Maximum rate of queries of this dimension in this sidecar, with retries."
        " Further keys wait for the next query. `null`: no limit.",
    )


class Versions(Section):
    """Columns with the validity of a row, for lookups with `as_of`."""

    valid_from: str = Field(
        min_length=1,
        max_length=255,
        description="Column with the inclusive start of the validity. NULL: no start.",
    )
    valid_to: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="Column with the exclusive end of the validity. NULL: no end. Without this"
        " key, a version is valid until the next version.",
    )

    @field_validator("valid_to", mode="after")
    @classmethod
    def _is_another_column(cls, valid_to: str | None, info: ValidationInfo) -> str | None:
        if valid_to is not None and valid_to == info.data.get("valid_from"):
            raise ValueError("is also valid_from: no version would ever be valid; leave it out")
        return valid_to


class RetryBackoff(Section):
    """Exponential backoff between retries."""

    initial_s: Annotated[float, duration("1ms", "1h")] = written(
        "50ms", alias="initial", description="Delay before the first retry."
    )
    max_s: Annotated[float, duration("1ms", "1h")] = written(
        "1s", alias="max", description="Maximum delay before a retry."
    )
    multiplier: Annotated[float, factor(1, 100)] = Field(
        default=2.0,
        description="Factor by which the delay grows with each retry. `1`: a constant delay.",
    )

    @field_validator("max_s", mode="after")
    @classmethod
    def _is_not_below_initial(cls, max_s: float, info: ValidationInfo) -> float:
        if max_s < info.data.get("initial_s", 0.0):
            raise ValueError("is less than backoff.initial; raise it, or lower backoff.initial")
        return max_s


class OnMissing(Section):
    """Retries for missing keys, for rows that arrive later than their records."""

    max_retries: Annotated[int, count(0, 100)] = Field(
        default=0, description="Maximum number of retries. `0`: none."
    )
    delay_s: Annotated[float, duration("1ms", "1h")] = written(
        "1s", alias="delay", description="Delay before each retry; shorter than `timeout`."
    )


class Retry(Section):
    """Retries within the timeout of the lookup."""

    max_retries: Annotated[int, count(0, 100)] = Field(
        default=2, description="Maximum number of retries of a failed query. `0`: none."
    )
    backoff: RetryBackoff = Field(
        default_factory=RetryBackoff, description="Delays between retries."
    )
    on_missing: OnMissing = Field(
        default_factory=OnMissing,
        examples=[{"max_retries": 3, "delay": "500ms"}],
        description="Retries for missing keys.",
    )


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

    source: Source = Field(description="Table, view, query or file with the rows.")
    key: tuple[ColumnName, ...] = Field(
        description="Columns of the key. Lookups give their values in this order."
    )
    columns: tuple[ColumnName, ...] | None = Field(
        default=None,
        description="Columns that lookups may read. `null`: all columns except the key.",
    )
    types: dict[OfferedColumn, TypeText] | None = Field(
        default=None,
        examples=[{"attrs": "struct<a int, b string>", "price": "decimal(18,4)"}],
        description="Types of columns in Spark's notation, such as `decimal(18,4)`. Other columns"
        " have the type that the source determines.",
    )
    match: Match | None = Field(
        default=None,
        description="Answer for a key with several rows: the `first` one, in PostgreSQL by the"
        " primary key, or `all`, as lists. `null`: the error `ambiguous`.",
    )
    versions: Versions | None = Field(
        default=None,
        examples=[{"valid_from": "since", "valid_to": "until"}],
        description="Columns with the validity of a row, for lookups with `as_of`.",
    )
    cache: Cache = Field(
        default_factory=Cache,
        examples=[{"ttl": "10m"}],
        description="Mode, size and expiry of the cache.",
    )
    batch: Batch = Field(
        default_factory=Batch,
        examples=[{"max_keys": 500}],
        description="Size, delay, concurrency and rate of queries.",
    )
    retry: Retry = Field(
        default_factory=Retry,
        examples=[{"max_retries": 2}],
        description="Retries of failed queries and for missing keys.",
    )
    refresh: FittingRefresh = Field(
        default_factory=Refresh, description="Change feed and reloads of the cache."
    )
    default: dict[OfferedColumn, Any] | None = Field(
        default=None,
        description="Row for missing keys, such as `{ name: unknown }`; columns without a value"
        " are NULL. The outcome is `default`.",
    )
    timeout_s: Annotated[float, duration("1ms", "1h")] = written(
        "2s",
        alias="timeout",
        description="Timeout of one query, and by default of a lookup over HTTP, retries included."
        " A lookup join repeats failed queries within its own `timeout`: keep that above this one.",
    )
    wait_for_dimension_s: Annotated[float, duration("0ms", "1h")] = written(
        "0ms",
        alias="wait_for_dimension",
        description="Maximum time that a lookup waits until the feed has applied all changes up to"
        " the event time of its record. Needs a change feed; shorter than `timeout`.",
    )

    @field_validator("key", "columns", mode="after")
    @classmethod
    def _names_each_once(
        cls, names: tuple[str, ...] | None, info: ValidationInfo
    ) -> tuple[str, ...] | None:
        if names is None:
            return None
        if not names:
            raise ValueError("must not be empty")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)}: named more than once")
        both = [name for name in info.data.get("key", ()) if name in names]
        if both:
            raise ValueError(f"{', '.join(both)}: part of the key; remove it from columns")
        return names

    @field_validator("types", mode="after")
    @classmethod
    def _are_types_of_a_table(
        cls, types: dict[str, str] | None, info: ValidationInfo
    ) -> dict[str, str] | None:
        if types is not None and isinstance(info.data.get("source"), ParquetSource):
            raise ValueError("has no effect on a Parquet file, which has exact types; remove it")
        return types

    @field_validator("versions", mode="after")
    @classmethod
    def _names_offered_times(
        cls, versions: Versions | None, info: ValidationInfo
    ) -> Versions | None:
        if versions is not None and info.data.get("match") is not None:
            raise ValueError("includes all rows of a key; leave match out")
        # Without a list of columns, only the table knows them.
        key, offered = info.data.get("key", ()), info.data.get("columns")
        for name in () if versions is None else copied(VersionColumns, versions).names:
            if name in key:
                raise ValueError(f"{name} is part of the key; name another column")
            if offered is not None and name not in offered:
                raise ValueError(f"{name} is not listed in columns; add it")
        return versions

    @field_validator("cache", mode="after")
    @classmethod
    def _has_one_row_of_a_key(cls, cache: Cache, info: ValidationInfo) -> Cache:
        several = [name for name in ("match", "versions") if info.data.get(name) is not None]
        if cache.mode is CacheMode.FULL and several:
            raise ValueError(f"mode full stores one row of a key; leave {several[0]} out")
        return cache

    @field_validator("default", mode="after")
    @classmethod
    def _fits_rows_of_a_key(
        cls, default: dict[str, Any] | None, info: ValidationInfo
    ) -> dict[str, Any] | None:
        if default is not None and info.data.get("versions") is not None:
            raise ValueError("has no effect with versions: a key without a version is missing")
        lists = {k: len(v) for k, v in (default or {}).items() if isinstance(v, list)}
        if info.data.get("match") is Match.ALL and len({*lists.values()}) > 1:
            lengths = ", ".join(f"{name} has {count}" for name, count in lists.items())
            raise ValueError(
                f"the lists are columns of the same rows, and {lengths} values; write as many for"
                " each column, with null for unknown ones"
            )
        return default

    @field_validator("timeout_s", mode="after")
    @classmethod
    def _leaves_room(cls, timeout_s: float, info: ValidationInfo) -> float:
        batch, retry = info.data.get("batch"), info.data.get("retry")
        if batch is not None and batch.linger_s >= timeout_s:
            raise ValueError("is not longer than batch.linger: every lookup would time out")
        rate = None if batch is None else batch.max_queries_per_s
        if rate is not None and 1 / rate >= timeout_s:
            raise ValueError(
                "is not longer than the time between two queries (batch.max_queries_per_second):"
                " lookups would time out"
            )
        if retry is None:
            return timeout_s
        # A default delay with a short timeout is no contradiction.
        is_written = "initial_s" in retry.backoff.model_fields_set
        if is_written and retry.max_retries > 0 and retry.backoff.initial_s >= timeout_s:
            raise _no_retry("retry.backoff.initial", "retry.max_retries")
        if retry.on_missing.max_retries > 0 and retry.on_missing.delay_s >= timeout_s:
            raise _no_retry("retry.on_missing.delay", "retry.on_missing.max_retries")
        return timeout_s

    @field_validator("wait_for_dimension_s", mode="after")
    @classmethod
    def _waits_for_something(cls, wait_s: float, info: ValidationInfo) -> float:
        refresh = info.data.get("refresh")
        if wait_s and refresh is not None and refresh.feed is None:
            raise ValueError("needs a change feed: set refresh.listen or refresh.changelog")
        if wait_s >= info.data.get("timeout_s", math.inf):
            timeout = duration_text(info.data["timeout_s"])
            raise ValueError(
                f"{duration_text(wait_s)} is not shorter than timeout ({timeout}) of the same "
                "dimension: every waiting lookup would time out; raise timeout, or lower this"
            )
        return wait_s

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
