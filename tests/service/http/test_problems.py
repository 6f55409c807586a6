"""Whatever a handler does, the caller gets a problem and the service goes on."""

from dataclasses import replace

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from lookup_core.errors import ErrorCode, Overloaded
from tests.service.http.serving import Setting, served


class Fails:
    """A handler that raises what it was given."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def handle(self, _request: web.Request) -> web.StreamResponse:
        """Raise it."""
        raise self._error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Overloaded(ErrorCode.OVERLOADED, "full", retry_after_s=1.0), 503, "overloaded"),
        (web.HTTPNotAcceptable(), 406, "not_acceptable"),
        (KeyError("4711"), 500, "internal"),
        (RecursionError(), 500, "internal"),
    ],
)
async def test_errors_become_problems(error: Exception, status: int, code: str) -> None:
    """Errors of ours, of HTTP and of nobody all leave in the same form."""
    async with served(_failing(error)) as service, service.unix.get("/v1/stream") as response:
        problem = await response.json()

    assert (response.status, problem["status"], problem["code"]) == (status, status, code)
    assert response.content_type == "application/problem+json"


async def test_bugs_are_logged_not_told() -> None:
    """The caller of a bug learns nothing of it, the log where it is."""
    with capture_logs() as logs:
        async with (
            served(_failing(KeyError("4711"))) as service,
            service.unix.get("/v1/stream") as response,
        ):
            body = await response.text()

    failed = [event for event in logs if event["event"] == "http.request_failed"]
    assert [(event["code"], event["exc_info"]) for event in failed] == [("internal", True)]
    assert "4711" not in body


async def test_callers_who_left_are_no_bug() -> None:
    """A connection that is lost in the middle is not logged as a failure of ours."""
    with capture_logs() as logs:
        async with (
            served(_failing(ConnectionResetError())) as service,
            service.unix.get("/v1/stream") as response,
        ):
            await response.read()

    assert [event for event in logs if event["event"] == "http.request_failed"] == []


def _failing(error: Exception) -> Setting:
    handler = Fails(error).handle
    return Setting(change_parts=lambda parts: replace(parts, stream=handler))
