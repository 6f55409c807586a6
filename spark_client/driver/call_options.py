"""Options of the public calls: their types, and the settings that parsed ones become."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict

import pyspark
from pyspark.sql.pandas.utils import (
    require_minimum_pandas_version,
    require_minimum_pyarrow_version,
)

from lookup_core.errors import InvalidRequest
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from spark_client.driver.pass_function import check_via
from spark_client.lookup_settings import LookupSettings, OutputMode, PassSettings, Via

How = Literal["left", "inner", "semi", "anti"]
Mode = Literal["ordered", "unordered", "key_ordered"]
OnFailure = Literal["fail", "null", "default"]
Route = Literal["auto", "batch", "udf"]
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
        """Raise ValueError for watermarks without event times, and a mode that `via` lacks."""
        options = (self.watermark_delay_ms, self.watermark_interval_ms)
        if self.event_time is None and options != (None, None):
            raise ValueError("watermark_delay and watermark_interval need event_time")
        check_via(self.via, self.mode)

    def settings(self, event_time: int | None) -> PassSettings:
        """The settings, with the position of the event times."""
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


def lookup_settings(values: Mapping[str, Any]) -> LookupSettings:
    """The settings of one lookup, from its parsed options; ValueError if they contradict."""
    retries: LookupOptions = values["retry_missing"] or NO_OPTIONS
    options = replace(retries, max_age_ms=values["max_age"], retry_if=values["retry_if"])
    try:
        options.check_values()
    except InvalidRequest as error:
        raise ValueError(error.detail) from error
    return LookupSettings(
        on_timeout=values["on_timeout"],
        on_error=values["on_error"],
        trace=values["traceparent"],
        show_keys=values["show_keys"],
        options=options,
    )


def pass_options(values: Mapping[str, Any]) -> PassOptions:
    """The options of a pass among parsed ones, not yet checked as a whole."""
    given = {each.name: values.get(each.name.removesuffix("_ms")) for each in fields(PassOptions)}
    return PassOptions(**given)
