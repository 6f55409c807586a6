"""Probes, readiness and admission: which requests are served during a start, drain or overload."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from lookup_core.errors import ErrorCode
from lookup_core.statistics import InvalidationOrigin
from service.config.settings import Limits as ConfiguredLimits
from service.engine.refresher import RefreshSources
from service.http.limits import RequestLimits
from tests.service.http.serving import (
    ONE,
    Served,
    Setting,
    away,
    followed_customers,
    served,
    until_started,
    whole_customers,
)

PROBES = ("/livez", "/readyz", "/startupz")
ROW = f"{ONE}/rows/1"


async def statuses(service: Served, *paths: str, over: str = "health") -> list[int]:
    """The status of each path."""
    return [(await service.get(path, over=over)).status for path in paths]


# Probes


@pytest.mark.parametrize("over", ["health", "tcp", "unix"])
async def test_probes_pass_when_all_is_described(service: Served, over: str) -> None:
    """With all dimensions described every probe is a plain ok on every listener."""
    replies = [await service.get(path, over=over) for path in PROBES]

    assert {(each.status, each.body) for each in replies} == {(200, b"ok\n")}


async def test_dead_backend_ends_readiness_only() -> None:
    """An unavailable backend neither restarts the service nor delays its executor."""
    async with served(away(ErrorCode.FORBIDDEN)) as service:
        assert await statuses(service, *PROBES) == [200, 503, 200]
        reply = await service.get("/readyz", over="health")

    assert (reply.problem, reply.headers["Retry-After"]) == ((503, "forbidden"), "1")
    assert reply.json["detail"] == 'dimension "customers": customers: the reason'


async def test_drain_ends_readiness_and_lookups() -> None:
    """During a drain no lookup or stream begins; probes, figures and metrics are served."""
    async with served() as service:
        await service.described()
        for _ in range(2):
            service.parts.readiness.start_draining()

        assert await statuses(service, *PROBES) == [200, 503, 200]
        assert await statuses(service, "/v1/dimensions", "/metrics", over="unix") == [200, 200]
        for path in (ROW, "/v1/stream"):
            reply = await service.get(path)
            assert (reply.problem, reply.headers["Retry-After"]) == ((503, "draining"), "5")


async def test_metrics_are_prometheus_text(service: Served) -> None:
    """The scrape is the rendered text in the format's content type."""
    reply = await service.get("/metrics", over="health")

    assert (reply.body, reply.headers["Content-Type"]) == (
        b"# metrics\n",
        "text/plain; version=0.0.4; charset=utf-8",
    )


async def test_load_holds_the_start() -> None:
    """A dimension starts once its table is loaded; a later invalidation does not undo this."""
    table = whole_customers()
    table.hold("read")
    async with served(Setting(sources={"customers": RefreshSources(table=table)})) as service:
        assert await statuses(service, *PROBES) == [200, 503, 503]
        reply = await service.get("/startupz", over="health")
        assert list(service.parts.readiness.cold()) == ["customers"]
        table.release("read")
        await until_started(service)
        service.dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)

        assert await statuses(service, "/startupz") == [200]
    assert (reply.problem, reply.headers["Retry-After"]) == ((503, "table_unavailable"), "1")
    assert reply.json["detail"].startswith('dimension "customers": ')


async def test_cold_dimension_names_its_backend() -> None:
    """A load that waits for a description by the backend has that reason."""
    setting = replace(away(), sources={"customers": followed_customers()})
    async with served(setting) as service:
        reply = await service.get("/startupz", over="health")

    assert (reply.status, reply.json["detail"]) == (
        503,
        'dimension "customers": customers: the reason',
    )


async def test_short_memory_refuses_lookups_only(service: Served) -> None:
    """Without memory, lookups and streams are refused; figures and metrics are served."""
    service.parts.readiness.allow_requests(is_allowed=False)

    paths = (ROW, "/v1/stream", "/v1/dimensions", "/metrics")
    assert await statuses(service, *paths, over="unix") == [503, 503, 200, 200]


# Admission

ONE_SLOT = Setting(limits=RequestLimits(connections=1))


@asynccontextmanager
async def busy() -> AsyncIterator[Served]:
    """A service at its admission limit of one request, until the block ends."""
    async with served(ONE_SLOT) as service, asyncio.TaskGroup() as tasks:
        service.customers.hold()
        tasks.create_task(service.lookup('{"keys": [1]}'))
        await service.customers.wait_for_fetches(1)
        yield service
        service.customers.release()


async def test_requests_beyond_the_limit_are_refused() -> None:
    """At the admission limit of a listener requests are refused at once; probes are not."""
    async with busy() as service:
        refused = await service.lookup('{"keys": [2]}')
        probes = await statuses(service, *PROBES, over="unix")
        other = await statuses(service, "/v1/dimensions", over="tcp")

    assert (refused.problem, refused.headers["Retry-After"]) == ((503, "overloaded"), "1")
    assert (probes, other) == ([200] * 3, [200])


async def test_slots_come_back() -> None:
    """A request releases its admission and bytes, however it ends."""

    async def fail(_request: web.Request) -> web.StreamResponse:
        raise KeyError("4711")

    setting = replace(ONE_SLOT, change_parts=lambda parts: replace(parts, stream=fail))
    async with served(setting) as service:
        replies = [await service.lookup(body) for body in ("{", '{"keys": [1]}')]
        replies += [await service.get(path) for path in ("/v1/stream", ROW)]

    assert [each.status for each in replies] == [400, 200, 500, 200]
    assert service.parts.answer_budget.used_bytes == 0


async def test_open_stream_takes_a_slot() -> None:
    """A stream counts as a request until it is closed."""
    opened, closed = asyncio.Event(), asyncio.Event()

    async def stream(_request: web.Request) -> web.Response:
        opened.set()
        await closed.wait()
        return web.Response()

    setting = replace(ONE_SLOT, change_parts=lambda parts: replace(parts, stream=stream))
    async with served(setting) as service, asyncio.TaskGroup() as tasks:
        tasks.create_task(service.get("/v1/stream"))
        await opened.wait()
        assert (await service.lookup('{"keys": []}')).status == 503
        closed.set()


def test_default_limits_are_the_configured_ones() -> None:
    """Default bounds are those of the configuration, deadlines those of the docs."""
    limits, configured = RequestLimits(), ConfiguredLimits()

    assert limits == RequestLimits(
        configured.connections,
        configured.request_keys,
        configured.request_bytes,
        header_deadline_s=10.0,
        body_deadline_s=30.0,
        send_deadline_s=30.0,
    )
