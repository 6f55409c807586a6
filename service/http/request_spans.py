"""Follows requests for rows, each as one span from before its admission to its last byte.

A middleware only where a tracer is on: elsewhere no request pays for it. Reads no body.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import numpy as np
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import istr

from lookup_core.answer import Outcome
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.tracer import CallerSpan, TracedRequest, Tracer

# Of who is followed, until it is taken along into the engine.
_SPAN = web.RequestKey[CallerSpan]("request_span", CallerSpan)
_TRACEPARENT, _TRACESTATE = istr("traceparent"), istr("tracestate")
_HIT = np.array([Outcome.HIT], np.uint8)


@dataclass(frozen=True, slots=True)
class RequestSpans:
    """The middleware around all others, of one application."""

    tracer: Tracer
    routes: Mapping[web.AbstractRoute, str]  # {what is followed: its pattern}
    dimensions: frozenset[str]  # those that there are: other names are the callers' inventions

    @web.middleware
    async def lead(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass the request on, and tell of it if it is followed."""
        span = self._begun(request)
        if span is None:
            return await handler(request)
        request[_SPAN] = span
        status = None
        try:
            response = await handler(request)
            status = response.status
            if status == HTTPStatus.OK and _SPAN in request:
                # The one key was a hit before the engine was asked: nobody else has to note it.
                span.count_outcomes(_HIT)
            return response
        finally:  # without a status its caller has gone, which cancels the handler
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
    """Whose trace the request says that it belongs to; None also for several."""
    headers = request.headers.getall(_TRACEPARENT, ())
    if len(headers) != 1:
        return None
    return TraceParent(headers[0], ",".join(request.headers.getall(_TRACESTATE, ())))


def taken_span(request: web.Request) -> CallerSpan | None:
    """The span of a request that goes on to the engine, which counts its outcomes; once."""
    span: CallerSpan | None = request.pop(_SPAN, None)
    return span
