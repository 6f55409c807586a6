"""Spans reach a collector, and one that is away costs nothing but its spans."""

import asyncio
import socket
import time
from collections.abc import Mapping

from structlog.testing import capture_logs

from service.observability.span_export import END_S, SpanExportSettings, exporting_tracer
from tests.grace import GRACE_S
from tests.otlp_collector import otlp_collector
from tests.service.observability.test_collector_session import Answer, answered, dripped, server
from tools.processes.sidecar_process import free_port

PATH = "/v1/traces"


def settings(endpoint: str, headers: Mapping[str, str] | None = None) -> SpanExportSettings:
    """All is followed."""
    return SpanExportSettings(endpoint, 1.0, "lookups", "1.2.3", lambda: headers or {})


async def lookups(settings: SpanExportSettings, count: int) -> float:
    """Trace so many LOOKUPs; how long it took to end."""
    async with exporting_tracer(settings, {}) as tracer:
        for _ in range(count):
            span = tracer.begin_lookup("customers", keys=1, parent=None)
            assert span is not None
            span.end()
        began_s = time.monotonic()
    return time.monotonic() - began_s


async def test_last_spans_are_sent_in_the_end() -> None:
    """All of them arrive, as spans of the service that is configured."""
    with otlp_collector() as collector:
        await lookups(settings(collector.url + PATH, {"authorization": "Bearer t"}), 300)

    told = collector.resource()
    assert len(collector.spans()) == 300
    assert (told["service.name"], told["service.version"]) == ("lookups", "1.2.3")
    assert set(collector.tokens) == {"Bearer t"}


async def test_absent_collector_is_told_once() -> None:
    """Nobody listens there: the end is quick, and the log has one line of it, not one a batch."""
    with capture_logs() as logs:
        took_s = await lookups(settings(f"http://127.0.0.1:{free_port()}/v1/traces"), 5_000)

    told = [event for event in logs if "refused" in event.get("text", "")]
    assert took_s < END_S + GRACE_S
    assert [event["event"] for event in told] == ["tracing.not_sent"]


async def test_silent_collector_is_left_in_time() -> None:
    """One that accepts and says nothing is not waited for longer than two seconds."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        port = server.getsockname()[1]
        took_s = await asyncio.wait_for(
            lookups(settings(f"http://127.0.0.1:{port}/v1/traces"), 2_000), 30
        )

    assert END_S <= took_s < END_S + GRACE_S


async def test_dripping_collector_is_left_in_time() -> None:
    """One that answers byte by byte costs its batch, and the queue moves on."""
    drip = dripped(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    await first_trouble(drip)


async def first_trouble(answer: Answer) -> str:
    """What the log says first of a collector that answers so."""
    with server(answer) as url, capture_logs() as logs:
        async with exporting_tracer(settings(url), {}) as tracer, asyncio.timeout(20):
            span = tracer.begin_lookup("customers", keys=1, parent=None)
            assert span is not None
            span.end()
            while not logs:  # noqa: ASYNC110  another thread tells it
                await asyncio.sleep(0.01)
    assert [event["event"] for event in logs] == ["tracing.not_sent"]
    return str(logs[0]["text"])


async def test_redirect_is_told() -> None:
    """A collector that has moved gets no spans; the log says so with the status, at once."""
    text = await first_trouble(answered(b"307 Temporary Redirect\r\nLocation: /elsewhere"))

    assert text.startswith("Failed to export")
    assert text.endswith("HTTP 307 Temporary Redirect: redirects are not followed")


async def test_hasty_collector_is_not_asked_in_a_hot_loop() -> None:
    """One that wants the batch again at once gets it after the sender's own wait."""
    text = await first_trouble(answered(b"503 Service Unavailable\r\nRetry-After: -5"))

    wait_s = float(text.rpartition("retrying in ")[2].removesuffix("s."))
    assert wait_s >= 0.8  # a second, less the jitter


async def test_headers_are_read_for_each_batch() -> None:
    """A secret that is rotated counts from the next batch on."""
    values = iter(["Bearer old", "Bearer new"])

    with otlp_collector() as collector:
        fresh = SpanExportSettings(
            collector.url + PATH, 1.0, "lookups", "1", lambda: {"authorization": next(values)}
        )
        async with exporting_tracer(fresh, {}) as tracer, asyncio.timeout(20):
            for count in (1, 2):
                span = tracer.begin_lookup("customers", keys=1, parent=None)
                assert span is not None
                span.end()
                while len(collector.tokens) < count:  # noqa: ASYNC110  another thread sends
                    await asyncio.sleep(0.01)

    assert collector.tokens == ["Bearer old", "Bearer new"]


async def test_unreadable_headers_cost_their_batch() -> None:
    """A file that is away for a moment ends neither the thread nor the service."""

    def unreadable() -> Mapping[str, str]:
        raise FileNotFoundError("headers")

    with otlp_collector() as collector, capture_logs() as logs:
        wanted = SpanExportSettings(collector.url + PATH, 1.0, "lookups", "1", unreadable)
        await lookups(wanted, 1)

    assert collector.messages == []
    assert "headers" in next(e["text"] for e in logs if e["event"] == "tracing.not_sent")
