"""The contract of tracers, over all implementations: they take the same calls."""

from collections.abc import Callable

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.protocol.frames import TraceParent
from service.engine.observer import QueryStatus
from service.engine.tracer import CallerSpan, NullTracer, TracedQuery, TracedRequest, Tracer
from service.observability.tracing import OpenTelemetryTracer
from tests.service.engine.fake_tracer import FakeTracer

UNSAMPLED = TraceParent(f"00-{'a' * 32}-{'b' * 16}-00")
MALFORMED = TraceParent("00-x-01", "=,=")
REQUEST = TracedRequest("GET", "/v1/dimensions/{name}/rows/{key}", "customers")


def real_tracer() -> OpenTelemetryTracer:
    """The adapter of OpenTelemetry without an exporter."""
    return OpenTelemetryTracer(TracerProvider().get_tracer("test"), {"customers": {}})


TRACERS = pytest.mark.parametrize("make", [NullTracer, FakeTracer, real_tracer])


def caller_spans(tracer: Tracer, parent: TraceParent | None) -> list[CallerSpan]:
    """The spans of a request and of a LOOKUP."""
    begun = (
        tracer.begin_request(REQUEST, parent),
        tracer.begin_lookup("customers", keys=2, parent=parent),
    )
    return [span for span in begun if span is not None]


@TRACERS
@pytest.mark.parametrize("parent", [None, MALFORMED])
def test_calls_without_trace_are_traced(
    make: Callable[[], Tracer], parent: TraceParent | None
) -> None:
    """An active tracer traces calls without a trace, or with a malformed one."""
    tracer = make()

    assert len(caller_spans(tracer, parent)) == (2 if tracer.is_on else 0)


@TRACERS
def test_unsampled_trace_is_not_traced(make: Callable[[], Tracer]) -> None:
    """A trace that the caller does not sample is not traced."""
    assert caller_spans(make(), UNSAMPLED) == []


@TRACERS
def test_spans_accept_all_calls(make: Callable[[], Tracer]) -> None:
    """Spans accept any outcomes, repeated links and any end."""
    tracer = make()
    for span in caller_spans(tracer, None):
        span.count_outcomes(np.array([Outcome.HIT, Outcome.ERROR], np.uint8))
        span.count_outcomes(np.zeros(0, np.uint8))
        query = tracer.begin_query(TracedQuery("customers", 1), [span, span])
        assert (query is not None) == tracer.is_on
        if query is not None:
            query.link([span])
            query.end(QueryStatus.ERROR, ErrorCode.INTERNAL)
        span.end(status=503)
