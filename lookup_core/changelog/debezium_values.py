"""Debezium encodings of decimals, dates, times and bytes, converted to the forms of `json_keys`."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.json_column import UNUSABLE
from lookup_core.changelog.key_readings import (
    Forms,
    PlainText,
    decimal_of_number,
    is_beyond_type,
    loose_readings,
)
from lookup_core.keys.json_keys import exact_decimal

# The default placeholder for large values (TOAST) that have not changed: PostgreSQL does not send
# them. Another `unavailable.value.placeholder` is not recognised.
UNAVAILABLE = "__debezium_unavailable_value"
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SCALE = re.compile(r"[0-9]{1,2}")
_HEXADECIMAL = re.compile(r"([0-9a-f]{2})+")
_DECIMAL_BYTES = 16  # enough for 38 digits
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # for columns without time zone
_MILLISECONDS = 10**3
# Infinite moments in milliseconds, with either sign; in microseconds, the last minute of 64 bits.
_INFINITE_MILLISECONDS = range(9_223_372_036_800_000, 9_223_372_036_854_776)
_UNITS_OF_SECOND = {  # {schema name: units per second}; other schemas may truncate
    "io.debezium.time.Timestamp": 10**3,
    "io.debezium.time.MicroTimestamp": 10**6,
    "io.debezium.time.NanoTimestamp": 10**9,
}

_Form = Mapping[str, Any]  # a field of a Kafka Connect schema
_Rewrite = Callable[[object, _Form, pa.Field], Sequence[object]]  # all readings
_NO_FORM: _Form = {}


def plain_json(
    values: Sequence[object], forms: Sequence[Forms], field: pa.Field
) -> Sequence[object]:
    """Convert the values of one column; ambiguous ones become UNUSABLE."""
    rewrite = next((rewrite for fits, rewrite in _REWRITES if fits(field.type)), None)
    if rewrite is None and not any(forms):
        return values
    return [
        _plain(value, form.get(field.name, _NO_FORM), field, rewrite=rewrite)
        for value, form in zip(values, forms, strict=True)
    ]


def _plain(value: object, form: _Form, field: pa.Field, *, rewrite: _Rewrite | None) -> object:
    if value is None or value is UNUSABLE:
        return value
    # By default, Kafka Connect writes the default of a column in place of NULL.
    if form.get("optional") and "default" in form and value == form["default"]:
        return UNUSABLE
    if rewrite is None:
        return value
    readings = rewrite(value, form, field)
    return readings[0] if len(readings) == 1 else UNUSABLE


def key_readings(value: object, forms: Forms, field: pa.Field) -> Sequence[object]:
    """All values of a key column that a value of Debezium may mean; see ReadValue."""
    if isinstance(value, PlainText):
        value = value.text
    rewrite = next((rewrite for fits, rewrite in _REWRITES if fits(field.type)), None)
    if rewrite is None or (rewrite is _texts and value != UNAVAILABLE):
        return loose_readings(value, forms, field)
    return rewrite(value, forms.get(field.name, _NO_FORM), field)


def _texts(value: object, _form: _Form, _field: pa.Field) -> Sequence[object]:
    return [] if value == UNAVAILABLE else [value]


def _dates(value: object, _form: _Form, field: pa.Field) -> Sequence[object]:
    if type(value) is not int:
        return _of_iso_text(value, field)
    try:
        return [(_EPOCH + timedelta(days=value)).date().isoformat()]
    except OverflowError:  # beyond the years 1 to 9999, or infinite
        return [None]


def _timestamps(value: object, form: _Form, field: pa.Field) -> Sequence[object]:
    if type(value) is not int or field.type.tz is not None:
        return _of_iso_text(value, field)
    name = form.get("name")
    if name is not None:
        return _moments(value, _UNITS_OF_SECOND.get(str(name)))
    # Milliseconds may be truncated: `time.precision.mode=connect`.
    if _moments(value, _MILLISECONDS) != [None]:
        return []
    infinite = [None] if abs(value) in _INFINITE_MILLISECONDS else []
    return infinite + [each for units in (10**6, 10**9) for each in _moments(value, units)]


def _moments(value: int, units_of_second: int | None) -> list[str | None]:
    """The moment as ISO 8601, None beyond the years 1 to 9999; none if finer than microseconds."""
    if units_of_second is None:
        return []
    microseconds, rest = divmod(value * 10**6, units_of_second)
    if rest:
        return []
    try:
        return [(_EPOCH + timedelta(microseconds=microseconds)).isoformat()]
    except OverflowError:
        return [None]


def _of_iso_text(value: object, field: pa.Field) -> Sequence[object]:
    if not isinstance(value, str):
        return [UNUSABLE]
    if is_beyond_type(value, field.type):
        return [None]
    # Debezium appends "Z" to ISO 8601 texts of types without time zone.
    has_zone = types.is_timestamp(field.type) and field.type.tz is not None
    return [value if has_zone else value.removesuffix("Z")]


def _decimals(value: object, form: _Form, field: pa.Field) -> Sequence[object]:
    if isinstance(value, dict):  # a numeric without precision, such as one of a domain
        return _with_scale(value.get("value"), value.get("scale"))
    if not isinstance(value, str):
        return decimal_of_number(value, field)
    if is_beyond_type(value, field.type):
        return [None]
    readings: list[object] = []
    if form.get("type") != "bytes" and _DECIMAL.fullmatch(value):
        readings.append(value)
    if form.get("type") != "string":
        readings += _with_scale(value, _scale(form, field))
    return [each for each in readings if _is_exact(each, field)]


def _with_scale(unscaled: object, scale: object) -> Sequence[object]:
    content = _base64(unscaled) if isinstance(unscaled, str) else None
    if not content or len(content) > _DECIMAL_BYTES or type(scale) is not int:
        return []
    return [f"{int.from_bytes(content, 'big', signed=True)}E{-scale}"]


def _is_exact(text: object, field: pa.Field) -> bool:
    """Whether the column has the number: its precision refutes other readings."""
    try:
        exact_decimal(text, field)
    except (ValueError, ArithmeticError):
        return False
    return True


def _scale(form: _Form, field: pa.Field) -> int:
    parameters = form.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    if isinstance(scale, str) and _SCALE.fullmatch(scale):
        return int(scale)
    return int(field.type.scale)


def _contents(value: object, form: _Form, _field: pa.Field) -> Sequence[object]:
    if not isinstance(value, str):
        return []
    readings = [_base64(value.translate(_OF_URLS))]
    if form.get("type") != "bytes" and _HEXADECIMAL.fullmatch(value):
        readings.append(bytes.fromhex(value))
    if UNAVAILABLE.encode() in readings:
        return []
    return [base64.b64encode(each).decode() for each in readings if each is not None]


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


_OF_URLS = str.maketrans("-_", "+/")  # `binary.handling.mode=base64-url-safe`
_REWRITES: tuple[tuple[Callable[[pa.DataType], bool], _Rewrite], ...] = (
    (types.is_string, _texts),
    (types.is_date32, _dates),
    (types.is_timestamp, _timestamps),
    (types.is_decimal, _decimals),
    (types.is_binary, _contents),
)
