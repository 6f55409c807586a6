"""`GET /openapi.json`: the HTTP surface as OpenAPI 3.1.

Describes the routes of `application`; a test calls each of them and holds the two together.
"""

from typing import Any

import orjson
from aiohttp import web

from service.http.body import MediaType
from service.http.problem import CONTENT_TYPE
from service.http.replies.arrow import RESULT_FIELDS
from service.http.routes.openapi_schemas import openapi_schemas, reference

_Operation = dict[str, Any]

_ANONYMOUS_OR_TOKEN: list[dict[str, list[str]]] = [{}, {"token": []}]
_RESULT_NAMES = ", ".join(field.name for field in RESULT_FIELDS)
_ARROW_NOTE = (
    f"As an Arrow stream the answer is one record batch: {_RESULT_NAMES}, then the row's columns. "
    "For keys that come as an Arrow stream, and for no others, `columns` and `timeout_ms` stand in "
    "the query."
)


class OpenApi:
    """Handles the question what the service offers."""

    def __init__(self, version: str) -> None:
        self._body = orjson.dumps(openapi_document(version))

    async def get(self, _request: web.Request) -> web.Response:
        """The document, which never changes while the service runs."""
        return web.Response(body=self._body, content_type=MediaType.JSON.value)


def openapi_document(version: str) -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sidelook",
            "version": version,
            "summary": "Looks up rows of dimensions by key; batched, coalesced and cached.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {**_dimension_paths(), **_service_paths()},
        "components": {
            "schemas": openapi_schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": _ANONYMOUS_OR_TOKEN,
    }


def _dimension_paths() -> dict[str, Any]:
    name, key = _path_parameter("name", "A configured dimension."), _key_parameter()
    one = "/v1/dimensions/{name}"
    return {
        "/v1/dimensions": {"get": _reading("listDimensions", "DimensionNames", errors=())},
        one: {"parameters": [name], "get": _reading("getDimension", "Dimension")},
        f"{one}/lookup": {"parameters": [name, *_query_parameters()], "post": _lookup()},
        f"{one}/rows/{{key}}": {
            "parameters": [name, key, *_query_parameters()],
            "get": _reading("getRow", "Row", errors=(400, 404, 409, 422, 502, 503, 504)),
        },
        f"{one}/explain/{{key}}": {
            "parameters": [name, key],
            "get": _reading("explainKey", "Explanation", errors=(400, 404, 503)),
        },
        f"{one}/invalidate": {"parameters": [name], "post": _invalidate()},
        f"{one}/reload": {"parameters": [name], "post": _reload()},
    }


def _service_paths() -> dict[str, Any]:
    text, html = "text/plain", "text/html"
    return {
        "/v1/channels": {"get": _reading("listChannels", "Channels", errors=())},
        "/v1/status": {"get": _reading("getStatus", "Status", errors=())},
        "/v1/stream": {"get": _stream()},
        "/livez": {"get": _plain("isAlive", "The event loop runs.", text)},
        "/readyz": {"get": _plain("isReady", "Lookups may come.", text, errors=(503,))},
        "/startupz": {"get": _plain("isStarted", "Whole tables are loaded.", text, errors=(503,))},
        "/metrics": {"get": _plain("getMetrics", "Prometheus text format.", text, errors=(401,))},
        "/openapi.json": {"get": _plain("getOpenApi", "This.", MediaType.JSON.value)},
        "/": {"get": _plain("getStatusPage", "A page for people.", html)},
    }


def _lookup() -> _Operation:
    arrow: dict[str, Any] = {}
    return {
        "operationId": "lookup",
        "summary": "Look up many keys at once; failures of single keys are outcomes.",
        "description": _ARROW_NOTE,
        "requestBody": _body("LookupRequest", also={MediaType.ARROW.value: arrow}),
        "responses": {
            "200": _answer("LookupAnswer", also={MediaType.ARROW.value: arrow}),
            **_problems(400, 401, 404, 406, 408, 413, 415, 422, 502, 503, 504),
        },
    }


def _invalidate() -> _Operation:
    return {
        "operationId": "invalidate",
        "summary": "Forget rows that may have changed; needs the admin token.",
        "requestBody": _body("InvalidateRequest"),
        "responses": {
            "200": _answer("Invalidated"),
            **_problems(400, 401, 404, 408, 413, 415, 422, 503),
        },
    }


def _reload() -> _Operation:
    return {
        "operationId": "reload",
        "summary": "Load a table that is held whole anew; needs the admin token.",
        "description": "Answered at once; `freshness.load` of the dimension tells how it goes.",
        "responses": {"202": _answer("ReloadAsked"), **_problems(401, 404, 422, 503)},
    }


def _stream() -> _Operation:
    return {
        "operationId": "openStream",
        "summary": "The streaming protocol: a WebSocket with the subprotocol sidelook.v1.",
        "responses": {"101": {"description": "Upgraded."}, **_problems(400, 401, 503)},
    }


def _reading(operation: str, schema: str, *, errors: tuple[int, ...] = (404,)) -> _Operation:
    return {
        "operationId": operation,
        "responses": {"200": _answer(schema), **_problems(401, *errors)},
    }


def _plain(
    operation: str, summary: str, media_type: str, *, errors: tuple[int, ...] = ()
) -> _Operation:
    answer = {"description": summary, "content": {media_type: {}}}
    return {"operationId": operation, "responses": {"200": answer, **_problems(*errors)}}


def _body(schema: str, *, also: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"required": True, "content": _content(schema, also)}


def _answer(schema: str, *, also: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": schema, "content": _content(schema, also)}


def _content(schema: str, also: dict[str, Any] | None) -> dict[str, Any]:
    return {MediaType.JSON.value: {"schema": reference(schema)}, **(also or {})}


def _problems(*statuses: int) -> dict[str, Any]:
    content = {CONTENT_TYPE: {"schema": reference("Problem")}}
    problem = {"description": "RFC 9457 problem.", "content": content}
    # By default those that have nothing to do with the operation: Host, Origin, overload, a bug.
    return {**{str(status): problem for status in sorted(statuses)}, "default": problem}


def _path_parameter(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
    }


def _key_parameter() -> dict[str, Any]:
    return _path_parameter(
        "key", "A key; the percent-encoded parts of a composite key are parted by commas."
    )


def _query_parameters() -> list[dict[str, Any]]:
    columns = {"type": "array", "items": {"type": "string"}}
    timeout = {"type": "integer", "minimum": 1, "maximum": 3_600_000}
    return [
        {"name": "columns", "in": "query", "style": "form", "explode": False, "schema": columns},
        {"name": "timeout_ms", "in": "query", "schema": timeout},
    ]
