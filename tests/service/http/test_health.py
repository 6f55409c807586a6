"""Probes tell apart what lives, what may take lookups, and what has started."""

from collections.abc import Mapping

import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.statistics import InvalidationOrigin
from service.connectors.memory.backend import FakeBackend
from service.connectors.memory.source import FakeSource
from service.engine.refresher import RefreshSources
from tests.service.http.serving import (
    Served,
    Setting,
    followed_customers,
    served,
    until_started,
    whole_customers,
)

PROBES = ("/livez", "/readyz", "/startupz")


@pytest.mark.parametrize("path", PROBES)
async def test_healthy_service_passes_its_probes(service: Served, path: str) -> None:
    """With all dimensions known, every probe is a plain ok on every listener."""
    await service.lookup('{"keys": []}')
    await service.lookup('{"keys": []}', "weather")

    for client in (service.health, service.tcp, service.unix):
        async with client.get(path) as response:
            assert (response.status, await response.text()) == (200, "ok\n")


@pytest.mark.parametrize(("path", "status"), [*zip(PROBES, (200, 503, 200), strict=True)])
async def test_dead_database_only_ends_readiness(path: str, status: int) -> None:
    """A store that is away must neither restart the service nor hold up its executor."""
    async with (
        served(Setting(prepare=_away)) as service,
        service.health.get(path) as response,
    ):
        assert response.status == status


async def test_unready_service_tells_why() -> None:
    """Each dimension that cannot be looked up is named with the reason."""
    async with (
        served(Setting(prepare=_away)) as service,
        service.health.get("/readyz") as response,
    ):
        problem = await response.json()

    assert (problem["code"], response.headers["Retry-After"]) == ("forbidden", "1")
    assert "customers: may not be read" in problem["detail"]


@pytest.mark.parametrize(("path", "status"), [*zip(PROBES, (200, 503, 200), strict=True)])
async def test_draining_service_is_not_ready(service: Served, path: str, status: int) -> None:
    """During the drain no new lookups should come, but the process must not be killed."""
    service.parts.readiness.start_draining()

    async with service.health.get(path) as response:
        assert response.status == status


async def test_metrics_are_prometheus_text(service: Served) -> None:
    """The scrape is what the renderer made, with the format's content type."""
    async with service.health.get("/metrics") as response:
        assert await response.text() == "# metrics\n"

    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(("path", "status"), [*zip(PROBES, (200, 503, 503), strict=True)])
async def test_load_under_way_holds_the_start(path: str, status: int) -> None:
    """Until its whole table is loaded a dimension is not started, and no reason to be killed."""
    async with served(_loading()) as service, service.health.get(path) as response:
        assert response.status == status


async def test_cold_service_tells_why() -> None:
    """Each dimension that is waited for is named with what it waits for."""
    async with served(_loading()) as service, service.health.get("/startupz") as response:
        problem = await response.json()

    assert (problem["code"], response.headers["Retry-After"]) == ("table_unavailable", "1")
    assert problem["detail"].startswith("customers: ")


async def test_start_ends_with_the_load() -> None:
    """Once the table is whole, the probes pass, and a later doubt takes nothing back."""
    table = whole_customers()
    async with served(_loading(table)) as service:
        table.release("read")
        await until_started(service)
        service.parts.dimensions["customers"].invalidate(None, origin=InvalidationOrigin.ADMIN)

        async with service.health.get("/startupz") as response:
            assert response.status == 200


async def test_cold_dimension_without_a_store_tells_of_it() -> None:
    """What keeps the store from describing the table is what keeps the load from beginning."""
    sources = {"customers": followed_customers()}
    async with (
        served(Setting(prepare=_away, sources=sources)) as service,
        service.health.get("/startupz") as response,
    ):
        problem = await response.json()

    assert (response.status, problem["detail"]) == (503, "customers: may not be read")


def _loading(table: FakeSource | None = None) -> Setting:
    """A table that is not read before its gate is opened."""
    table = table or whole_customers()
    table.hold("read")
    return Setting(sources={"customers": RefreshSources(table=table)})


def _away(backends: Mapping[str, FakeBackend]) -> None:
    backends["customers"].describe_error = BackendError(ErrorCode.FORBIDDEN, "may not be read")
