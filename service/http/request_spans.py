"""Tracing middleware: one span per row request, from before its admission to its last byte.

It is installed only if tracing is on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import numpy as np
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import istr

from lookup_core.answer import Outcome
from lookup_core.protocol.frames import TraceParent
from service.engine.tracer import CallerSpan, TracedRequest, Tracer

# The span of a traced request, until the engine takes it.
_SPAN = web.RequestKey[CallerSpan]("request_span", CallerSpan)
_TRACEPARENT, _TRACESTATE = istr("traceparent"), istr("tracestate")
_HIT = np.array([Outcome.HIT], np.uint8)


@dataclass(frozen=True, slots=True)
class RequestSpans:
    """The outermost middleware of one application."""

    tracer: Tracer
    routes: Mapping[web.AbstractRoute, str]  # {traced route: its pattern}
    dimensions: frozenset[str]  # the configured ones; others are not recorded

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Run the handler, within a span if the request is traced."""
        span = self._begun(request)
        if span is None:
            return await handler(request)
        request[_SPAN] = span
        status = None
        try:
            response = await handler(request)
            status = response.status
            if status == HTTPStatus.OK and _SPAN in request:
                # The engine did not take the span: the key was a hit of the recent rows.
                span.count_outcomes(_HIT)
            return response
        finally:  # without a status, the client disconnected and the handler was cancelled
            span.end(status=status, is_left=status is None)

    def _begun(self, request: web.Request) -> CallerSpan | None:
        pattern = self.routes.get(request.match_info.route)
        if pattern is None:
            return None
        name = request.match_info.get("name", "")
        dimension = name if name in self.dimensions else None
        traced = TracedRequest(request.method, pattern, dimension)
        return self.tracer.begin_request(traced, trace_parent(request))


def trace_parent(request: web.Request) -> TraceParent | None:
    """The trace context of the request; None without exactly one `traceparent`."""
    headers = request.headers.getall(_TRACEPARENT, ())
    if len(headers) != 1:
        return None
    return TraceParent(headers[0], ",".join(request.headers.getall(_TRACESTATE, ())))


def taken_span(request: web.Request) -> CallerSpan | None:
    """The span of a traced request, for the engine to count its outcomes; None afterwards."""
    span: CallerSpan | None = request.pop(_SPAN, None)
    return span
