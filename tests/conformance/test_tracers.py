"""All tracers take the same calls in the same way, so that who is traced need not know which."""

from collections.abc import Callable

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.fake_tracer import FakeTracer
from service.engine.observer import QueryStatus
from service.engine.tracer import CallerSpan, NullTracer, TracedQuery, TracedRequest, Tracer
from service.observability.tracing import OpenTelemetryTracer

UNFOLLOWED = TraceParent(f"00-{'a' * 32}-{'b' * 16}-00")
MALFORMED = TraceParent("00-nobody-01", "=,=")
REQUEST = TracedRequest("GET", "/v1/dimensions/{name}/rows/{key}", "customers")


def real_tracer() -> OpenTelemetryTracer:
    """The adapter, whose spans go nowhere."""
    return OpenTelemetryTracer(TracerProvider().get_tracer("test"), {"customers": {}})


TRACERS = pytest.mark.parametrize("make", [NullTracer, FakeTracer, real_tracer])


def askers(tracer: Tracer, parent: TraceParent | None) -> list[CallerSpan]:
    """What is followed of a request and of a LOOKUP."""
    begun = (
        tracer.begin_request(REQUEST, parent),
        tracer.begin_lookup("customers", keys=2, parent=parent),
    )
    return [span for span in begun if span is not None]


@TRACERS
@pytest.mark.parametrize("parent", [None, MALFORMED])
def test_all_or_nothing_is_followed(make: Callable[[], Tracer], parent: TraceParent | None) -> None:
    """Who is on follows whoever has no trace, or one that cannot be read."""
    tracer = make()

    assert len(askers(tracer, parent)) == (2 if tracer.is_on else 0)


@TRACERS
def test_unfollowed_trace_is_not_followed(make: Callable[[], Tracer]) -> None:
    """A caller's decision not to be followed holds here, too."""
    assert askers(make(), UNFOLLOWED) == []


@TRACERS
def test_spans_take_what_they_are_told(make: Callable[[], Tracer]) -> None:
    """Outcomes of any number of keys, links again and again, any end: nothing of it raises."""
    tracer = make()
    for span in askers(tracer, None):
        span.count_outcomes(np.array([Outcome.HIT, Outcome.ERROR], np.uint8))
        span.count_outcomes(np.zeros(0, np.uint8))
        query = tracer.begin_query(TracedQuery("customers", 1), [span, span])
        assert (query is not None) == tracer.is_on
        if query is not None:
            query.link([span])
            query.end(QueryStatus.ERROR, ErrorCode.INTERNAL)
        span.end(status=503)
