"""Parsers of the public options: one for each name, in whatever calls it stands.

They raise ValueError with the option, the accepted values and the given one.
"""

import os
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql.types import StructType

from lookup_core.compatibility import TextEnum
from lookup_core.keys.canonical_keys import KEY_GROUPS
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol.client_channel import MAX_TIMEOUT_MS
from lookup_core.protocol.frames import TraceParent
from spark_client.driver.input_columns import parsed_on
from spark_client.driver.lookup_join import SCHEMA_FORMS, LookupJoin
from spark_client.lookup_settings import FailurePolicy, JoinType, OutputMode, Via

Parser: TypeAlias = Callable[[str, Any], Any]  # of an option's name and its given value

_MOST_MS = 2**53 - 1  # of a duration, in OPEN
_MOST_S = MAX_TIMEOUT_MS // 1000  # of a timeout, in LOOKUP
_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000),
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)")


def parsed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a call's options; ValueError for a wrong one.

    `given` is `locals()` at the beginning of the call: {option: as the user gave it}.
    """
    return {name: _PARSERS[name](name, value) for name, value in given.items() if name != "self"}


def _refused(option: str, accepted: str, value: object, *, remedy: str = "") -> ValueError:
    return ValueError(f"{option} is {accepted}, not {value!r}{remedy}")


def _accepting(accepted: str, is_accepted: Callable[[Any], bool], remedy: str = "") -> Parser:
    def parse(option: str, value: object) -> object:
        if not is_accepted(value):
            raise _refused(option, accepted, value, remedy=remedy)
        return value

    return parse


def _optional(parse: Parser) -> Parser:
    return lambda option, value: None if value is None else parse(option, value)


def _choice(choices: type[TextEnum]) -> Parser:
    def parse(option: str, value: object) -> TextEnum:
        try:
            return choices(value)
        except ValueError:
            wanted = " or ".join(choices)
            raise ValueError(f"{option} must be {wanted}, not {value!r}") from None

    return parse


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike) or _is_name(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _names(option: str, value: Any) -> tuple[str, ...]:  # noqa: ANN401 -- also wrong ones
    if isinstance(value, str):
        raise ValueError(f"{option} is a list of names; write [{value!r}]")  # noqa: TRY004 -- as documented
    # A set has no order, and an iterator can be read only once.
    if not isinstance(value, Sequence) or not all(map(_is_name, value)):
        raise _refused(option, "a list of names", value)
    twice = sorted({name for name in value if value.count(name) > 1})
    if twice:
        raise ValueError(f"{option} has {', '.join(twice)} twice; name each once")
    return tuple(value)


def _sequence(option: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    names = (value,) if isinstance(value, str) else value
    return _some_names(option, names)


def _some_names(option: str, value: object) -> tuple[str, ...]:
    names = _names(option, value)
    if not names:
        raise ValueError(f"{option} must name at least one column, or be left out")
    return names


def _schema(option: str, value: object) -> object:
    is_ddl = isinstance(value, str) and value.strip() != ""
    if not is_ddl and not isinstance(value, StructType):
        raise _refused(option, SCHEMA_FORMS, value)
    return value


def _dimensions(option: str, value: Any) -> Mapping[str, Any]:  # noqa: ANN401 -- also wrong ones
    """{name: columns}; None for all columns."""
    named = value if isinstance(value, Mapping) else dict.fromkeys(_names(option, value))
    if not named or not all(map(_is_name, named)):
        raise _refused(option, "a list of one or more names, or {name: columns}", value)
    return {name: _fields(f"{option}[{name!r}]", each) for name, each in named.items()}


def _fields(option: str, value: object) -> object:
    if value is None:
        return None
    if isinstance(value, str) and value.isidentifier():
        raise ValueError(f"{option} is a list of names, or DDL with types; write [{value!r}]")
    if isinstance(value, (str, StructType)) and value != StructType():
        return _schema(option, value)
    return _some_names(option, value)


def duration_ms(option: str, value: object, *, least_ms: int = 0) -> int:
    """Milliseconds of a text such as `10 seconds` or `1h30m`."""
    if not isinstance(value, str):
        raise _refused(option, "a text as '10 seconds'", value)
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
    if not least_ms <= total_ms <= _MOST_MS:
        raise _refused(option, f"{least_ms} to {_MOST_MS} milliseconds", value)
    return total_ms


def _duration(option: str, value: Any) -> int:  # noqa: ANN401 -- also wrong ones
    """Milliseconds of seconds, or of a text."""
    if isinstance(value, str):
        return duration_ms(option, value)
    if not _is_number(value) or not 0 <= value * 1000 <= _MOST_MS:
        accepted = f"seconds, 0 to {_MOST_MS // 1000}, or a text as '10 seconds'"
        raise _refused(option, accepted, value)
    return round(value * 1000)


def _retry_missing(option: str, value: Any) -> LookupOptions:  # noqa: ANN401 -- also wrong ones
    if not isinstance(value, Mapping) or set(value) != {"max_retries", "delay"}:
        raise _refused(option, '{"max_retries": 3, "delay": "500 ms"}, with both', value)
    retries = value["max_retries"]
    if not _is_whole(retries):
        raise _refused(f"{option}.max_retries", "a whole number", retries)
    return LookupOptions(None, retries, _duration(f"{option}.delay", value["delay"]))


def _traceparent(option: str, value: object) -> TraceParent:
    parent = TraceParent(value) if isinstance(value, str) else None
    if parent is None or not parent.is_well_formed:
        raise _refused(option, "00-<32 hex digits>-<16 hex digits>-<2>", value)
    return parent


def _lookups(option: str, value: Any) -> Sequence[LookupJoin]:  # noqa: ANN401 -- also wrong ones
    is_list = type(value) in {list, tuple} and value
    if not is_list or not all(isinstance(each, LookupJoin) for each in value):
        accepted = "a list of at least one lookup_join(…)"
        raise ValueError(f"{option} is {accepted}, not {reprlib.repr(value)}")
    return value


_COLUMN = _accepting(
    "a column's name", _is_name, "; add a computed column to the records before the lookup"
)
_FLAG = _accepting("True or False", lambda value: isinstance(value, bool))
_PATH = _accepting("the path of a file", _is_path)
_SECONDS = _accepting(
    f"a number of seconds, more than 0 and at most {_MOST_S}",
    lambda value: _is_number(value) and 0 < value <= _MOST_S,
)
_PARSERS: Mapping[str, Parser] = {
    # of a sidecar
    "url": _accepting("a text as unix:///path/of.sock or http://host:port", _is_name),
    "token_file": _optional(_PATH),
    "connect_timeout": _SECONDS,
    **dict.fromkeys(("ca_file", "cert_file", "key_file"), _optional(_PATH)),
    # of a local one
    "config": _PATH,
    "python": _optional(_PATH),
    "start_timeout": _SECONDS,
    # of lookups
    "dimension": _accepting("one name", _is_name, "; chain one lookup for each dimension"),
    "lookups": _lookups,
    "on": _optional(lambda _, value: parsed_on(value)),
    "as_of": _optional(_COLUMN),
    "columns": _optional(_names),
    "how": _choice(JoinType),
    "expand": _FLAG,
    "mode": _optional(_choice(OutputMode)),
    "capacity": _optional(
        _accepting(
            "a whole number of records, at least 1", lambda value: _is_whole(value) and value >= 1
        )
    ),
    "timeout": _optional(_SECONDS),
    "on_timeout": _choice(FailurePolicy),
    "on_error": _choice(FailurePolicy),
    "max_age": _optional(_duration),
    "retry_missing": _optional(_retry_missing),
    "retry_if": _optional(_accepting("the name of a dimension's column", _is_name)),
    "event_time": _optional(_COLUMN),
    "watermark_delay": _optional(duration_ms),
    "watermark_interval": _optional(partial(duration_ms, least_ms=1)),
    "via": _optional(_choice(Via)),
    "prefix": _accepting("a text before the names", lambda value: isinstance(value, str)),
    "status_column": _optional(_accepting("the name of a new column", _is_name)),
    "schema": _optional(_schema),
    "traceparent": _optional(_traceparent),
    "show_keys": _FLAG,
    # of functions
    "deterministic": _FLAG,
    "spark": _accepting("a SparkSession", lambda value: hasattr(value, "udf")),
    "dimensions": _optional(_dimensions),
    # of a repartitioning
    "partitions": _optional(
        _accepting(
            f"a number from 1 to {KEY_GROUPS}",
            lambda value: _is_whole(value) and 1 <= value <= KEY_GROUPS,
        )
    ),
    "sequence": _sequence,
}
