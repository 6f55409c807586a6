"""Options of the public calls: their types and parsers, and the settings that they become.

A parser raises ValueError with the option, the accepted values and the given one.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal, TypedDict, TypeGuard, TypeVar

import pyspark
from pyspark.sql.pandas.utils import (
    require_minimum_pandas_version,
    require_minimum_pyarrow_version,
)
from pyspark.sql.types import StructType

from lookup_core.compatibility import TextEnum
from lookup_core.errors import InvalidRequest
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from lookup_core.protocol.client_channel import MAX_TIMEOUT_MS
from lookup_core.protocol.frames import TraceParent
from spark_client.driver.lookup_functions import HAS_ARROW_FUNCTIONS
from spark_client.driver.schemas import SCHEMA_FORMS
from spark_client.lookup_settings import (
    FailurePolicy,
    LookupSettings,
    OutputMode,
    PassSettings,
    Via,
)

How = Literal["left", "inner", "semi", "anti"]
Mode = Literal["ordered", "unordered", "key_ordered"]
OnFailure = Literal["fail", "null", "default"]
Route = Literal["auto", "batch", "udf"]
Duration = float | str  # seconds, or a text such as "10 seconds"
Given = TypeVar("Given")
Parsed = TypeVar("Parsed")
Choice = TypeVar("Choice", bound=TextEnum)

_MAX_OPEN_MS = 2**53 - 1  # the longest duration in OPEN
_MAX_TIMEOUT_S = MAX_TIMEOUT_MS // 1000
_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000),
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)")


class RetryMissing(TypedDict):
    """How often, and at which intervals, a key without a row is looked up again."""

    max_retries: int
    delay: Duration


@dataclass(frozen=True, slots=True)
class LookupArguments:
    """The options of one lookup, as a call gets them."""

    on_timeout: OnFailure
    on_error: OnFailure
    max_age: Duration | None
    retry_missing: RetryMissing | None
    retry_if: str | None
    traceparent: str | None
    show_keys: bool

    def settings(self) -> LookupSettings:
        """The settings; ValueError for a wrong option, and for options that contradict."""
        retries = optional(_retries, "retry_missing", self.retry_missing) or NO_OPTIONS
        options = replace(
            retries,
            max_age_ms=optional(_age_ms, "max_age", self.max_age),
            retry_if=optional(_dimension_column, "retry_if", self.retry_if),
        )
        try:
            options.check_values()
        except InvalidRequest as error:
            raise ValueError(error.detail) from error
        return LookupSettings(
            on_timeout=choice("on_timeout", self.on_timeout, FailurePolicy),
            on_error=choice("on_error", self.on_error, FailurePolicy),
            trace=optional(_trace, "traceparent", self.traceparent),
            show_keys=flag("show_keys", self.show_keys),
            options=options,
        )


@dataclass(frozen=True, slots=True)
class PassArguments:
    """The options of a pass, as a call gets them."""

    mode: Mode | None = None
    capacity: int | None = None
    timeout: float | None = None
    event_time: str | None = None
    watermark_delay: str | None = None
    watermark_interval: str | None = None
    via: Route | None = None

    def options(self) -> "PassOptions":
        """The parsed options; ValueError for a wrong one."""
        return PassOptions(
            mode=optional(partial(choice, choices=OutputMode), "mode", self.mode),
            capacity=optional(_records, "capacity", self.capacity),
            timeout=optional(seconds, "timeout", self.timeout),
            event_time=optional(record_column, "event_time", self.event_time),
            watermark_delay_ms=optional(duration_ms, "watermark_delay", self.watermark_delay),
            watermark_interval_ms=optional(
                partial(duration_ms, least_ms=1), "watermark_interval", self.watermark_interval
            ),
            via=optional(partial(choice, choices=Via), "via", self.via),
        )


@dataclass(frozen=True, slots=True)
class PassOptions:
    """The options of a pass; None for those that the user did not give."""

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

    def check(self, *, has_functions: bool = HAS_ARROW_FUNCTIONS) -> None:
        """Raise ValueError for watermarks without event times, and for an impossible `via`."""
        options = (self.watermark_delay_ms, self.watermark_interval_ms)
        if self.event_time is None and options != (None, None):
            raise ValueError("watermark_delay and watermark_interval need event_time")
        if self.via is Via.UDF and self.mode not in {None, OutputMode.ORDERED}:
            mode = f"mode={str(self.mode)!r}"
            raise ValueError(
                f"via='udf' keeps the order of each partition; use via='batch' for {mode}"
            )
        if self.via is Via.UDF and not has_functions:
            raise ValueError("via='udf' needs PySpark 4.1 or newer; use via='batch'")

    def settings(self, event_time: int | None) -> PassSettings:
        """The settings, with the position of the event times."""
        usual = PassSettings()
        capacity = self.capacity or usual.capacity
        return PassSettings(
            mode=self.mode or usual.mode,
            capacity=capacity,
            # The next run is looked up while the answers of the last one are on their way.
            pooled_rows=max(capacity // 2, 1),
            timeout_s=self.timeout or usual.timeout_s,
            event_time=event_time,
            watermark_delay_ms=self.watermark_delay_ms or 0,
            watermark_interval_ms=self.watermark_interval_ms,
        )


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


def refused(option: str, accepted: str, value: object, *, remedy: str = "") -> ValueError:
    """The error for a value that is not what the option accepts."""
    return ValueError(f"{option} is {accepted}, not {value!r}{remedy}")


def optional(
    parse: Callable[[str, Given], Parsed], option: str, value: Given | None
) -> Parsed | None:
    """The parsed value; None if it is not given."""
    return None if value is None else parse(option, value)


def choice(option: str, value: str, choices: type[Choice]) -> Choice:
    """One of the texts of an enumeration."""
    try:
        return choices(value)
    except ValueError:
        wanted = " or ".join(choices)
        raise ValueError(f"{option} must be {wanted}, not {value!r}") from None


def flag(option: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise refused(option, "True or False", value)
    return value


def text(option: str, value: object, *, accepted: str, remedy: str = "") -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise refused(option, accepted, value, remedy=remedy)
    return value


def dimension_name(value: object) -> str:
    """The name of one dimension."""
    remedy = "; chain one lookup for each dimension"
    return text("dimension", value, accepted="one name", remedy=remedy)


def record_column(option: str, value: object) -> str:
    """The name of a column of the records."""
    remedy = "; add a computed column to the records before the lookup"
    return text(option, value, accepted="a column's name", remedy=remedy)


def name_prefix(value: object) -> str:
    """A text, which may be empty."""
    if not isinstance(value, str):
        raise refused("prefix", "a text before the names", value)
    return value


def _dimension_column(option: str, value: object) -> str:
    return text(option, value, accepted="the name of a dimension's column")


def file_path(option: str, value: object) -> str | os.PathLike[str]:
    """The path of a file."""
    if isinstance(value, os.PathLike):
        return value
    return text(option, value, accepted="the path of a file")


def seconds(option: str, value: object) -> float:
    """A positive number of seconds, as a LOOKUP can have."""
    if not _is_number(value) or not 0 < value <= _MAX_TIMEOUT_S:
        accepted = f"a number of seconds, more than 0 and at most {_MAX_TIMEOUT_S}"
        raise refused(option, accepted, value)
    return value


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _records(option: str, value: object) -> int:
    if not is_whole(value) or value < 1:
        raise refused(option, "a whole number of records, at least 1", value)
    return value


def distinct_names(option: str, value: object) -> tuple[str, ...]:
    """A list of distinct names, which may be empty."""
    if isinstance(value, str):
        raise ValueError(f"{option} is a list of names; write [{value!r}]")  # noqa: TRY004 -- as documented
    # A set has no order, and an iterator can be read only once.
    if not isinstance(value, Sequence) or not all(isinstance(each, str) and each for each in value):
        raise refused(option, "a list of names", value)
    twice = sorted({name for name in value if value.count(name) > 1})
    if twice:
        raise ValueError(f"{option} has {', '.join(twice)} twice; name each once")
    return tuple(value)


def some_names(option: str, value: object) -> tuple[str, ...]:
    """A list of one or more distinct names."""
    found = distinct_names(option, value)
    if not found:
        raise ValueError(f"{option} must name at least one column, or be left out")
    return found


def schema_text_or_type(option: str, value: object) -> str | StructType:
    """DDL, which is not parsed here, or a StructType."""
    if not isinstance(value, (str, StructType)) or (isinstance(value, str) and not value.strip()):
        raise refused(option, SCHEMA_FORMS, value)
    return value


def duration_ms(option: str, value: object, *, least_ms: int = 0) -> int:
    """Milliseconds of a text such as `10 seconds` or `1h30m`."""
    if not isinstance(value, str):
        raise refused(option, "a text as '10 seconds'", value)
    position, total_ms = 0, 0
    words = value.strip().lower().removeprefix("interval ")
    while part := _PART.match(words, position):
        if part[2] not in _MS:
            break
        total_ms += int(part[1]) * _MS[part[2]]
        position = part.end()
    if not words or position != len(words):
        raise ValueError(
            f"{option}: {value!r} is no duration; write whole numbers of milliseconds, seconds,"
            " minutes, hours, days or weeks, as in '10 seconds'"
        )
    if not least_ms <= total_ms <= _MAX_OPEN_MS:
        raise refused(option, f"{least_ms} to {_MAX_OPEN_MS} milliseconds", value)
    return total_ms


def _age_ms(option: str, value: object) -> int:
    """Milliseconds of seconds, or of a text."""
    if isinstance(value, str):
        return duration_ms(option, value)
    if not _is_number(value) or not 0 <= value * 1000 <= _MAX_OPEN_MS:
        accepted = f"seconds, 0 to {_MAX_OPEN_MS // 1000}, or a text as '10 seconds'"
        raise refused(option, accepted, value)
    return round(value * 1000)


def _retries(option: str, value: object) -> LookupOptions:
    if not isinstance(value, Mapping) or set(value) != {"max_retries", "delay"}:
        raise refused(option, '{"max_retries": 3, "delay": "500 ms"}, with both', value)
    retries = value["max_retries"]
    if not is_whole(retries):
        raise refused(f"{option}.max_retries", "a whole number", retries)
    return LookupOptions(None, retries, _age_ms(f"{option}.delay", value["delay"]))


def _trace(option: str, value: object) -> TraceParent:
    parent = TraceParent(value) if isinstance(value, str) else None
    if parent is None or not parent.is_well_formed:
        raise refused(option, "00-<32 hex digits>-<16 hex digits>-<2>", value)
    return parent
