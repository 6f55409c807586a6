"""A service is ready when every dimension is known and the drain has not begun."""

import asyncio

import pytest

from lookup_core.errors import ErrorCode, Overloaded
from service.engine.refresher import RefreshSources
from service.http.readiness import Readiness
from tests.service.http.serving import Served, Setting, served, until_started, whole_customers


async def test_undescribed_dimensions_are_named() -> None:
    """Before its store has answered, a dimension is named with the reason."""
    async with served() as service:
        readiness = service.parts.readiness
        await asyncio.gather(
            *[each.wait_until_described(1.0) for each in service.parts.dimensions.values()]
        )

        assert readiness.undescribed() == {}


def test_drain_refuses_what_is_new() -> None:
    """Once the drain has begun, a lookup is told to come again elsewhere or later."""
    readiness = Readiness({})
    readiness.check_not_draining()

    readiness.start_draining()

    with pytest.raises(Overloaded) as caught:
        readiness.check_not_draining()
    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.DRAINING, 5.0)


def test_drain_may_begin_twice() -> None:
    """A second signal changes nothing."""
    readiness = Readiness({})

    readiness.start_draining()
    readiness.start_draining()

    assert readiness.is_draining


async def test_reading_goes_on_while_draining(service: Served) -> None:
    """Figures stay visible during the drain; only new work is refused."""
    service.parts.readiness.start_draining()

    async with service.unix.get("/v1/dimensions") as response:
        assert response.status == 200
    response = await service.lookup('{"keys": [1]}')
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert (await response.json())["code"] == "draining"


def test_short_memory_refuses_what_is_new() -> None:
    """Without memory for it, a request is told to come again; it is served when there is some."""
    readiness = Readiness({})
    readiness.allow_requests(is_allowed=False)
    with pytest.raises(Overloaded) as caught:
        readiness.check_has_memory()
    readiness.allow_requests(is_allowed=True)
    readiness.check_has_memory()

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)


async def test_cold_dimensions_are_named() -> None:
    """What is to be held whole is named with what it waits for, and nothing else is."""
    table = whole_customers()
    table.hold("read")
    async with served(Setting(sources={"customers": RefreshSources(table=table)})) as service:
        readiness = service.parts.readiness
        cold = readiness.cold()
        table.release("read")
        await until_started(service)

        assert (list(cold), readiness.cold()) == (["customers"], {})
