"""RFC 9457 problems: the reply to a request that failed, as `application/problem+json`.

Failures of single keys are not problems; they are outcomes in a 200.
"""

import math
from enum import StrEnum
from http import HTTPStatus
from typing import Literal, Self

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from lookup_core.errors import RETRY_AFTER_S, ErrorCode, Overloaded, SidelookError

CONTENT_TYPE = "application/problem+json"
MAX_DETAIL = 500  # characters


class HttpCode(StrEnum):
    """Codes of failures that only HTTP has; the others are `ErrorCode`s."""

    status: int
    meaning: str

    def __new__(cls, value: str, status: int, meaning: str) -> Self:
        """Create a member with its status and its meaning, a clause."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.status = status
        member.meaning = meaning
        return member

    MISSING = "missing", 404, "the dimension has no row for the key"
    NOT_FOUND = "not_found", 404, "the path does not exist"
    BAD_HTTP = "bad_http", 400, "the request is not valid HTTP"
    ORIGIN_REFUSED = "origin_refused", 403, "the request comes from a web page of another site"
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, "the path has another method; see `Allow`"
    NOT_ACCEPTABLE = "not_acceptable", 406, "`Accept` admits neither JSON nor an Arrow stream"
    REQUEST_TIMEOUT = "request_timeout", 408, "the body arrives too slowly"
    BODY_TOO_LARGE = "body_too_large", 413, "the body exceeds `limits.request_bytes`"
    UNSUPPORTED_MEDIA_TYPE = (
        "unsupported_media_type",
        415,
        "the body has a refused type or encoding",
    )
    EXPECTATION_FAILED = "expectation_failed", 417, "`Expect` has another value than `100-continue`"
    MISDIRECTED = "misdirected", 421, "`Host` is not a name of this listener"


_CODES: dict[int, ErrorCode | HttpCode] = {
    401: ErrorCode.UNAUTHORIZED,
    **{each.status: each for each in HttpCode if each is not HttpCode.MISSING},
}
_CODES_BY_STATUS: dict[int, tuple[ErrorCode, ...]] = {
    400: (ErrorCode.TYPE, ErrorCode.INVALID_TEXT, ErrorCode.BAD_JSON, ErrorCode.BAD_ARROW),
    401: (ErrorCode.UNAUTHORIZED,),
    404: (ErrorCode.UNKNOWN_DIMENSION,),
    409: (ErrorCode.AMBIGUOUS,),
    413: (ErrorCode.KEY_TOO_LARGE, ErrorCode.TOO_MANY_KEYS, ErrorCode.ANSWER_TOO_LARGE),
    422: (
        *(ErrorCode.BAD_REQUEST, ErrorCode.UNKNOWN_COLUMN),
        *(ErrorCode.KEY_TYPE, ErrorCode.KEY_REJECTED),
    ),
    502: (
        *(ErrorCode.BACKEND_REJECTED, ErrorCode.SCHEMA_CHANGED),
        *(ErrorCode.FORBIDDEN, ErrorCode.VALUE_REJECTED, ErrorCode.ROW_TOO_LARGE),
    ),
    503: (
        *(ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.CONNECTION_LOST, ErrorCode.BACKEND_AUTH),
        *(ErrorCode.TABLE_UNAVAILABLE, ErrorCode.OVERLOADED, ErrorCode.DRAINING),
    ),
    504: (ErrorCode.TIMEOUT,),
}
_STATUSES = {code: status for status, codes in _CODES_BY_STATUS.items() for code in codes}
_ALL_CODES = sorted(code.value for code in (*ErrorCode, *HttpCode))


class Problem(BaseModel):
    """Why a request failed."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_serialization_defaults_required=True
    )

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    code: str = Field(json_schema_extra={"enum": _ALL_CODES})
    retryable: bool
    retry_after_s: float | None = Field(default=None, exclude=True)  # set with every 503

    @classmethod
    def of(
        cls,
        status: int,
        code: ErrorCode | HttpCode,
        detail: str,
        *,
        retry_after_s: float = RETRY_AFTER_S,
    ) -> Self:
        """A problem; a long `detail` is cut, and lone surrogates are escaped.

        Only a 503 has `retry_after_s`.
        """
        # The detail may quote the request: UTF-8 has no lone surrogates.
        shortened = detail if len(detail) <= MAX_DETAIL else f"{detail[:MAX_DETAIL]}…"
        return cls(
            title=HTTPStatus(status).phrase,
            status=status,
            detail=shortened.encode("utf-8", "backslashreplace").decode(),
            code=code.value,
            retryable=isinstance(code, ErrorCode) and code.is_retryable,
            retry_after_s=retry_after_s if status == 503 else None,
        )

    def response(self) -> web.Response:
        """The response, with `Retry-After` in whole seconds if a retry may help."""
        response = web.Response(
            body=self.model_dump_json().encode(), status=self.status, content_type=CONTENT_TYPE
        )
        if self.retry_after_s is not None:
            response.headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        return response


def problem_of_code(code: ErrorCode, detail: str) -> Problem:
    """The problem of an error code; codes without a status of their own are a 500."""
    return Problem.of(_STATUSES.get(code, 500), code, detail)


def problem_of_error(error: SidelookError) -> Problem:
    """The problem of one of Sidelook's errors; an `Overloaded` brings its own delay."""
    if isinstance(error, Overloaded):
        return Problem.of(503, error.code, error.detail, retry_after_s=error.retry_after_s)
    problem = problem_of_code(error.code, error.detail)
    return problem.model_copy(update={"retryable": error.is_retryable})


def problem_of_http(error: web.HTTPException) -> Problem:
    """The problem of an aiohttp error."""
    code = _CODES.get(error.status, HttpCode.BAD_HTTP)
    detail = error.text if error.text != f"{error.status}: {error.reason}" else error.reason
    return Problem.of(error.status, code, detail or error.reason)
