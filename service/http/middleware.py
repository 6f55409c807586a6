"""Request middleware: memory admission, access, errors as RFC 9457 problems, delivery."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from lookup_core.errors import ErrorCode, Overloaded, SidelookError
from service.http.body import MalformedBodyError
from service.http.delivery import Delivery
from service.http.limits import (
    ADMISSION,
    ANSWER_RESERVATION,
    Admission,
    AdmissionLimit,
    AnswerByteBudget,
    AnswerReservation,
)
from service.http.problem import problem_of_code, problem_of_error, problem_of_http
from service.http.readiness import Readiness
from service.http.security import Access, Audience

NOT_FOUND = web.AppKey("not_found", str)  # the detail for unknown paths of a listener
_CLOSING_STATUSES = frozenset({408, 413})
_KEPT_HEADERS = ("Allow", "WWW-Authenticate")


@dataclass(slots=True)
class RequestMiddleware:
    """All steps around a handler in one middleware, because each one costs every request time."""

    audiences: Mapping[web.AbstractRoute, Audience]
    readiness: Readiness
    admission_limit: AdmissionLimit  # of this listener
    answer_budget: AnswerByteBudget
    access: Access
    delivery: Delivery

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Admit and authorize the request, run its handler, and send the response."""
        # An unknown path is treated as one for readers.
        audience = self.audiences.get(request.match_info.route, Audience.READER)
        admission = Admission(self.admission_limit)
        try:
            self._admit(audience, admission)
        except Overloaded as error:  # before any other work for the request
            refusal = problem_of_error(error).response()
            refusal.force_close()
            return refusal
        response: web.StreamResponse
        request[ADMISSION] = admission
        reservation = request[ANSWER_RESERVATION] = AnswerReservation(self.answer_budget)
        try:
            try:
                self.access.check(request, audience)
                response = await handler(request)
            except Exception as error:  # noqa: BLE001  # border of the request's task
                response = _problem_response(request, error)
            await self.delivery.send(request, response)
            return response
        finally:
            reservation.hold(0)  # not earlier: bytes being sent still use memory
            admission.give_back()

    def _admit(self, audience: Audience, admission: Admission) -> None:
        if audience is Audience.PROBE:
            return
        if audience is Audience.CALLER:
            self.readiness.check_not_draining()
            self.readiness.check_has_memory()
        admission.take()


def _problem_response(request: web.Request, error: Exception) -> web.Response:
    """The problem for an error that is being handled; a defect is logged, and not disclosed."""
    response = _response(request, error)
    is_lost = isinstance(error, MalformedBodyError) or response.status in _CLOSING_STATUSES
    if is_lost or request.can_read_body:
        response.force_close()  # the rest of a refused body is not read
    return response


def _response(request: web.Request, error: Exception) -> web.Response:
    match error:
        case web.HTTPNotFound():  # raised by the router only
            return problem_of_http(web.HTTPNotFound(text=request.app[NOT_FOUND])).response()
        case web.HTTPException():
            response = problem_of_http(error).response()
            kept = {name: error.headers[name] for name in _KEPT_HEADERS if name in error.headers}
            response.headers.update(kept)
            return response
        case SidelookError():
            return problem_of_error(error).response()
        case ConnectionError():
            # The client cannot read it, but aiohttp would log an exception as a defect.
            return problem_of_code(ErrorCode.BAD_REQUEST, "the client disconnected").response()
        case _:  # a defect fails this request only
            structlog.get_logger().exception("http.request_failed", code=ErrorCode.INTERNAL.value)
            return problem_of_code(ErrorCode.INTERNAL, "internal error; see the log").response()
