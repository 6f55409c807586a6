"""Requests for rows are followed from their header to their status; probes never are."""

import asyncio

import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.fake_tracer import FakeTracer
from service.engine.tracer import TracedRequest
from tests.service.http.serving import PATIENCE_S, Setting, served

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"
LOOKUP = TracedRequest("POST", "/v1/dimensions/{name}/lookup", "customers")
ROW = TracedRequest("GET", "/v1/dimensions/{name}/rows/{key}", "customers")


async def test_requests_for_rows_are_spans() -> None:
    """With the pattern of their path, what became of their keys, and their status."""
    tracer = FakeTracer()
    async with served(Setting(tracer=tracer)) as service:
        await service.lookup('{"keys": [1, 9]}')
        await service.lookup('{"keys": [1]}')
        await service.tcp.get("/v1/dimensions/customers/rows/1")
        await service.tcp.get("/v1/dimensions/customers/rows/9")

    assert [(span.what, span.outcomes, span.status) for span in tracer.askers] == [
        (LOOKUP, {"fetched": 1, "missing": 1}, 200),
        (LOOKUP, {"hit": 1}, 200),
        (ROW, {"hit": 1}, 200),
        (ROW, {"missing": 1}, 404),
    ]
    assert [query.askers for query in tracer.queries] == [[tracer.askers[0]]]


async def test_header_tells_the_parent() -> None:
    """One `traceparent` is it, with all that `tracestate` says; several are none."""
    tracer = FakeTracer()
    path = "/v1/dimensions/customers/rows/1"
    once = [("traceparent", TRACEPARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]
    async with served(Setting(tracer=tracer)) as service:
        await service.tcp.get(path, headers=once)
        await service.tcp.get(path, headers=[*once, ("traceparent", TRACEPARENT)])
        await service.tcp.get(path)

    assert [span.parent for span in tracer.askers] == [
        TraceParent(TRACEPARENT, "a=1,b=2"),
        None,
        None,
    ]


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/v1/dimensions", "/nowhere"])
async def test_other_requests_are_not_followed(path: str) -> None:
    """Probes and scrapes come for ever, and ask for no rows."""
    tracer = FakeTracer()
    async with served(Setting(tracer=tracer)) as service:
        await service.tcp.get(path, headers={"traceparent": TRACEPARENT})

    assert tracer.askers == []


async def test_invented_names_are_not_told() -> None:
    """A dimension that there is not is whatever its caller wrote."""
    tracer = FakeTracer()
    async with served(Setting(tracer=tracer)) as service:
        await service.tcp.get("/v1/dimensions/secret/rows/1")

    assert [(span.what, span.status) for span in tracer.askers] == [
        (TracedRequest("GET", "/v1/dimensions/{name}/rows/{key}", None), 404)
    ]


async def test_failed_request_has_its_status() -> None:
    """What the caller was told is what the span tells."""
    tracer = FakeTracer()
    down = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")
    async with served(Setting(tracer=tracer)) as service:
        service.customers.fail_next(100, down)
        reply = await service.tcp.get("/v1/dimensions/customers/rows/1")

    assert ([span.status for span in tracer.askers], reply.status) == ([503], 503)


async def test_caller_who_leaves_has_left() -> None:
    """A request that nobody waits for ends without a status."""
    tracer = FakeTracer()
    async with served(Setting(tracer=tracer)) as service, asyncio.timeout(PATIENCE_S):
        service.customers.hold()
        asking = asyncio.ensure_future(service.lookup('{"keys": [1]}'))
        await service.customers.wait_for_fetches(1)
        asking.cancel()
        while not tracer.askers[0].has_ended:  # noqa: ASYNC110  nobody is told
            await asyncio.sleep(0.001)

    assert (tracer.askers[0].is_left, tracer.askers[0].status) == (True, None)
