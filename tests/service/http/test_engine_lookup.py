"""A lookup waits for a store that is away, but not beyond its own time."""

import asyncio
from collections.abc import Mapping

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.backend import FakeBackend
from tests.service.http.serving import Served, Setting, served

DOWN = BackendError(ErrorCode.TABLE_UNAVAILABLE, "customers: no such table")


async def test_lookups_wait_for_the_schema() -> None:
    """A store that comes up within the timeout answers the lookups that came before."""
    async with served(Setting(prepare=_away)) as service:
        waiting = asyncio.create_task(service.lookup('{"keys": [1]}'))
        service.customers.describe_error = None
        response = await waiting

    assert (await response.json())["outcomes"] == ["fetched"]


async def test_absent_stores_fail_the_request() -> None:
    """A store that stays away is told with its reason, and the request may be tried again."""
    async with served(Setting(prepare=_away)) as service:
        response = await service.lookup('{"keys": [1], "timeout_ms": 50}')

    problem = await response.json()
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert (problem["code"], problem["detail"]) == (DOWN.code.value, DOWN.detail)


async def test_unknown_columns_ask_nobody(service: Served) -> None:
    """A column that the dimension does not offer is found before any query."""
    response = await service.lookup('{"keys": [1], "columns": ["nme"]}')

    detail = (await response.json())["detail"]
    assert detail == "the dimension has no column nme; did you mean name?"
    assert service.customers.batches == []


def _away(backends: Mapping[str, FakeBackend]) -> None:
    backends["customers"].describe_error = DOWN
