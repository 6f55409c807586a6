"""Dimensions tell what they are and how they are doing."""

from collections.abc import Mapping

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.backend import FakeBackend
from tests.service.http.serving import (
    Served,
    Setting,
    followed_customers,
    served,
    until_started,
)


async def test_names_are_listed(service: Served) -> None:
    """All configured dimensions are named, sorted."""
    async with service.unix.get("/v1/dimensions") as response:
        assert await response.json() == {"dimensions": ["customers", "weather"]}


async def test_dimension_tells_its_schema(service: Served) -> None:
    """Key and columns are told with their exact types."""
    async with service.unix.get("/v1/dimensions/weather") as response:
        told = await response.json()

    assert [(field["name"], field["type"]) for field in told["key"]] == [
        ("origin", "string"),
        ("hour", "timestamp[us, tz=UTC]"),
    ]
    assert told["columns"] == [{"name": "temperature", "type": "double", "nullable": True}]
    assert told["unavailable"] is None


async def test_dimension_tells_its_figures(service: Served) -> None:
    """Lookups and cache are told as the engine counts them."""
    await service.lookup('{"keys": [1, 1, 9]}')

    async with service.unix.get("/v1/dimensions/customers") as response:
        told = await response.json()

    assert {name: count for name, count in told["lookups"].items() if count} == {
        "fetched": 2,
        "missing": 1,
    }
    assert (told["cache"]["mode"], told["cache"]["rows"], told["coalesced_keys"]) == (
        "partial",
        2,
        1,
    )
    assert told["freshness"]["staleness_s"] >= 0


async def test_dimension_tells_its_freshness() -> None:
    """What follows it and what loads it are told as the engine knows them."""
    async with served(Setting(sources={"customers": followed_customers()})) as service:
        await until_started(service)
        async with service.unix.get("/v1/dimensions/customers") as response:
            told = (await response.json())["freshness"]

    assert (told["feed"]["state"], told["load"]["is_whole"], told["load"]["rows"]) == (
        "live",
        True,
        3,
    )


async def test_absent_store_is_told() -> None:
    """A dimension whose store has not described it is listed with the reason, and zeros."""
    async with (
        served(Setting(prepare=_away)) as service,
        service.unix.get("/v1/dimensions/customers") as response,
    ):
        told = await response.json()

    assert (told["key"], told["columns"]) == (None, None)
    assert told["unavailable"] == {"code": "table_unavailable", "detail": "no such table"}
    assert set(told["lookups"].values()) == {0}


def _away(backends: Mapping[str, FakeBackend]) -> None:
    error = BackendError(ErrorCode.TABLE_UNAVAILABLE, "no such table")
    backends["customers"].describe_error = error
