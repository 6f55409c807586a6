"""Requests, LOOKUPs and queries as spans of OpenTelemetry.

The only module, with `span_export`, that imports it: nothing of it is loaded where nothing is
traced. Where spans go is `span_export`'s business.
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
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.observer import QueryStatus
from service.engine.tracer import CallerSpan, Outcomes, TracedQuery, TracedRequest

MAX_LINKS = 128  # of one query; how many more it serves is an attribute
_NOWHERE = Context()  # whatever may be current in this thread is no parent of ours
_PROPAGATOR = TraceContextTextMapPropagator()


class LinkedSampler(sampling.Sampler):
    """Follows a query if one of those whom it serves is followed; all else as the default does."""

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
        """The decision for a span that is about to begin."""
        if any(link.context.trace_flags.sampled for link in links or ()):
            return sampling.SamplingResult(sampling.Decision.RECORD_AND_SAMPLE, attributes)
        return self._default.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )

    def get_description(self) -> str:
        """Its name for people."""
        return "LinkedSampler"


class OpenTelemetryCallerSpan:
    """Implements `service.engine.tracer.AskerSpan`."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._outcomes: Counter[int] = Counter()

    def count_outcomes(self, outcomes: Outcomes) -> None:
        """Add them up; they are told in the end."""
        self._outcomes.update(dict(enumerate(np.bincount(outcomes).tolist())))

    def end(self, *, status: int | None = None, is_left: bool = False) -> None:
        """Tell all; a fault of the caller's is none of the service's."""
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
        """Link those that are new, while there is room."""
        for caller in callers:
            if caller in self._linked or not isinstance(caller, OpenTelemetryCallerSpan):
                continue
            self._linked.add(caller)
            if len(self._linked) > MAX_LINKS:
                self._left_out += 1
            else:
                self._span.add_link(caller.span.get_span_context())

    def end(self, result: QueryStatus, code: ErrorCode | None) -> None:
        """Tell how it ended in our words: the database's may hold keys."""
        self._span.set_attribute("sidelook.result", result.value)
        if self._left_out:
            self._span.set_attribute("sidelook.links_left_out", self._left_out)
        if code is not None:
            self._span.set_attribute("error.type", str(code))
            self._span.set_status(Status(StatusCode.ERROR, str(code)))
        self._span.end()


class OpenTelemetryTracer:
    """Implements `service.engine.tracer.Tracer`; `stores` says what each dimension's queries ask.

    Of those, `db.operation.name` and `db.collection.name` also make the name of a query's span.
    """

    def __init__(self, maker: SpanMaker, stores: Mapping[str, Mapping[str, str]]) -> None:
        self._maker = maker
        self._stores = stores

    @property
    def is_on(self) -> bool:
        """Always."""
        return True

    def begin_request(
        self, request: TracedRequest, parent: TraceParent | None
    ) -> CallerSpan | None:
        """A span of kind SERVER, below the caller's if it says which."""
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
        """The same for a LOOKUP, below the span that its channel was opened with."""
        attributes: dict[str, str | int] = {"sidelook.dimension": dimension, "sidelook.keys": keys}
        return self._begun(f"lookup {dimension}", parent, attributes)

    def begin_query(
        self, query: TracedQuery, callers: Iterable[CallerSpan]
    ) -> OpenTelemetryQuerySpan | None:
        """A span of kind CLIENT and of no trace but its own, as it has many parents or none."""
        linked = [
            each for each in dict.fromkeys(callers) if isinstance(each, OpenTelemetryCallerSpan)
        ]
        store = self._stores[query.dimension]
        attributes: dict[str, str | int] = {
            **store,
            "sidelook.dimension": query.dimension,
            "sidelook.keys": query.keys,
            "sidelook.tries": query.tries,
        }
        if store and query.keys > 1:  # one of one key is no batch, by the convention
            attributes["db.operation.batch.size"] = query.keys
        operation = store.get("db.operation.name", "fetch")
        span = self._maker.start_span(
            f"{operation} {store.get('db.collection.name', query.dimension)}",
            context=_NOWHERE,
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
        return _NOWHERE
    carrier = {"traceparent": parent.traceparent, "tracestate": parent.tracestate}
    return _PROPAGATOR.extract(carrier, _NOWHERE)  # as it was, if they are malformed
