"""Every code has one status, and every problem has the same members."""

import orjson
import pytest
from aiohttp import web

from lookup_core.errors import BackendError, ErrorCode, InvalidRequest, Overloaded
from service.http.problem import (
    HttpCode,
    Problem,
    problem_of_code,
    problem_of_error,
    problem_of_http,
)

OF_STREAMS = {"bad_frame", "unsupported_version", "credit_violation", "seq_gap", "unknown_channel"}


@pytest.mark.parametrize("code", [*ErrorCode])
def test_every_code_has_its_status(code: ErrorCode) -> None:
    """No code of ours ends as an internal error, but that one and those of streams."""
    status = problem_of_code(code, "why").status

    assert (status == 500) == (code is ErrorCode.INTERNAL or code.value in OF_STREAMS)


@pytest.mark.parametrize("code", [*ErrorCode])
def test_unavailable_means_come_again(code: ErrorCode) -> None:
    """A 503 always says when to come again, and nothing else does."""
    problem = problem_of_code(code, "why")

    assert (problem.retry_after_s is not None) == (problem.status == 503)


def test_response_has_all_members() -> None:
    """The body is what RFC 9457 wants, with code and retryable."""
    response = Problem(404, HttpCode.MISSING, "no such row", is_retryable=False).response()

    assert response.content_type == "application/problem+json"
    assert orjson.loads(response.body) == {  # type: ignore[arg-type]  # bytes, as we made it
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "no such row",
        "code": "missing",
        "retryable": False,
    }


def test_overload_tells_its_own_time() -> None:
    """Where the engine knows when to come again, that is told, in whole seconds."""
    error = Overloaded(ErrorCode.OVERLOADED, "full", retry_after_s=2.1)

    assert problem_of_error(error).response().headers["Retry-After"] == "3"


def test_retryable_is_the_codes_own() -> None:
    """A caller learns from the code whether another try may help."""
    away = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "away")
    wrong = InvalidRequest(ErrorCode.BAD_JSON, "wrong")

    assert [problem_of_error(each).is_retryable for each in (away, wrong)] == [True, False]


def test_detail_is_always_printable() -> None:
    """Whatever a caller sent, its echo is short and can be encoded."""
    problem = problem_of_code(ErrorCode.BAD_REQUEST, "\ud800" + "a" * 10_000)

    assert problem.detail.startswith("\\ud800aaa")
    assert len(problem.detail) < 600


def test_errors_of_http_keep_their_status() -> None:
    """What aiohttp raises becomes a problem with a code of its own."""
    refused = problem_of_http(web.HTTPUnsupportedMediaType(text="no gzip"))
    unknown = problem_of_http(web.HTTPGone())

    assert (refused.status, refused.code, refused.detail) == (
        415,
        HttpCode.UNSUPPORTED_MEDIA_TYPE,
        "no gzip",
    )
    assert (unknown.status, unknown.code, unknown.detail) == (410, HttpCode.BAD_HTTP, "Gone")
