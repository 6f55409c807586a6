"""Request middleware: traces, admission, access, errors as RFC 9457 problems, delivery."""

from dataclasses import dataclass

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import istr

from lookup_core.errors import ErrorCode, Overloaded, SidelookError
from lookup_core.protocol.frames import TraceParent
from service.engine.tracer import CallerSpan, TracedRequest, Tracer
from service.http.delivery import ResponseDelivery
from service.http.limits import (
    RESOURCES,
    AdmissionLimit,
    AnswerByteBudget,
    RequestResources,
)
from service.http.problem import problem_of_code, problem_of_error, problem_of_http
from service.http.readiness import Readiness
from service.http.routes.table import Route
from service.http.security import Access, Audience

_SPAN = web.RequestKey[CallerSpan]("request_span", CallerSpan)
_CLOSING_STATUSES = frozenset({408, 413})
_KEPT_HEADERS = ("Allow", "WWW-Authenticate")
_TRACEPARENT, _TRACESTATE = istr("traceparent"), istr("tracestate")


@dataclass(frozen=True, slots=True)
class RequestMiddleware:
    """All steps around the handlers of one listener.

    aiohttp would pass each request through a chain of middlewares and a search for its route.
    """

    readiness: Readiness
    delivery: ResponseDelivery
    admission_limit: AdmissionLimit  # the listener's own
    answer_budget: AnswerByteBudget
    access: Access
    tracer: Tracer
    dimensions: frozenset[str]  # the configured ones; others are not recorded in spans

    def around(self, handler: Handler, audience: Audience) -> Handler:
        """Admit and authorize each request, run the handler, and send the response."""

        async def handle(request: web.Request) -> web.StreamResponse:
            span = request.get(_SPAN) if self.tracer.is_on else None
            resources = RequestResources(self.admission_limit, self.answer_budget, span)
            try:
                self._admit(audience, resources)
            except Overloaded as error:  # before any other work for the request
                refusal = problem_of_error(error).response()
                refusal.force_close()
                await self.delivery.send(request, refusal)
                return refusal
            request[RESOURCES] = resources
            response: web.StreamResponse
            try:
                try:
                    self.access.check(request, audience)
                    response = await handler(request)
                except Exception as error:  # noqa: BLE001  # border of the request's task
                    response = _problem_response(request, error)
                await self.delivery.send(request, response)
                return response
            finally:
                resources.release()  # not earlier: bytes being sent still use memory

        return handle

    def around_route(self, handler: Handler, route: Route) -> Handler:
        """As `around`; if it is traced, in a span from before the admission to the last byte."""
        untraced = self.around(handler, route.audience)
        if not (route.is_traced and self.tracer.is_on):
            return untraced

        async def handle(request: web.Request) -> web.StreamResponse:
            span = self._begun_span(request, route)
            if span is None:
                return await untraced(request)
            request[_SPAN] = span
            status = None
            try:
                response = await untraced(request)
                status = response.status
                return response
            finally:  # without a status, the client disconnected and the handler was cancelled
                span.end(status=status, is_left=status is None)

        return handle

    def _admit(self, audience: Audience, resources: RequestResources) -> None:
        if audience is Audience.PROBE:
            return
        if audience is Audience.CALLER:
            self.readiness.check_not_draining()
            self.readiness.check_has_memory()
        resources.admit()

    def _begun_span(self, request: web.Request, route: Route) -> CallerSpan | None:
        name = request.match_info.get("name", "")
        dimension = name if name in self.dimensions else None
        traced = TracedRequest(request.method, route.path, dimension)
        return self.tracer.begin_request(traced, _trace_parent(request))


def _trace_parent(request: web.Request) -> TraceParent | None:
    """The trace context of the request; None without exactly one `traceparent`."""
    headers = request.headers.getall(_TRACEPARENT, ())
    if len(headers) != 1:
        return None
    return TraceParent(headers[0], ",".join(request.headers.getall(_TRACESTATE, ())))


def _problem_response(request: web.Request, error: Exception) -> web.Response:
    """The problem for an error that is being handled; a defect is logged, and not disclosed."""
    response = _response(error)
    if request.can_read_body or response.status in _CLOSING_STATUSES:
        response.force_close()  # the rest of a refused body is not read
    return response


def _response(error: Exception) -> web.Response:
    match error:
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
