"""Request bodies: reading within limits, strict JSON, media types."""

import asyncio
import json
import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiohttp import web

from lookup_core.errors import ErrorCode, InvalidRequest, Overloaded
from service.http.limits import RESOURCES, BodyByteBudget, RequestLimits

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_INCOMPLETE_FACTOR = 4  # incomplete bodies per admitted request
_STRING = r'"(?:[^"\\]|\\.)*"'
_CONSTANT = re.compile(rf"{_STRING}|(NaN|-?Infinity)")
_BRACKET = re.compile(rf"{_STRING}|([\[{{])|([\]}}])")
_REPORTED_DEPTH = 100


@dataclass(slots=True, eq=False)
class BodyReader:
    """Reads request bodies; for one listener.

    An incomplete body holds no admission: slow ones would keep other requests out. Beyond four
    times the admitted requests, the oldest incomplete body is refused.
    """

    limits: RequestLimits
    budget: BodyByteBudget
    _incomplete: dict[asyncio.Timeout, None] = field(default_factory=dict)  # oldest first

    async def read(self, request: web.Request) -> bytes:
        """All bytes of the body; they count against the budget while they are read.

        Raises 415 for a compressed body, 413 for one that is too large, 408 for one that is too
        slow, 400 for a broken chunk, and Overloaded if the budget is used up or no more requests
        may run.
        """
        encoding = request.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise web.HTTPUnsupportedMediaType(text="compressed bodies are refused")
        if (request.content_length or 0) > self.limits.request_bytes:
            raise _too_large(self.limits)
        if request.headers.get("Expect"):
            await _continue(request)
        if request.content.is_eof():  # small bodies are complete by now
            return await self._read(request, None)
        resources = request[RESOURCES]
        resources.return_admission()
        content = await self._read_in_time(request)
        resources.admit()
        return content

    async def _read_in_time(self, request: web.Request) -> bytes:
        if len(self._incomplete) >= _INCOMPLETE_FACTOR * self.limits.connections:
            oldest = next(iter(self._incomplete))
            del self._incomplete[oldest]
            if not oldest.expired():
                oldest.reschedule(0.0)  # its task gets the TimeoutError
        time_limit = asyncio.timeout(None)
        self._incomplete[time_limit] = None
        try:
            async with time_limit:
                return await self._read(request, _Pace(self.limits, time_limit))
        except TimeoutError as error:
            if time_limit not in self._incomplete:
                detail = "too many request bodies are incomplete; send the body at once"
                raise Overloaded(ErrorCode.OVERLOADED, detail) from error
            raise web.HTTPRequestTimeout(text=_too_slow(self.limits)) from error
        finally:
            self._incomplete.pop(time_limit, None)

    async def _read(self, request: web.Request, pace: "_Pace | None") -> bytes:
        content = bytearray()
        try:
            while chunk := await request.content.readany():
                self.budget.take(len(chunk), held_bytes=len(content))
                content += chunk
                if len(content) > self.limits.request_bytes:
                    raise _too_large(self.limits)
                if pace is not None:
                    pace.on_bytes(len(chunk))
            return bytes(content)
        finally:
            self.budget.give_back(len(content))


class _Pace:
    """Moves the time limit of a body as long as enough of it arrives in each period."""

    def __init__(self, limits: RequestLimits, time_limit: asyncio.Timeout) -> None:
        self._limits = limits
        self._time_limit = time_limit
        self._end_s = asyncio.get_running_loop().time() + limits.body_deadline_s
        self._begin_period()

    def on_bytes(self, count: int) -> None:
        """Take received bytes; enough of them begin the next period."""
        self._missing_bytes -= count
        if self._missing_bytes <= 0:
            self._begin_period()

    def _begin_period(self) -> None:
        period_end_s = asyncio.get_running_loop().time() + self._limits.rate_period_s
        self._time_limit.reschedule(min(self._end_s, period_end_s))
        self._missing_bytes = self._limits.rate_bytes


async def wait_for_body(request: web.Request) -> None:
    """The `expect_handler` of every route: 100 Continue is sent later, once access is checked."""


async def _continue(request: web.Request) -> None:
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="Expect must be 100-continue")
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0  # 100 Continue is not part of the response


def _too_slow(limits: RequestLimits) -> str:
    return (
        f"the body is too slow: send at least {limits.rate_bytes} bytes, or its end, in each"
        f" {limits.rate_period_s:g} s, and all of it within {limits.body_deadline_s:g} s"
    )


def _too_large(limits: RequestLimits) -> web.HTTPRequestEntityTooLarge:
    limit = limits.request_bytes
    text = f"a body may have at most {limit} bytes (limits.request_bytes)"
    return web.HTTPRequestEntityTooLarge(limit, text=text)


class _NotJson(Exception):
    """A constant that JSON lacks; becomes an InvalidRequest with its position."""


def json_body(body: bytes) -> object:
    """The value of a JSON text; raises InvalidRequest (`bad_json`) with the position."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _bad_json("not UTF-8 at byte", error.start) from error
    try:
        return _DECODER.decode(text)
    except _NotJson as error:
        position = next(found.start() for found in _CONSTANT.finditer(text) if found[1])
        raise _bad_json(f"{error} is not JSON, at character", position) from error
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


def _deep_position(text: str) -> int:
    depth = position = 0
    for found in _BRACKET.finditer(text):
        depth += bool(found[1]) - bool(found[2])
        position = found.start()
        if depth > _REPORTED_DEPTH:
            break
    return position


def _bad_json(fault: str, position: int) -> InvalidRequest:
    return InvalidRequest(ErrorCode.BAD_JSON, f"{fault} {position}")


class MediaType(StrEnum):
    """The media types of keys and replies."""

    JSON = "application/json"
    ARROW = "application/vnd.apache.arrow.stream"


# A missing type, and the default of `curl -d`, count as JSON.
_JSON_TYPES = frozenset({"", MediaType.JSON.value, "application/x-www-form-urlencoded"})
_JSON_RANGES = frozenset({"application/*", MediaType.JSON.value})


def sent_media_type(request: web.Request) -> MediaType:
    """The media type of the body; raises 415 for others."""
    sent = _essence(request.headers.get("Content-Type", ""))
    if sent in _JSON_TYPES:
        return MediaType.JSON
    if sent == MediaType.ARROW:
        return MediaType.ARROW
    raise web.HTTPUnsupportedMediaType(text=f"a body is {MediaType.JSON} or {MediaType.ARROW}")


def wanted_media_type(request: web.Request, *, default: MediaType) -> MediaType:
    """The media type that the client accepts, `default` if it accepts it; else raises 406."""
    ranges = set(map(_essence, request.headers.get("Accept", "*/*").split(",")))
    if "*/*" in ranges or default.value in ranges:
        return default
    if MediaType.ARROW in ranges:
        return MediaType.ARROW
    if ranges & _JSON_RANGES:
        return MediaType.JSON
    raise web.HTTPNotAcceptable(text=f"replies are {MediaType.JSON} or {MediaType.ARROW}")


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
