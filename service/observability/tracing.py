"""OpenTelemetry tracer: spans of requests, LOOKUPs and queries; `span_export` sends them.

Only these two modules import OpenTelemetry, and only if tracing is on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

import numpy as np
from opentelemetry.context import Context
from opentelemetry.sdk.trace import sampling
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TraceState
from opentelemetry.trace import Tracer as SpanMaker
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.protocol.frames import TraceParent
from service.engine.observer import QueryStatus
from service.engine.tracer import CallerSpan, Outcomes, TracedQuery, TracedRequest

MAX_LINKS = 128  # per query; an attribute counts the others
_NO_PARENT = Context()  # ignores the current span of the thread
_PROPAGATOR = TraceContextTextMapPropagator()


class LinkedSampler(sampling.Sampler):
    """Samples a query if a linked caller is sampled; other spans by parent and ratio."""

    def __init__(self, ratio: float) -> None:
        self._default = sampling.ParentBased(sampling.TraceIdRatioBased(ratio))

    def should_sample(  # noqa: PLR0913, PLR0917 -- the library's signature
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> sampling.SamplingResult:
        """The decision for a new span."""
        if any(link.context.trace_flags.sampled for link in links or ()):
            return sampling.SamplingResult(sampling.Decision.RECORD_AND_SAMPLE, attributes)
        return self._default.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )

    def get_description(self) -> str:
        """The sampler's name."""
        return "LinkedSampler"


class OpenTelemetryCallerSpan:
    """Implements `service.engine.tracer.CallerSpan`."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._outcomes: Counter[int] = Counter()

    def count_outcomes(self, outcomes: Outcomes) -> None:
        """Add the outcomes up; `end` sets them as attributes."""
        self._outcomes.update(dict(enumerate(np.bincount(outcomes).tolist())))

    def end(self, *, status: int | None = None, is_left: bool = False) -> None:
        """End the span; only a status from 500 is an error of the service."""
        for value, keys in self._outcomes.items():
            if keys:
                self.span.set_attribute(f"sidelook.outcome.{Outcome(value).label}", keys)
        if status is not None:
            self.span.set_attribute("http.response.status_code", status)
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                self.span.set_attribute("error.type", str(status))
                self.span.set_status(Status(StatusCode.ERROR))
        if is_left:
            self.span.set_attributes({"sidelook.is_left": True})
        self.span.end()


class OpenTelemetryQuerySpan:
    """Implements `service.engine.tracer.QuerySpan`."""

    def __init__(self, span: Span, linked: set[CallerSpan], *, left_out: int) -> None:
        self._span = span
        self._linked = linked
        self._left_out = left_out

    def link(self, callers: Iterable[CallerSpan]) -> None:
        """Link new callers, up to `MAX_LINKS`."""
        for caller in callers:
            if caller in self._linked or not isinstance(caller, OpenTelemetryCallerSpan):
                continue
            self._linked.add(caller)
            if len(self._linked) > MAX_LINKS:
                self._left_out += 1
            else:
                self._span.add_link(caller.span.get_span_context())

    def end(self, result: QueryStatus, code: ErrorCode | None) -> None:
        """End the span with the result and the code; the database's messages may contain keys."""
        self._span.set_attribute("sidelook.result", result.value)
        if self._left_out:
            self._span.set_attribute("sidelook.links_left_out", self._left_out)
        if code is not None:
            self._span.set_attribute("error.type", str(code))
            self._span.set_status(Status(StatusCode.ERROR, str(code)))
        self._span.end()


class OpenTelemetryTracer:
    """Implements `service.engine.tracer.Tracer`; `query_attributes` has those of each dimension.

    `db.operation.name` and `db.collection.name` also form the name of a query's span.
    """

    is_on = True

    def __init__(self, maker: SpanMaker, query_attributes: Mapping[str, Mapping[str, str]]) -> None:
        self._maker = maker
        self._query_attributes = query_attributes

    def begin_request(
        self, request: TracedRequest, parent: TraceParent | None
    ) -> CallerSpan | None:
        """A span of kind SERVER, with the caller's span as parent if it is known."""
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "http.route": request.route,
        }
        if request.dimension is not None:
            attributes["sidelook.dimension"] = request.dimension
        return self._begun(f"{request.method} {request.route}", parent, attributes)

    def begin_lookup(
        self, dimension: str, *, keys: int, parent: TraceParent | None
    ) -> CallerSpan | None:
        """A span of kind SERVER, with the parent given at the opening of its channel."""
        attributes: dict[str, str | int] = {"sidelook.dimension": dimension, "sidelook.keys": keys}
        return self._begun(f"lookup {dimension}", parent, attributes)

    def begin_query(
        self, query: TracedQuery, callers: Iterable[CallerSpan]
    ) -> OpenTelemetryQuerySpan | None:
        """A span of kind CLIENT in a trace of its own, linked to its callers."""
        linked = [
            each for each in dict.fromkeys(callers) if isinstance(each, OpenTelemetryCallerSpan)
        ]
        known = self._query_attributes[query.dimension]
        attributes: dict[str, str | int] = {
            **known,
            "sidelook.dimension": query.dimension,
            "sidelook.keys": query.keys,
            "sidelook.tries": query.tries,
        }
        if known and query.keys > 1:  # by convention, one key is no batch
            attributes["db.operation.batch.size"] = query.keys
        operation = known.get("db.operation.name", "fetch")
        span = self._maker.start_span(
            f"{operation} {known.get('db.collection.name', query.dimension)}",
            context=_NO_PARENT,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=[Link(each.span.get_span_context()) for each in linked[:MAX_LINKS]],
        )
        if not span.is_recording():
            return None
        left_out = max(0, len(linked) - MAX_LINKS)
        return OpenTelemetryQuerySpan(span, set(linked), left_out=left_out)

    def _begun(
        self, name: str, parent: TraceParent | None, attributes: Mapping[str, str | int]
    ) -> OpenTelemetryCallerSpan | None:
        span = self._maker.start_span(
            name, context=_context(parent), kind=SpanKind.SERVER, attributes=attributes
        )
        return OpenTelemetryCallerSpan(span) if span.is_recording() else None


def _context(parent: TraceParent | None) -> Context:
    if parent is None:
        return _NO_PARENT
    carrier = {"traceparent": parent.traceparent, "tracestate": parent.tracestate}
    return _PROPAGATOR.extract(carrier, _NO_PARENT)  # without a parent if malformed
