"""Probes tell apart what lives, what may take lookups, and what has started."""

from collections.abc import Mapping

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.backends.fake import FakeBackend
from tests.service.http.serving import Served, Setting, served

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


def _away(backends: Mapping[str, FakeBackend]) -> None:
    backends["customers"].describe_error = BackendError(ErrorCode.FORBIDDEN, "may not be read")
