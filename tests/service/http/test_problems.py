"""Failures are RFC 9457 problems; replies match the OpenAPI document."""

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from structlog.testing import capture_logs

from lookup_core.answer import Outcome
from lookup_core.errors import BackendError, ErrorCode, InvalidRequest, Overloaded
from service.http.application import application
from service.http.problem import (
    HttpCode,
    problem_of_code,
    problem_of_error,
)
from service.http.routes.openapi import openapi_document
from service.http.security import Access
from tests.service.http.serving import (
    JSON_TYPE,
    Reply,
    Served,
    Setting,
    followed_customers,
    served,
    until_started,
    with_parts,
)
from tests.service.http.test_dimension_routes import CHANNEL

# Problems

OF_STREAMS = {"bad_frame", "unsupported_version", "credit_violation", "seq_gap", "unknown_channel"}
INTERNAL = {*OF_STREAMS, "internal", "sidecar_unreachable"}


@pytest.mark.parametrize("code", [*ErrorCode])
def test_every_code_has_its_status(code: ErrorCode) -> None:
    """Only codes of streams, defects and clients are a 500; only a 503 has `Retry-After`."""
    problem = problem_of_code(code, "why")

    assert (problem.status == 500) == (code.value in INTERNAL)
    assert (problem.retry_after_s is not None) == (problem.status == 503)
    assert problem.retryable == code.is_retryable


@pytest.mark.parametrize(("seconds", "header"), [(2.1, "3"), (0.0, "1")])
def test_overload_has_its_own_time(seconds: float, header: str) -> None:
    """`Retry-After` is in whole seconds, at least one; a detail is short and printable."""
    detail = "\ud800" + "a" * 10_000  # quoted from a request
    problem = problem_of_error(Overloaded(ErrorCode.OVERLOADED, detail, retry_after_s=seconds))

    assert problem.response().headers["Retry-After"] == header
    assert problem.detail == "\\ud800" + "a" * 499 + "…"
    assert problem_of_error(InvalidRequest(ErrorCode.BAD_JSON, "no")).retry_after_s is None


@pytest.mark.parametrize(
    ("error", "problem", "is_logged"),
    [
        (Overloaded(ErrorCode.OVERLOADED, "full", retry_after_s=1.0), (503, "overloaded"), False),
        (web.HTTPNotAcceptable(), (406, "not_acceptable"), False),
        (BackendError(ErrorCode.TIMEOUT, "slow"), (504, "timeout"), False),
        (web.HTTPGone(), (410, "bad_http"), False),
        (KeyError("4711"), (500, "internal"), True),
        (RecursionError(), (500, "internal"), True),
        (ConnectionResetError(), (422, "bad_request"), False),
    ],
)
async def test_handler_error_becomes_a_problem(
    error: Exception, problem: tuple[int, str], *, is_logged: bool
) -> None:
    """Every error of a handler becomes a problem; only a defect is logged, and not disclosed."""

    async def fail(_request: web.Request) -> web.StreamResponse:
        raise error

    with capture_logs() as logs:
        async with served(with_parts(stream=fail)) as service:
            reply = await service.get("/v1/stream")

    failed = [line for line in logs if line["event"] == "http.request_failed"]
    assert reply.problem == problem
    assert [(line["code"], line["exc_info"]) for line in failed] == [("internal", True)] * is_logged
    assert b"4711" not in reply.body


# The OpenAPI document

DOCUMENT = openapi_document("1.2.3")
OPERATIONS = sorted(
    (path, method)
    for path, item in DOCUMENT["paths"].items()
    for method in item
    if method != "parameters"
)
BODIES = {"lookup": '{"keys": [1, 9, "x"]}', "invalidate": '{"keys": [1]}'}
WHOLE = Setting(
    change_parts=lambda parts: replace(parts, channels=lambda: [CHANNEL]),
    sources={"customers": followed_customers()},
)


async def test_document_has_every_route() -> None:
    """The served document is valid, and has exactly the routes of the application."""
    async with served() as service:
        app = application(service.parts, Access())
        document = (await service.get("/openapi.json", over="tcp")).json
    routed = {
        (route.resource.canonical, route.method.lower())
        for route in app.router.routes()
        if route.resource is not None and route.method not in {"HEAD", "*"}
    }

    validate(DOCUMENT)
    assert (document, set(OPERATIONS)) == (DOCUMENT, routed)


def test_document_has_every_code() -> None:
    """Schemas name every outcome and code, and refuse unknown fields of requests."""
    schemas = DOCUMENT["components"]["schemas"]
    for schema in schemas.values():
        OAS31Validator.check_schema(schema)

    outcomes = schemas["LookupAnswer"]["properties"]["outcomes"]["items"]["enum"]
    codes = schemas["Problem"]["properties"]["code"]["enum"]
    assert outcomes == [outcome.label for outcome in Outcome]
    assert set(codes) == {*(code.value for code in ErrorCode), *(code.value for code in HttpCode)}
    assert not schemas["LookupRequest"]["additionalProperties"]
    assert not schemas["InvalidateRequest"]["additionalProperties"]


async def test_answers_are_as_documented() -> None:
    """Successful replies of every operation have a documented status, type and body."""
    async with served(WHOLE) as service:
        await until_started(service)
        for path, method in OPERATIONS:
            reply = await call(service, path, method, key="1")
            assert reply.status < 400 or path == "/v1/stream"
            check(reply, path, method)


async def test_failures_are_as_documented() -> None:
    """Every operation has documented problems for bad requests, unknown names and a drain."""
    async with served() as service:
        for path, method in OPERATIONS:
            check(await call(service, path, method, key="x", body="["), path, method)
            if "{name}" in path:
                reply = await call(service, path, method, key="1", name="nope")
                assert reply.status == 404
                check(reply, path, method)
        service.parts.readiness.start_draining()
        for path, method in OPERATIONS:
            check(await call(service, path, method, key="x", body="["), path, method)


async def call(
    service: Served, path: str, method: str, *, key: str, name: str = "customers", body: str = ""
) -> Reply:
    """Call an operation."""
    url = path.replace("{name}", name).replace("{key}", key)
    sent = body or BODIES.get(url.rpartition("/")[2], "")
    data = sent if method == "post" else None
    return await service.get(url, method=method.upper(), headers=JSON_TYPE, data=data)


def check(reply: Reply, path: str, method: str) -> None:
    """Check an answer against the document."""
    operation: dict[str, Any] = DOCUMENT["paths"][path][method]
    kind = reply.headers["Content-Type"].partition(";")[0]
    media = operation["responses"][str(reply.status)]["content"][kind]
    if kind in {"application/json", "application/problem+json"}:
        schema = {**media.get("schema", {}), "components": DOCUMENT["components"]}
        OAS31Validator(schema).validate(reply.json)
