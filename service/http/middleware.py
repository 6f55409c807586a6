"""Request middleware: admission, access, errors as RFC 9457 problems, delivery."""

from dataclasses import dataclass

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from lookup_core.errors import ErrorCode, Overloaded, SidelookError
from service.http.delivery import Delivery
from service.http.limits import ANSWER_HOLD, AnswerByteBudget, AnswerReservation
from service.http.problem import problem_of_code, problem_of_error, problem_of_http
from service.http.readiness import Readiness
from service.http.route import Audience, Audiences, audience_of
from service.http.security import Security

RETRY_AFTER_S = 1.0


class Admission:
    """The slots of one listener; one is taken until the response is sent or the stream closed.

    Probes take none.
    """

    def __init__(self, readiness: Readiness, *, limit: int) -> None:
        self._readiness = readiness
        self._limit = limit
        self._under_way = 0

    def enter(self, audience: Audience) -> None:
        """Take a slot for a request, or raise Overloaded; who entered leaves."""
        if audience is Audience.PROBE:
            return
        if audience is Audience.CALLER:
            self._readiness.check_not_draining()
            self._readiness.check_has_memory()
        if self._under_way >= self._limit:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{self._limit} requests are under way, which is the limit",
                retry_after_s=RETRY_AFTER_S,
            )
        self._under_way += 1

    def leave(self, audience: Audience) -> None:
        """Give the slot back."""
        if audience is not Audience.PROBE:
            self._under_way -= 1


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


@dataclass(frozen=True, slots=True)
class RequestMiddleware:
    """The one middleware of an application: each of several would cost every request anew."""

    audiences: Audiences
    admission: Admission
    answer_budget: AnswerByteBudget
    security: Security
    delivery: Delivery

    @web.middleware
    async def lead(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Take the request to its handler, and what comes of it to the caller."""
        audience = audience_of(request, self.audiences)
        try:
            self.admission.enter(audience)
        except Overloaded as error:  # before anything of the request is looked at
            return _refusal(error)
        response: web.StreamResponse
        hold = request[ANSWER_HOLD] = AnswerReservation(self.answer_budget)
        try:
            try:
                self.security.check(request, audience)
                response = await handler(request)
            except Exception as error:  # noqa: BLE001  # border of the request's task
                response = problem_response(request, error)
            await self.delivery.send(request, response)
            return response
        finally:
            hold.only(0)  # only now: what is being sent is held
            self.admission.leave(audience)


def _refusal(error: Overloaded) -> web.Response:
    response = problem_of_error(error).response()
    response.force_close()
    return response
