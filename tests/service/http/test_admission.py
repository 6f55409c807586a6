"""The number of requests under way is bounded, and probes are not counted."""

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web

from service.http.limits import Limits
from tests.service.http.serving import Served, Setting, served

ONE = Setting(limits=Limits(connections=1))


async def test_requests_over_the_limit_are_refused() -> None:
    """While all slots are taken, a request is told at once to come again."""
    async with served(ONE) as service:
        service.customers.hold()
        async with asyncio.TaskGroup() as both:
            both.create_task(service.lookup('{"keys": [1]}'))
            await service.customers.wait_for_fetches(1)
            refused = await service.lookup('{"keys": [2]}')
            service.customers.release()

    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert (await refused.json())["code"] == "overloaded"


async def test_slots_are_given_back() -> None:
    """A request that has ended, well or not, leaves its slot to the next one."""
    async with served(ONE) as service:
        statuses = [(await service.lookup(body)).status for body in ("{", '{"keys": [1]}')]

    assert statuses == [400, 200]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
async def test_probes_need_no_slot(path: str) -> None:
    """An overload is not taken for a dead process."""
    async with served(ONE) as service, asyncio.TaskGroup() as both:
        service.customers.hold()
        both.create_task(service.lookup('{"keys": [1]}'))
        await service.customers.wait_for_fetches(1)
        async with service.unix.get(path) as response:
            assert response.status == 200
        service.customers.release()


async def test_listeners_have_slots_of_their_own() -> None:
    """A flood over TCP leaves the Unix socket usable."""
    async with served(ONE) as service:
        service.customers.hold()
        async with asyncio.TaskGroup() as both:
            both.create_task(service.lookup('{"keys": [1]}'))
            await service.customers.wait_for_fetches(1)
            async with service.tcp.get("/v1/dimensions") as response:
                assert response.status == 200
            service.customers.release()


async def test_streams_are_not_opened_while_draining(service: Served) -> None:
    """A stream that begins during the drain would be cut short; it is refused instead."""
    service.parts.readiness.start_draining()

    async with service.unix.get("/v1/stream") as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")


async def test_short_memory_refuses_lookups_only(service: Served) -> None:
    """Lookups and streams are refused at once; who looks after the service is not."""
    service.parts.readiness.allow_requests(is_allowed=False)
    paths = ("/v1/dimensions/customers/rows/1", "/v1/stream", "/v1/dimensions", "/metrics")
    statuses = []
    for path in paths:
        async with service.unix.get(path) as response:
            statuses.append(response.status)

    assert statuses == [503, 503, 200, 200]


async def test_open_streams_take_a_slot() -> None:
    """An open stream counts as a request until it is closed."""
    opened, closed = asyncio.Event(), asyncio.Event()

    async def stream(_request: web.Request) -> web.Response:
        opened.set()
        await closed.wait()
        return web.Response()

    setting = replace(ONE, change_parts=lambda parts: replace(parts, stream=stream))
    async with served(setting) as service, asyncio.TaskGroup() as both:
        both.create_task(_read(service))
        await opened.wait()
        assert (await service.lookup('{"keys": []}')).status == 503
        closed.set()


async def _read(service: Served) -> None:
    async with service.unix.get("/v1/stream") as response:
        await response.read()
