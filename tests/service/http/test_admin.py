"""Rows can be forgotten by key or all at once, never by mistake; whole tables are loaded anew."""

from collections.abc import Mapping
from dataclasses import replace

import aiohttp
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.backend import FakeBackend
from service.http.limits import Limits
from tests.service.http.serving import (
    JSON_TYPE,
    Served,
    Setting,
    followed_customers,
    served,
    until_loaded,
    until_started,
)


async def test_named_keys_are_forgotten(service: Served) -> None:
    """The next lookup of a forgotten key asks the store again, that of another key does not."""
    await service.lookup('{"keys": [1, 2]}')

    response = await _invalidate(service, '{"keys": [1, 9]}')

    assert (response.status, await response.json()) == (200, {"invalidated": 1})
    answer = await (await service.lookup('{"keys": [1, 2]}')).json()
    assert answer["outcomes"] == ["fetched", "hit"]


async def test_all_keys_are_forgotten(service: Served) -> None:
    """`all` empties the dimension's cache, and no other's."""
    await service.lookup('{"keys": [1, 2]}')

    response = await _invalidate(service, '{"all": true}')

    assert await response.json() == {"invalidated": 2}
    answer = await (await service.lookup('{"keys": [1, 2]}')).json()
    assert answer["outcomes"] == ["fetched", "fetched"]


async def test_wrong_keys_are_refused(service: Served) -> None:
    """A key of another type could not be forgotten; the operator must learn that."""
    response = await _invalidate(service, '{"keys": [1, "2"]}')

    problem = await response.json()
    assert (response.status, problem["code"]) == (422, "key_type")
    assert problem["detail"] == "keys.1: type"


@pytest.mark.parametrize("body", ["{}", '{"all": false}', '{"keys": [1], "all": true}'])
async def test_unclear_requests_are_refused(service: Served, body: str) -> None:
    """It must be said what is to be forgotten."""
    response = await _invalidate(service, body)

    assert (response.status, (await response.json())["code"]) == (422, "bad_request")


async def test_too_many_keys_are_refused() -> None:
    """The limit of lookups holds here, too."""
    async with served(Setting(limits=Limits(request_keys=1))) as service:
        response = await _invalidate(service, '{"keys": [1, 2]}')

    assert (response.status, (await response.json())["code"]) == (413, "too_many_keys")


async def test_arrow_is_not_taken(service: Served) -> None:
    """Only lookups take Arrow."""
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    path = "/v1/dimensions/customers/invalidate"

    async with service.unix.post(path, data=b"", headers=headers) as response:
        assert response.status == 415


async def test_whole_table_is_loaded_anew() -> None:
    """The request is taken at once; the load comes after it, and is counted."""
    async with served(_whole()) as service:
        await until_started(service)
        response = await _reload(service)
        await until_loaded(service, times=2)

    assert (response.status, await response.json()) == (202, {"reload": "asked"})


async def test_reload_without_a_whole_table_is_refused(service: Served) -> None:
    """Where rows are read through there is nothing to load; the setting is named."""
    await service.lookup('{"keys": []}')

    response = await _reload(service)

    problem = await response.json()
    assert (response.status, problem["code"]) == (422, "bad_request")
    assert "cache.mode: full" in problem["detail"]


async def test_reload_reads_no_body() -> None:
    """Whatever comes with the request is not looked at, and does no harm to the connection."""
    async with served(_whole()) as service:
        await until_started(service)
        statuses = [(await _reload(service, b"[" * 1000)).status for _ in range(2)]

    assert statuses == [202, 202]


async def test_reload_waits_for_a_description() -> None:
    """While the store has not described the table, the request may be tried again."""
    away = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "away")

    def prepare(backends: Mapping[str, FakeBackend]) -> None:
        backends["customers"].describe_error = away

    async with served(replace(_whole(), prepare=prepare)) as service:
        response = await _reload(service)

    problem = await response.json()
    assert (response.status, problem["code"], problem["retryable"]) == (
        503,
        "backend_unavailable",
        True,
    )


def _whole() -> Setting:
    return Setting(sources={"customers": followed_customers()})


async def _reload(service: Served, body: bytes | None = None) -> aiohttp.ClientResponse:
    async with service.unix.post("/v1/dimensions/customers/reload", data=body) as response:
        await response.read()
    return response


async def _invalidate(service: Served, body: str) -> aiohttp.ClientResponse:
    path = "/v1/dimensions/customers/invalidate"
    async with service.unix.post(path, data=body, headers=JSON_TYPE) as response:
        await response.read()
    return response
