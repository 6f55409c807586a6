"""Debezium encodings of decimals, dates, times and bytes, converted to the forms of `json_keys`."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.gathered_changes import Forms
from lookup_core.changelog.json_column import UNUSABLE

# The default placeholder for large values (TOAST) that have not changed: PostgreSQL does not send
# them. Another `unavailable.value.placeholder` is not recognised.
_UNAVAILABLE = "__debezium_unavailable_value"
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_SCALE = re.compile(r"[0-9]{1,2}")
_HEXADECIMAL = re.compile(r"([0-9a-f]{2})+")
_DECIMAL_BYTES = 16  # enough for 38 digits
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # for columns without time zone
_UNITS_OF_SECOND = {  # {schema name: units per second}; other schemas may truncate
    "io.debezium.time.Timestamp": 10**3,
    "io.debezium.time.MicroTimestamp": 10**6,
    "io.debezium.time.NanoTimestamp": 10**9,
}

_Form = Mapping[str, Any]  # a field of a Kafka Connect schema
_Rewrite = Callable[[object, _Form, pa.Field], object]
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
    return value if rewrite is None else rewrite(value, form, field)


def _text(value: object, _form: _Form, _field: pa.Field) -> object:
    return UNUSABLE if value == _UNAVAILABLE else value


def _date(value: object, _form: _Form, _field: pa.Field) -> object:
    if type(value) is not int:
        return _without_zone(value)
    try:
        return (_EPOCH + timedelta(days=value)).date().isoformat()
    except OverflowError:  # beyond the years 1 to 9999, or infinite
        return UNUSABLE


def _timestamp(value: object, form: _Form, field: pa.Field) -> object:
    if field.type.tz is not None:
        return value
    if type(value) is not int:
        return _without_zone(value)
    units = _UNITS_OF_SECOND.get(str(form.get("name")))
    microseconds, rest = divmod(value * 10**6, units) if units else (0, 1)
    if rest:
        return UNUSABLE
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:  # beyond the years 1 to 9999, or infinite
        return UNUSABLE


def _without_zone(value: object) -> object:
    # Debezium appends "Z" to ISO 8601 texts of types without time zone.
    return value.removesuffix("Z") if isinstance(value, str) else UNUSABLE


def _decimal(value: object, form: _Form, field: pa.Field) -> object:
    if not isinstance(value, str):
        return UNUSABLE
    readings = []
    if form.get("type") != "bytes" and _DECIMAL.fullmatch(value):
        readings.append(value)
    unscaled = _base64(value)
    if form.get("type") != "string" and unscaled and len(unscaled) <= _DECIMAL_BYTES:
        number = int.from_bytes(unscaled, "big", signed=True)
        readings.append(f"{number}E-{_scale(form, field)}")
    return readings[0] if len(readings) == 1 else UNUSABLE


def _scale(form: _Form, field: pa.Field) -> int:
    parameters = form.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    if isinstance(scale, str) and _SCALE.fullmatch(scale):
        return int(scale)
    return int(field.type.scale)


def _bytes(value: object, form: _Form, _field: pa.Field) -> object:
    if not isinstance(value, str):
        return UNUSABLE
    readings = [_base64(value.translate(_OF_URLS))]
    if form.get("type") != "bytes" and _HEXADECIMAL.fullmatch(value):
        readings.append(bytes.fromhex(value))
    found = [reading for reading in readings if reading is not None]
    if len(found) != 1 or found[0] == _UNAVAILABLE.encode():
        return UNUSABLE
    return base64.b64encode(found[0]).decode()


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


_OF_URLS = str.maketrans("-_", "+/")  # `binary.handling.mode=base64-url-safe`
_REWRITES: tuple[tuple[Callable[[pa.DataType], bool], _Rewrite], ...] = (
    (types.is_string, _text),
    (types.is_date32, _date),
    (types.is_timestamp, _timestamp),
    (types.is_decimal, _decimal),
    (types.is_binary, _bytes),
)
