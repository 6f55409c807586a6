"""What a collector gets of requests, LOOKUPs and queries, by OpenTelemetry's conventions."""

from collections.abc import Callable

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.observer import QueryStatus
from service.engine.tracer import CallerSpan, TracedQuery, TracedRequest
from service.observability.tracing import MAX_LINKS, LinkedSampler, OpenTelemetryTracer

TRACE, SPAN = "a" * 32, "b" * 16
FOLLOWED = TraceParent(f"00-{TRACE}-{SPAN}-01", "vendor=1")
ROUTE = "/v1/dimensions/{name}/lookup"
REQUEST = TracedRequest("POST", ROUTE, "customers")
STORES = {
    "customers": {
        "db.system.name": "postgresql",
        "db.operation.name": "SELECT",
        "db.collection.name": "public.customers",
    },
    "airports": {},
}


class Traced:
    """A tracer, and the spans that have ended."""

    def __init__(self, ratio: float = 0.0) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=LinkedSampler(ratio), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OpenTelemetryTracer(provider.get_tracer("test"), STORES)

    def spans(self) -> tuple[ReadableSpan, ...]:
        """All that have ended, in that order."""
        return self._exporter.get_finished_spans()

    def asker(self, parent: TraceParent = FOLLOWED) -> CallerSpan:
        """A LOOKUP that is followed."""
        span = self.tracer.begin_lookup("customers", keys=1, parent=parent)
        assert span is not None
        return span


def test_request_is_a_server_span_below_its_caller() -> None:
    """With method, route, dimension, outcomes and status; never with a key."""
    traced = Traced()
    span = traced.tracer.begin_request(REQUEST, FOLLOWED)
    assert span is not None

    span.count_outcomes(np.array([Outcome.HIT, Outcome.HIT, Outcome.STALE], np.uint8))
    span.end(status=200)

    (told,) = traced.spans()
    assert (told.name, told.kind) == (f"POST {ROUTE}", SpanKind.SERVER)
    assert told.attributes == {
        "http.request.method": "POST",
        "http.route": ROUTE,
        "http.response.status_code": 200,
        "sidelook.dimension": "customers",
        "sidelook.outcome.hit": 2,
        "sidelook.outcome.stale": 1,
    }


def test_caller_and_its_state_are_kept() -> None:
    """The trace is the caller's, its span the parent, and the vendor's state goes on."""
    traced = Traced()
    traced.asker().end()

    (told,) = traced.spans()
    assert told.parent is not None
    assert told.context is not None
    assert format_trace_id(told.context.trace_id) == TRACE
    assert format_span_id(told.parent.span_id) == SPAN
    assert told.context.trace_state.to_header() == "vendor=1"


@pytest.mark.parametrize(("status", "code"), [(404, StatusCode.UNSET), (503, StatusCode.ERROR)])
def test_only_own_faults_are_errors(status: int, code: StatusCode) -> None:
    """A missing row is no failure of the service."""
    traced = Traced()
    span = traced.tracer.begin_request(REQUEST, FOLLOWED)
    assert span is not None
    span.end(status=status)

    assert traced.spans()[0].status.status_code is code


def test_query_is_a_root_span_with_links() -> None:
    """It has a trace of its own, as it has several parents, and names table and batch."""
    traced = Traced()
    askers = [traced.asker(), traced.asker()]
    query = traced.tracer.begin_query(TracedQuery("customers", 40, 2), askers[:1])
    assert query is not None
    query.link(askers)
    query.end(QueryStatus.OK, None)

    (told,) = traced.spans()
    assert (told.name, told.kind, told.parent) == ("SELECT public.customers", SpanKind.CLIENT, None)
    assert [format_trace_id(link.context.trace_id) for link in told.links] == [TRACE, TRACE]
    assert told.attributes == {
        **STORES["customers"],
        "db.operation.batch.size": 40,
        "sidelook.dimension": "customers",
        "sidelook.keys": 40,
        "sidelook.tries": 2,
        "sidelook.result": "ok",
    }


def test_file_has_no_database() -> None:
    """A query of a file names its dimension, and claims no system."""
    traced = Traced()
    query = traced.tracer.begin_query(TracedQuery("airports", 2), [traced.asker()])
    assert query is not None
    query.end(QueryStatus.OK, None)

    assert traced.spans()[0].name == "fetch airports"
    assert "db.operation.batch.size" not in (traced.spans()[0].attributes or {})


def test_failed_query_tells_our_code() -> None:
    """The database's own words may hold a key: they stay here."""
    traced = Traced()
    query = traced.tracer.begin_query(TracedQuery("customers", 1), [traced.asker()])
    assert query is not None
    query.end(QueryStatus.TIMEOUT, ErrorCode.TIMEOUT)

    (told,) = traced.spans()
    assert (told.status.status_code, told.status.description) == (StatusCode.ERROR, "timeout")
    assert (told.attributes or {})["error.type"] == "timeout"


@pytest.mark.parametrize("later", [0, 3])
def test_links_are_bounded(later: int) -> None:
    """Of very many whom it serves a query says how many have no link."""
    traced = Traced()
    askers = [traced.asker() for _ in range(MAX_LINKS + 5)]
    first = len(askers) - later
    query = traced.tracer.begin_query(TracedQuery("customers", 200), askers[:first])
    assert query is not None
    query.link(askers)
    query.end(QueryStatus.OK, None)

    (told,) = traced.spans()
    assert len(told.links) == MAX_LINKS
    assert (told.attributes or {})["sidelook.links_left_out"] == 5


def test_query_is_followed_for_who_is() -> None:
    """With a share of nothing, only queries that serve somebody who is followed have a span."""
    traced = Traced(ratio=0.0)

    assert traced.tracer.begin_query(TracedQuery("customers", 1), []) is None
    assert traced.tracer.begin_query(TracedQuery("customers", 1), [traced.asker()]) is not None


@pytest.mark.parametrize(("ratio", "count"), [(0.0, 0), (1.0, 3)])
def test_share_is_of_those_without_a_trace(ratio: float, count: int) -> None:
    """Requests, LOOKUPs and queries that belong to no trace begin one in that share."""
    tracer = Traced(ratio).tracer
    begun: list[Callable[[], object]] = [
        lambda: tracer.begin_request(REQUEST, None),
        lambda: tracer.begin_lookup("customers", keys=1, parent=None),
        lambda: tracer.begin_query(TracedQuery("customers", 1), []),
    ]

    assert sum(begin() is not None for begin in begun) == count
