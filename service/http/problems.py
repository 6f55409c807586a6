"""The border of every request: whatever a handler raises leaves as an RFC 9457 problem.

Not for failures of single keys, which never raise.
"""

import structlog
from aiohttp import web

from lookup_core.errors import ErrorCode, SidelookError
from service.http.problem import problem_of_code, problem_of_error, problem_of_http

NOT_FOUND = web.AppKey("not_found", str)  # what a listener says of paths that it does not have
CLOSING_STATUSES = frozenset({408, 413})
KEPT_HEADERS = ("Allow", "WWW-Authenticate")


def problem_response(request: web.Request, error: Exception) -> web.Response:
    """The problem that the handler ran into, while it is handled; a bug is logged, and not told."""
    response = _response(_told(request, error))
    if request.can_read_body or response.status in CLOSING_STATUSES:
        response.force_close()  # the rest of a refused body is not worth reading
    return response


def _told(request: web.Request, error: Exception) -> Exception:
    # Nobody but the router raises it, without a word of what there is instead.
    return (
        web.HTTPNotFound(text=request.app[NOT_FOUND])
        if isinstance(error, web.HTTPNotFound)
        else error
    )


def _response(error: Exception) -> web.Response:
    match error:
        case web.HTTPException():
            response = problem_of_http(error).response()
            kept = {name: error.headers[name] for name in KEPT_HEADERS if name in error.headers}
            response.headers.update(kept)
            return response
        case SidelookError():
            return problem_of_error(error).response()
        case ConnectionError():
            # Nobody reads it; but an exception here would be logged as ours.
            return problem_of_code(ErrorCode.BAD_REQUEST, "the caller left").response()
        case _:  # a bug fails this request only
            structlog.get_logger().exception("http.request_failed", code=ErrorCode.INTERNAL.value)
            return problem_of_code(ErrorCode.INTERNAL, "a bug; the log has it").response()
