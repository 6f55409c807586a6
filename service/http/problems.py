"""The border of every request: whatever a handler raises leaves as an RFC 9457 problem.

Not for failures of single keys, which never raise.
"""

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from lookup_core.errors import ErrorCode, SidelookError
from service.http.problem import Problem, problem_of_code, problem_of_error, problem_of_http

CLOSING_STATUSES = frozenset({408, 413})
KEPT_HEADERS = ("Allow", "WWW-Authenticate")


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with the handler's response, or with the problem that it ran into."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        response = problem_of_http(error).response()
        kept = {name: error.headers[name] for name in KEPT_HEADERS if name in error.headers}
        response.headers.update(kept)
    except SidelookError as error:
        response = problem_of_error(error).response()
    except ConnectionError:
        response = _caller_left().response()
    except Exception:  # noqa: BLE001  # border of the request's task: a bug fails this one only
        structlog.get_logger().exception("http.request_failed", code=ErrorCode.INTERNAL.value)
        response = problem_of_code(ErrorCode.INTERNAL, "a bug; the log has it").response()
    if request.can_read_body or response.status in CLOSING_STATUSES:
        response.force_close()  # the rest of a refused body is not worth reading
    return response


def _caller_left() -> Problem:
    # Nobody reads it; but an exception here would be logged as ours.
    return problem_of_code(ErrorCode.BAD_REQUEST, "the caller left")
