"""The document is valid, complete and true: each operation is called and held against it."""

from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from service.http.application import application
from service.http.routes.openapi import openapi_document
from service.http.security import Access
from tests.service.http.serving import (
    JSON_TYPE,
    Served,
    Setting,
    followed_customers,
    served,
    until_started,
)
from tests.service.http.test_channels import CHANNEL

DOCUMENT = openapi_document("1.2.3")
OPERATIONS = sorted(
    (path, method)
    for path, item in DOCUMENT["paths"].items()
    for method in item
    if method != "parameters"
)
BODIES = {"lookup": '{"keys": [1, 9, "x"]}', "invalidate": '{"keys": [1]}'}
JSON = "application/json"
PROBLEM = "application/problem+json"


def test_document_is_valid() -> None:
    """A validator that others use finds nothing wrong."""
    validate(DOCUMENT)


async def test_every_route_is_documented(service: Served) -> None:
    """The document has exactly the application's routes."""
    app = application(service.parts, Access())
    routed = {
        (route.resource.canonical, route.method.lower())
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }

    assert set(OPERATIONS) == routed


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
async def test_answers_are_as_documented(path: str, method: str) -> None:
    """A good request has a documented status, type and body."""
    setting = Setting(
        change_parts=lambda parts: replace(parts, channels=lambda: [CHANNEL]),
        sources={"customers": followed_customers()},
    )
    async with served(setting) as service:
        await until_started(service)
        response = await _call(service.unix, path.replace("{key}", "1"), method)

    assert response.ok or path == "/v1/stream"
    await _hold_against(DOCUMENT["paths"][path][method], response)


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
async def test_failures_are_as_documented(path: str, method: str) -> None:
    """While the service drains and its stores are away, answers are documented, too."""
    async with served() as service:
        service.parts.readiness.start_draining()
        response = await _call(service.unix, path.replace("{key}", "x"), method, body="[")

    await _hold_against(DOCUMENT["paths"][path][method], response)


@pytest.mark.parametrize(("path", "method"), [each for each in OPERATIONS if "{name}" in each[0]])
async def test_unknown_dimensions_are_documented(path: str, method: str) -> None:
    """Each operation on a dimension says what happens where there is none."""
    async with served() as service:
        wanted = path.replace("{key}", "1").replace("{name}", "nope")
        response = await _call(service.unix, wanted, method)

    assert response.status == 404
    await _hold_against(DOCUMENT["paths"][path][method], response)


async def test_document_is_served(service: Served) -> None:
    """What the service serves is this document, with its own version."""
    async with service.tcp.get("/openapi.json") as response:
        assert await response.json() == DOCUMENT


async def _call(
    client: aiohttp.ClientSession, path: str, method: str, body: str | None = None
) -> aiohttp.ClientResponse:
    url = path.replace("{name}", "customers")
    sent = body or BODIES.get(url.rpartition("/")[2], "")
    async with client.request(
        method, url, data=sent if method == "post" else None, headers=JSON_TYPE
    ) as response:
        await response.read()
    return response


async def _hold_against(operation: dict[str, Any], response: aiohttp.ClientResponse) -> None:
    documented = operation["responses"][str(response.status)]["content"]
    media = documented[response.content_type]
    if response.content_type in {JSON, PROBLEM}:
        schema = {**media.get("schema", {}), "components": DOCUMENT["components"]}
        OAS31Validator(schema).validate(await response.json(content_type=None))
