"""Options of one channel's lookups: which a dimension accepts, and what is wrong with others."""

from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings, Match

COLUMNS = pa.schema({"name": pa.utf8(), "since": pa.date32()})
SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), COLUMNS)
WITH_VERSIONS = DimensionSchema(SCHEMA.key, VersionColumns("since").marked(COLUMNS))
PARTIAL = DimensionSettings("customers")
FULL = replace(PARTIAL, cache=CacheSettings(mode=CacheMode.FULL))
MAX_AGE = LookupOptions(max_age_ms=0)
RETRIES = LookupOptions(max_retries=1, retry_delay_ms=1)
NAMED = replace(RETRIES, retry_if="name")
NAME = 'dimension "customers": '
OMIT = "omit retry_if"
REMEDY = f"set retry_missing.max_retries to 1 or more, or {OMIT}"


def fault_of(
    options: LookupOptions,
    settings: DimensionSettings = PARTIAL,
    schema: DimensionSchema = SCHEMA,
    *,
    reads_on_request: bool = True,
) -> tuple[ErrorCode, str]:
    """Why a dimension refuses the options."""
    with pytest.raises(InvalidRequest) as caught:
        options.check(settings, schema, reads_on_request=reads_on_request)
    return caught.value.code, caught.value.detail


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        *((options, PARTIAL) for options in (NO_OPTIONS, MAX_AGE, RETRIES, NAMED)),
        (LookupOptions(2**53 - 1, 100, 3_600_000, "since"), PARTIAL),
        (LookupOptions(max_retries=0, retry_delay_ms=1), FULL),
        (NO_OPTIONS, FULL),
    ],
)
def test_exact_options_are_accepted(options: LookupOptions, settings: DimensionSettings) -> None:
    """Options within their bounds are accepted; a full table refuses those it cannot keep."""
    options.check(settings, SCHEMA, reads_on_request=True)


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        (LookupOptions(max_age_ms=-1), "max_age is -1 ms; it must be 0 or more"),
        (
            LookupOptions(max_retries=1),
            "retry_missing has max_retries or delay only; set both",
        ),
        (
            LookupOptions(retry_delay_ms=1),
            "retry_missing has max_retries or delay only; set both",
        ),
        (
            replace(RETRIES, max_retries=101),
            "retry_missing.max_retries is 101; it must be 0 to 100",
        ),
        (replace(RETRIES, max_retries=-1), "retry_missing.max_retries is -1; it must be 0 to 100"),
        (replace(RETRIES, retry_delay_ms=0), "retry_missing.delay is 0 ms; it must be 1 ms to 1 h"),
        (
            replace(RETRIES, retry_delay_ms=3_600_001),
            "retry_missing.delay is 3600001 ms; it must be 1 ms to 1 h",
        ),
        (
            LookupOptions(retry_if="name"),
            f"retry_if names column 'name', but there are no retries; {REMEDY}",
        ),
    ],
)
def test_impossible_values_are_refused(options: LookupOptions, detail: str) -> None:
    """A value that no dimension accepts is refused; the error has the name, value and remedy."""
    assert fault_of(options) == (ErrorCode.BAD_REQUEST, detail)


def test_retried_column_must_exist() -> None:
    """The column of `retry_if` is one of the dimension."""
    assert fault_of(replace(NAMED, retry_if="nam")) == (
        ErrorCode.UNKNOWN_COLUMN,
        f"{NAME}retry_if: no column 'nam'; did you mean name?",
    )


@pytest.mark.parametrize(
    ("settings", "schema", "several"),
    [
        (replace(PARTIAL, match=Match.ALL), SCHEMA, "match: all"),
        (PARTIAL, WITH_VERSIONS, "versions"),
    ],
)
def test_lists_are_never_null(
    settings: DimensionSettings, schema: DimensionSchema, several: str
) -> None:
    """A dimension whose columns are lists refuses `retry_if`, and takes plain retries."""
    RETRIES.check(settings, schema, reads_on_request=True)

    assert fault_of(NAMED, settings, schema) == (
        ErrorCode.BAD_REQUEST,
        f"{NAME}retry_if: with {several}, column 'name' is a list of several rows' values; {OMIT}",
    )


def test_full_table_refuses_reads() -> None:
    """In full cache mode there are no reads by key, so neither option can be kept."""
    why = "cache.mode is full, so all rows come from the table in memory"

    assert fault_of(MAX_AGE, FULL)[1] == (
        f"{NAME}max_age: {why}; omit max_age, set refresh.reload or a change feed, or use"
        " cache.mode: partial"
    )
    assert fault_of(RETRIES, FULL)[1] == (
        f"{NAME}retry_missing: {why}, and a query finds no other; omit retry_missing, set"
        " wait_for_dimension, or use cache.mode: partial"
    )


def test_rows_in_memory_have_another_age() -> None:
    """A backend that returns rows of an earlier read refuses a maximal age."""
    RETRIES.check(PARTIAL, SCHEMA, reads_on_request=False)

    assert fault_of(MAX_AGE, reads_on_request=False)[1] == (
        f"{NAME}max_age: rows of a Parquet file are as old as the last check of the file;"
        " omit max_age, or set a shorter cache.ttl"
    )
