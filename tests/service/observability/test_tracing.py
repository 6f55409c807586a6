"""Spans of requests, LOOKUPs and queries, by OpenTelemetry's conventions."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.protocol.frames import TraceParent
from service.engine.observer import QueryStatus
from service.engine.tracer import CallerSpan, QuerySpan, TracedQuery, TracedRequest
from service.observability.tracing import MAX_LINKS, LinkedSampler, OpenTelemetryTracer

TRACE, SPAN = "a" * 32, "b" * 16
FOLLOWED = TraceParent(f"00-{TRACE}-{SPAN}-01", "vendor=1")
ROUTE = "/v1/dimensions/{name}/lookup"
REQUEST = TracedRequest("POST", ROUTE, "customers")
CUSTOMERS = {
    "db.system.name": "postgresql",
    "db.operation.name": "SELECT",
    "db.collection.name": "public.customers",
}


class Traced:
    """A tracer, and its ended spans."""

    def __init__(self, ratio: float = 0.0) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=LinkedSampler(ratio), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        attributes = {"customers": CUSTOMERS, "airports": dict[str, str]()}
        self.tracer = OpenTelemetryTracer(provider.get_tracer("test"), attributes)

    def ended(self) -> ReadableSpan:
        """The only span that has ended."""
        (span,) = self._exporter.get_finished_spans()
        return span

    def request(self) -> CallerSpan:
        """A traced request."""
        span = self.tracer.begin_request(REQUEST, FOLLOWED)
        assert span is not None
        return span

    def lookup(self) -> CallerSpan:
        """A traced LOOKUP."""
        span = self.tracer.begin_lookup("customers", keys=1, parent=FOLLOWED)
        assert span is not None
        return span

    def query(self, callers: list[CallerSpan], query: TracedQuery) -> QuerySpan:
        """A traced query."""
        span = self.tracer.begin_query(query, callers)
        assert span is not None
        return span


def attributes(span: ReadableSpan) -> Mapping[str, object]:
    """The attributes of a span."""
    return span.attributes or MappingProxyType({})


def test_request_is_a_server_span() -> None:
    """A request has method, route, dimension, outcomes and status, and never a key."""
    traced = Traced()
    span = traced.request()

    span.count_outcomes(np.array([Outcome.HIT, Outcome.HIT, Outcome.STALE], np.uint8))
    span.end(status=200)

    ended = traced.ended()
    assert (ended.name, ended.kind) == (f"POST {ROUTE}", SpanKind.SERVER)
    assert ended.attributes == {
        "http.request.method": "POST",
        "http.route": ROUTE,
        "http.response.status_code": 200,
        "sidelook.dimension": "customers",
        "sidelook.outcome.hit": 2,
        "sidelook.outcome.stale": 1,
    }


def test_caller_is_the_parent() -> None:
    """A LOOKUP belongs to the caller's trace, and keeps the vendor's state."""
    traced = Traced()

    traced.lookup().end(is_left=True)

    ended = traced.ended()
    assert ended.parent is not None
    assert ended.context is not None
    assert format_trace_id(ended.context.trace_id) == TRACE
    assert format_span_id(ended.parent.span_id) == SPAN
    assert ended.context.trace_state.to_header() == "vendor=1"
    assert (ended.name, ended.attributes) == (
        "lookup customers",
        {"sidelook.dimension": "customers", "sidelook.keys": 1, "sidelook.is_left": True},
    )


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(404, StatusCode.UNSET, None), (499, StatusCode.UNSET, None), (500, StatusCode.ERROR, "500")],
)
def test_only_own_faults_are_errors(status: int, code: StatusCode, error: str | None) -> None:
    """Only a status from 500 is an error of the service."""
    traced = Traced()

    traced.request().end(status=status)

    ended = traced.ended()
    assert (ended.status.status_code, attributes(ended).get("error.type")) == (code, error)


def test_query_is_a_root_span_with_links() -> None:
    """A query has its own trace, links to each lookup that it serves, and its table's name."""
    traced = Traced()
    callers = [traced.lookup(), traced.lookup()]

    query = traced.query(callers[:1], TracedQuery("customers", 40, 2))
    query.link(callers)
    query.end(QueryStatus.OK, None)

    ended = traced.ended()
    assert (ended.name, ended.kind) == ("SELECT public.customers", SpanKind.CLIENT)
    assert ended.parent is None
    assert [format_trace_id(link.context.trace_id) for link in ended.links] == [TRACE, TRACE]
    assert ended.attributes == {
        **CUSTOMERS,
        "db.operation.batch.size": 40,
        "sidelook.dimension": "customers",
        "sidelook.keys": 40,
        "sidelook.tries": 2,
        "sidelook.result": "ok",
    }


@pytest.mark.parametrize(
    ("query", "code", "name", "expected"),
    [
        (TracedQuery("airports", 2), None, "fetch airports", {"sidelook.keys": 2}),
        (
            TracedQuery("customers", 1),
            ErrorCode.TIMEOUT,
            "SELECT public.customers",
            CUSTOMERS | {"sidelook.keys": 1, "error.type": "timeout"},
        ),
    ],
)
def test_query_has_no_database_text(
    query: TracedQuery, code: ErrorCode | None, name: str, expected: dict[str, object]
) -> None:
    """Files have no database attributes, one key has no batch size, messages are not sent."""
    traced = Traced()

    traced.query([traced.lookup()], query).end(QueryStatus.TIMEOUT, code)

    ended = traced.ended()
    status = (StatusCode.UNSET, None) if code is None else (StatusCode.ERROR, "timeout")
    assert (ended.name, ended.status.status_code, ended.status.description) == (name, *status)
    constant = {
        "sidelook.dimension": query.dimension,
        "sidelook.result": "timeout",
        "sidelook.tries": query.tries,
    }
    assert ended.attributes == expected | constant


@pytest.mark.parametrize("later", [0, 3])
def test_links_are_bounded(later: int) -> None:
    """A query with too many lookups counts those without a link."""
    traced = Traced()
    callers = [traced.lookup() for _ in range(MAX_LINKS + 5)]

    query = traced.query(callers[: len(callers) - later], TracedQuery("customers", 200))
    query.link(callers)
    query.end(QueryStatus.OK, None)

    ended = traced.ended()
    assert len(ended.links) == MAX_LINKS
    assert attributes(ended)["sidelook.links_left_out"] == 5


@pytest.mark.parametrize(("ratio", "count"), [(0.0, 0), (1.0, 3)])
def test_sampling_is_of_new_traces(ratio: float, count: int) -> None:
    """Spans without a caller's trace are sampled; a query of a traced lookup always is."""
    traced = Traced(ratio)
    tracer = traced.tracer
    begun: list[Callable[[], object]] = [
        lambda: tracer.begin_request(REQUEST, None),
        lambda: tracer.begin_lookup("customers", keys=1, parent=None),
        lambda: tracer.begin_query(TracedQuery("customers", 1), []),
    ]

    assert sum(begin() is not None for begin in begun) == count
    assert tracer.begin_query(TracedQuery("customers", 1), [traced.lookup()]) is not None
