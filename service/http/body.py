"""Request bodies: read within limits, strict JSON, media types."""

import asyncio
import json
import math
import re
from enum import StrEnum
from typing import Any

from aiohttp import web

from lookup_core.errors import ErrorCode, InvalidRequest
from service.http.limits import BodyByteBudget, Limits

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def body(request: web.Request, limits: Limits, room: BodyByteBudget) -> bytes:
    """All bytes of the body, which hold room until they are read.

    Raises 415 for a compressed one, 413 for one that is or turns out too large, and 408 for one
    that is not whole within the deadline, be it slow or broken off; Overloaded without room for it.
    """
    _check_headers(request, limits)
    if request.headers.get("Expect"):
        await _invite(request)
    if request.content.is_eof():  # it is here, as small ones are as a rule: nothing to wait for
        return await _read(request, limits, room)
    try:
        async with asyncio.timeout(limits.body_deadline_s):
            return await _read(request, limits, room)
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(
            text=f"the body was not whole within {limits.body_deadline_s:g} s"
        ) from error


async def wait_for_body(request: web.Request) -> None:
    """Every route's `expect_handler`: nobody is invited before token and size were looked at."""


async def _read(request: web.Request, limits: Limits, room: BodyByteBudget) -> bytes:
    content = bytearray()
    try:
        while chunk := await request.content.readany():
            room.take(len(chunk), held_bytes=len(content))
            content += chunk
            if len(content) > limits.request_bytes:
                raise _too_large(limits)
        return bytes(content)
    finally:
        room.give_back(len(content))


def _check_headers(request: web.Request, limits: Limits) -> None:
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise web.HTTPUnsupportedMediaType(text="compressed bodies are refused")
    if (request.content_length or 0) > limits.request_bytes:
        raise _too_large(limits)


async def _invite(request: web.Request) -> None:
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="only 100-continue can be expected")
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0  # the response itself has not begun


def _too_large(limits: Limits) -> web.HTTPRequestEntityTooLarge:
    limit = limits.request_bytes
    return web.HTTPRequestEntityTooLarge(limit, text=f"a body may have {limit} bytes")


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


class MediaType(StrEnum):
    """The two forms of keys and answers."""

    JSON = "application/json"
    ARROW = "application/vnd.apache.arrow.stream"


# A body without a type, and what `curl -d` calls every body, are taken for JSON.
_JSON_TYPES = frozenset({"", MediaType.JSON.value, "application/x-www-form-urlencoded"})
_JSON_RANGES = frozenset({"application/*", MediaType.JSON.value})


def sent_media_type(request: web.Request) -> MediaType:
    """What the body is; raises 415 for anything else."""
    sent = _essence(request.headers.get("Content-Type", ""))
    if sent in _JSON_TYPES:
        return MediaType.JSON
    if sent == MediaType.ARROW:
        return MediaType.ARROW
    raise web.HTTPUnsupportedMediaType(text=f"a body is {MediaType.JSON} or {MediaType.ARROW}")


def wanted_media_type(request: web.Request, *, default: MediaType) -> MediaType:
    """What the caller accepts; `default` if it does not care. Raises 406 if it is neither."""
    ranges = {_essence(each) for each in request.headers.get("Accept", "*/*").split(",")}
    if "*/*" in ranges or default.value in ranges:
        return default
    if MediaType.ARROW in ranges:
        return MediaType.ARROW
    if ranges & _JSON_RANGES:
        return MediaType.JSON
    raise web.HTTPNotAcceptable(text=f"answers are {MediaType.JSON} or {MediaType.ARROW}")


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
