"""Options of the public calls: their types, checks, and the settings that they become.

Raises ValueError for values that no lookup accepts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict

import pyspark
from pyspark.sql.pandas.utils import (
    require_minimum_pandas_version,
    require_minimum_pyarrow_version,
)

from lookup_core.errors import InvalidRequest
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol.frames import TraceParent
from spark_client.lookup_settings import (
    FailurePolicy,
    LookupSettings,
    OutputMode,
    PassSettings,
    Via,
    chosen,
    duration_ms,
)
from spark_client.pass_function import check_via

How = Literal["left", "inner", "semi", "anti"]
Mode = Literal["ordered", "unordered", "key_ordered"]
OnFailure = Literal["fail", "null", "default"]
Route = Literal["auto", "batch", "udf"]
_MOST_S = 2**53 / 1000  # milliseconds stay exact
Duration = float | str  # seconds, or a text such as "10 seconds"


class RetryMissing(TypedDict):
    """How often, and at which intervals, a key without a row is looked up again."""

    max_retries: int
    delay: Duration


@dataclass(frozen=True, slots=True)
class PassOptions:
    """The options of a pass, as the user gave them; None for those that were not given."""

    mode: OutputMode | None = None
    capacity: int | None = None
    timeout: float | None = None
    event_time: str | None = None
    watermark_delay_ms: int | None = None
    watermark_interval_ms: int | None = None
    via: Via | None = None

    def joined(self, other: "PassOptions") -> "PassOptions":
        """The options of both; ValueError for an option with two values."""
        given = {}
        for option in fields(self):
            values = [getattr(self, option.name), getattr(other, option.name)]
            first, *more = [value for value in values if value is not None] or [None]
            if more and more != [first]:
                name = option.name.removesuffix("_ms")
                raise ValueError(
                    f"{name} is {first} and {more[0]}; all lookups of a pass share it: give it"
                    " once, to lookup_joins"
                )
            given[option.name] = first
        return PassOptions(**given)

    def check(self) -> None:
        """Raise ValueError for invalid values, and for watermarks without event times."""
        options = (self.watermark_delay_ms, self.watermark_interval_ms)
        if self.event_time is None and options != (None, None):
            raise ValueError("watermark_delay and watermark_interval need event_time")
        check_via(self.via, self.mode)
        self.settings(None)

    def settings(self, event_time: int | None) -> PassSettings:
        """The settings, with the position of the event times; ValueError for invalid values."""
        given = {
            "mode": self.mode,
            "capacity": self.capacity,
            "timeout_s": self.timeout,
            "watermark_delay_ms": self.watermark_delay_ms,
            "watermark_interval_ms": self.watermark_interval_ms,
        }
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        settings = PassSettings(event_time=event_time, **chosen)
        # The next run is looked up while the answers of the last one are on their way.
        return replace(settings, pooled_rows=max(settings.capacity // 2, 1))


@dataclass(frozen=True, slots=True)
class FreshnessOptions:
    """How old an answer may be, and what is retried, as the user gave it."""

    max_age: Duration | None = None
    retry_missing: RetryMissing | None = None
    retry_if: str | None = None

    def parsed(self) -> LookupOptions:
        """The options as a channel has them; ValueError for invalid values."""
        retries, delay = self._retries()
        options = LookupOptions(
            _milliseconds("max_age", self.max_age), retries, delay, self.retry_if
        )
        try:
            options.check_values()
        except InvalidRequest as error:
            raise ValueError(error.detail) from error
        return options

    def _retries(self) -> tuple[int | None, int | None]:
        given = self.retry_missing
        if given is None:
            return None, None
        if set(given) != {"max_retries", "delay"}:
            raise ValueError(
                'retry_missing is {"max_retries": 3, "delay": "500 ms"}, with both, not'
                f" {given!r}"
            )
        if type(given["max_retries"]) is not int:
            raise ValueError(
                f"retry_missing.max_retries is a whole number, not {given['max_retries']!r}"
            )
        return given["max_retries"], _milliseconds("retry_missing.delay", given["delay"])


def _milliseconds(option: str, given: Duration | None) -> int | None:
    match given:
        case None:
            return None
        case str():
            return duration_ms(given)
        case int() | float() if given >= 0 and given < _MOST_S and not isinstance(given, bool):
            return round(given * 1000)
    raise ValueError(f"{option} is seconds, 0 or more, or a text as '10 seconds', not {given!r}")


def check_call(dimension: str) -> None:
    """Raise ImportError if pandas or pyarrow is too old for Spark, ValueError if it is no name."""
    if not isinstance(dimension, str):
        raise ValueError(f"dimension is one name, not {dimension!r}; chain one lookup for each")  # noqa: TRY004 -- as documented
    check_libraries()


def check_libraries() -> None:
    """Raise ImportError if pandas or pyarrow is too old for Spark."""
    try:
        require_minimum_pandas_version()
        require_minimum_pyarrow_version()
    except ImportError as error:
        detail = (
            f"PySpark {pyspark.__version__} cannot run lookups here: {error} Install what it"
            " needs, on the executors too: pip install 'sidelook[spark]'"
        )
        raise ImportError(detail) from error


def column_names(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of the dimension's columns; None for all."""
    if isinstance(columns, str):
        raise ValueError(f"columns is a list of names; write [{columns!r}]")  # noqa: TRY004 -- as documented
    return None if columns is None else tuple(columns)


def lookup_settings(
    on_timeout: str,
    on_error: str,
    *,
    trace: str | None,
    show_keys: bool,
    freshness: FreshnessOptions,
) -> LookupSettings:
    """The settings of one lookup."""
    parent = None if trace is None else TraceParent(trace)
    if parent is not None and not parent.is_well_formed:
        raise ValueError(f"traceparent is 00-<32 hex digits>-<16 hex digits>-<2>, not {trace!r}")
    return LookupSettings(
        on_timeout=chosen(FailurePolicy, "on_timeout", on_timeout),
        on_error=chosen(FailurePolicy, "on_error", on_error),
        trace=parent,
        show_keys=show_keys,
        options=freshness.parsed(),
    )


def pass_options(  # noqa: PLR0913 -- the options of a pass
    *,
    mode: str | None,
    capacity: int | None,
    timeout: float | None,
    event_time: str | None,
    watermark_delay: str | None,
    watermark_interval: str | None,
    via: str | None,
) -> PassOptions:
    """The options of a pass, not yet checked as a whole."""
    interval_ms = None if watermark_interval is None else duration_ms(watermark_interval)
    if interval_ms == 0:
        raise ValueError("watermark_interval must be at least 1 millisecond")
    return PassOptions(
        None if mode is None else chosen(OutputMode, "mode", mode),
        capacity,
        timeout,
        event_time,
        None if watermark_delay is None else duration_ms(watermark_delay),
        interval_ms,
        None if via is None else chosen(Via, "via", via),
    )
