"""JSON as RFC 8259 has it, and no more: what Python's parser lets through besides is refused.

Python's own parser rather than a faster one, because it keeps integers of any size exact and tells
repeated names; it takes some 10 ms for 100,000 keys.
"""

import json
import math
import re
from typing import Any

from lookup_core.errors import ErrorCode, InvalidRequest

_STRING = r'"(?:[^"\\]|\\.)*"'
_CONSTANT = re.compile(rf"{_STRING}|(NaN|-?Infinity)")
_BRACKET = re.compile(rf"{_STRING}|([\[{{])|([\]}}])")
_TOLD_DEPTH = 100


class _NotJson(Exception):
    """Never leaves this module: it becomes an InvalidRequest that knows the place."""


def json_body(body: bytes) -> object:
    """The value of a JSON text; raises InvalidRequest (`bad_json`) saying where it is wrong."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _bad_json("not UTF-8 at byte", error.start) from error
    try:
        return _DECODER.decode(text)
    except _NotJson as error:
        raise _bad_json(f"{error} is not JSON, at character", _constant_position(text)) from error
    except json.JSONDecodeError as error:
        raise _bad_json(f"the body is not JSON: {error.msg} at character", error.pos) from error
    except RecursionError as error:
        raise _bad_json("nested too deeply at character", _deep_position(text)) from error
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidRequest(ErrorCode.BAD_JSON, "a number is out of range") from error


def _refuse_constant(name: str) -> None:
    raise _NotJson(name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise InvalidRequest(ErrorCode.BAD_JSON, "an object has the same name twice")
    return members


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise InvalidRequest(ErrorCode.BAD_JSON, "a number is out of range")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
)


def _constant_position(text: str) -> int:
    return next(found.start() for found in _CONSTANT.finditer(text) if found[1])


def _deep_position(text: str) -> int:
    depth = position = 0
    for found in _BRACKET.finditer(text):
        depth += bool(found[1]) - bool(found[2])
        position = found.start()
        if depth > _TOLD_DEPTH:
            break
    return position


def _bad_json(fault: str, position: int) -> InvalidRequest:
    return InvalidRequest(ErrorCode.BAD_JSON, f"{fault} {position}")
