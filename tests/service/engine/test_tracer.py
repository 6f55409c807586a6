"""What the default tracer does: nothing, without complaint."""

from service.engine.tracer import NullTracer, TracedQuery, TracedRequest


def test_null_tracer_follows_nothing() -> None:
    """Whatever begins, it makes no span of it and keeps no trace."""
    tracer = NullTracer()

    tracer.begin_request(TracedRequest("GET", "/", None), None)
    tracer.begin_lookup("customers", keys=1, parent=None)
    tracer.begin_query(TracedQuery("customers", 1), [])

    assert (tracer.is_on, vars(tracer)) == (False, {})
