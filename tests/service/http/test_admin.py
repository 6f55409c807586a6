"""Rows can be forgotten by key or all at once, and nothing is forgotten by mistake."""

import aiohttp
import pytest

from service.http.limits import Limits
from tests.service.http.serving import JSON_TYPE, Served, Setting, served


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


async def _invalidate(service: Served, body: str) -> aiohttp.ClientResponse:
    path = "/v1/dimensions/customers/invalidate"
    async with service.unix.post(path, data=body, headers=JSON_TYPE) as response:
        await response.read()
    return response
