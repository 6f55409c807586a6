"""Options of one channel's lookups: the maximal age of rows, and retries for missing keys.

Checks them against a dimension; the dimension's state carries them out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lookup_core.dimension_schema import DimensionSchema, version_columns
from lookup_core.errors import ErrorCode, InvalidRequest, nearest_name, of_dimension
from lookup_core.settings import CacheMode, DimensionSettings, Match, OnMissingSettings

MAX_RETRIES = 100  # as in the configuration
MAX_RETRY_DELAY_MS = 3_600_000
_FULL = "cache.mode is full, so all rows come from the table in memory"


@dataclass(frozen=True, slots=True)
class LookupOptions:
    """What a channel sets for its own lookups; None: as the dimension's configuration says."""

    max_age_ms: int | None = None  # for cached rows, and keys that are cached as missing
    max_retries: int | None = None  # for keys without a row; 0: none
    retry_delay_ms: int | None = None  # between two of them
    retry_if: str | None = None  # a column; a row with NULL in it is retried like a missing key

    @property
    def names(self) -> list[str]:
        """The names of the options that are set, as people write them."""
        values = {
            "max_age": self.max_age_ms,
            "retry_missing": self.max_retries,
            "retry_if": self.retry_if,
        }
        return [name for name, value in values.items() if value is not None]

    @property
    def max_age_s(self) -> float:
        """The age from which on cached rows and missing keys are read again; may be infinite."""
        return math.inf if self.max_age_ms is None else self.max_age_ms / 1000

    def on_missing_or(self, configured: OnMissingSettings | None) -> OnMissingSettings | None:
        """The retries for missing keys, those of the dimension if the channel sets none.

        None for no retries.
        """
        if self.max_retries is None or self.retry_delay_ms is None:
            return configured
        own = OnMissingSettings(self.max_retries, self.retry_delay_ms / 1000, self.retry_if)
        return own.or_none

    def check_values(self) -> None:
        """Raise InvalidRequest for values that no dimension accepts."""
        for fault in self._faults():
            raise InvalidRequest(ErrorCode.BAD_REQUEST, fault)

    def check(
        self, settings: DimensionSettings, schema: DimensionSchema, *, reads_on_request: bool
    ) -> None:
        """Raise InvalidRequest for options that this dimension cannot keep exactly.

        `reads_on_request`: a query of its backend never returns rows that were read before it.
        """
        self.check_values()
        if self.max_age_ms is not None:
            _check_max_age(settings, reads_on_request=reads_on_request)
        if self.max_retries and settings.cache.mode is CacheMode.FULL:
            raise _refused(
                settings,
                f"retry_missing: {_FULL}, and a query finds no other; omit retry_missing, set"
                " wait_for_dimension, or use cache.mode: partial",
            )
        if self.retry_if is not None:
            _check_retry_if(self.retry_if, settings, schema)

    def _faults(self) -> Sequence[str]:
        retries, delay_ms = self.max_retries, self.retry_delay_ms
        if self.max_age_ms is not None and self.max_age_ms < 0:
            return [f"max_age is {self.max_age_ms} ms; it must be 0 or more"]
        if (retries is None) != (delay_ms is None):
            return ["retry_missing has max_retries or delay only; set both"]
        if retries is not None and not 0 <= retries <= MAX_RETRIES:
            return [f"retry_missing.max_retries is {retries}; it must be 0 to {MAX_RETRIES}"]
        if delay_ms is not None and not 1 <= delay_ms <= MAX_RETRY_DELAY_MS:
            return [f"retry_missing.delay is {delay_ms} ms; it must be 1 ms to 1 h"]
        if self.retry_if is not None and not retries:
            what = f"retry_if names column {self.retry_if!a}, but there are no retries"
            return [f"{what}; set retry_missing.max_retries to 1 or more, or omit retry_if"]
        return []


NO_OPTIONS = LookupOptions()


def _check_max_age(settings: DimensionSettings, *, reads_on_request: bool) -> None:
    if settings.cache.mode is CacheMode.FULL:
        remedy = "omit max_age, set refresh.reload or a change feed, or use cache.mode: partial"
        raise _refused(settings, f"max_age: {_FULL}; {remedy}")
    if not reads_on_request:
        why = "rows of a Parquet file are as old as the last check of the file"
        raise _refused(settings, f"max_age: {why}; omit max_age, or set a shorter cache.ttl")


def _check_retry_if(column: str, settings: DimensionSettings, schema: DimensionSchema) -> None:
    offered = schema.columns.names
    if column not in offered:
        detail = f"retry_if: no column {column!a}{nearest_name(column, offered)}"
        raise _refused(settings, detail, code=ErrorCode.UNKNOWN_COLUMN)
    several = "versions" if version_columns(schema.columns) is not None else "match: all"
    if several == "versions" or settings.match is Match.ALL:
        why = f"with {several}, column {column!a} is a list of several rows' values"
        raise _refused(settings, f"retry_if: {why}; omit retry_if")


def _refused(
    settings: DimensionSettings, detail: str, *, code: ErrorCode = ErrorCode.BAD_REQUEST
) -> InvalidRequest:
    return InvalidRequest(code, of_dimension(settings.name, detail))
