"""RFC 9457 problems: what a whole request failed with, as `application/problem+json`.

Failures of single keys are not problems; they are outcomes in a 200.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

import orjson
from aiohttp import web

from lookup_core.errors import ErrorCode, Overloaded, SidelookError

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_S = 1.0  # where nobody knows better
MAX_DETAIL = 500


class HttpCode(StrEnum):
    """Codes of failures that only HTTP knows; the others are `ErrorCode`s."""

    MISSING = "missing"
    NOT_FOUND = "not_found"
    BAD_HTTP = "bad_http"
    ORIGIN_REFUSED = "origin_refused"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_ACCEPTABLE = "not_acceptable"
    REQUEST_TIMEOUT = "request_timeout"
    BODY_TOO_LARGE = "body_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    EXPECTATION_FAILED = "expectation_failed"
    MISDIRECTED = "misdirected"


_CODES: dict[int, ErrorCode | HttpCode] = {
    400: HttpCode.BAD_HTTP,
    401: ErrorCode.UNAUTHORIZED,
    403: HttpCode.ORIGIN_REFUSED,
    404: HttpCode.NOT_FOUND,
    405: HttpCode.METHOD_NOT_ALLOWED,
    406: HttpCode.NOT_ACCEPTABLE,
    408: HttpCode.REQUEST_TIMEOUT,
    413: HttpCode.BODY_TOO_LARGE,
    415: HttpCode.UNSUPPORTED_MEDIA_TYPE,
    417: HttpCode.EXPECTATION_FAILED,
    421: HttpCode.MISDIRECTED,
}
_STATUSES: dict[ErrorCode, int] = {
    ErrorCode.TYPE: 400,
    ErrorCode.INVALID_TEXT: 400,
    ErrorCode.BAD_JSON: 400,
    ErrorCode.BAD_ARROW: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.UNKNOWN_DIMENSION: 404,
    ErrorCode.KEY_TOO_LARGE: 413,
    ErrorCode.AMBIGUOUS: 409,
    ErrorCode.TOO_MANY_KEYS: 413,
    ErrorCode.ANSWER_TOO_LARGE: 413,
    ErrorCode.BAD_REQUEST: 422,
    ErrorCode.UNKNOWN_COLUMN: 422,
    ErrorCode.KEY_TYPE: 422,
    ErrorCode.KEY_REJECTED: 422,
    ErrorCode.BACKEND_REJECTED: 502,
    ErrorCode.SCHEMA_CHANGED: 502,
    ErrorCode.FORBIDDEN: 502,
    ErrorCode.BACKEND_UNAVAILABLE: 503,
    ErrorCode.CONNECTION_LOST: 503,
    ErrorCode.BACKEND_AUTH: 503,
    ErrorCode.TABLE_UNAVAILABLE: 503,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.DRAINING: 503,
    ErrorCode.TIMEOUT: 504,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request failed; `retry_after_s` stands with every 429 and 503."""

    status: int
    code: ErrorCode | HttpCode
    detail: str
    is_retryable: bool
    retry_after_s: float | None = None

    def response(self) -> web.Response:
        """The answer to the caller."""
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code.value,
            "retryable": self.is_retryable,
        }
        response = web.Response(
            body=orjson.dumps(body), status=self.status, content_type=CONTENT_TYPE
        )
        if self.retry_after_s is not None:
            response.headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        return response


def problem_of_code(code: ErrorCode, detail: str) -> Problem:
    """The problem that an error code stands for."""
    status = _STATUSES.get(code, 500)
    return Problem(
        status=status,
        code=code,
        detail=_printable(detail),
        is_retryable=code.is_retryable,
        retry_after_s=RETRY_AFTER_S if status == 503 else None,
    )


def problem_of_error(error: SidelookError) -> Problem:
    """The problem that one of our errors stands for."""
    problem = problem_of_code(error.code, error.detail)
    if not isinstance(error, Overloaded):
        return problem
    return Problem(503, problem.code, problem.detail, problem.is_retryable, error.retry_after_s)


def problem_of_http(error: web.HTTPException) -> Problem:
    """The problem that an error of aiohttp's stands for."""
    code = _CODES.get(error.status, HttpCode.BAD_HTTP)
    detail = error.text if error.text != f"{error.status}: {error.reason}" else error.reason
    return Problem(error.status, code, _printable(detail or error.reason), is_retryable=False)


def _printable(detail: str) -> str:
    # What the caller sent may stand in it: bounded, and without lone surrogates, which UTF-8 lacks.
    shortened = detail if len(detail) <= MAX_DETAIL else f"{detail[:MAX_DETAIL]}…"
    return shortened.encode("utf-8", "backslashreplace").decode()
