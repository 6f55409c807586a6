"""`GET /openapi.json`: the HTTP interface as OpenAPI 3.1, generated from the pydantic models."""

from collections.abc import Sequence
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.http.body import MediaType
from service.http.problem import CONTENT_TYPE, Problem
from service.http.replies import models
from service.http.replies.arrow import RESULT_FIELDS
from service.http.routes.lookup_request import InvalidateRequest, LookupRequest

_Object = dict[str, Any]
_Model = type[BaseModel]

_REFERENCE = "#/components/schemas/{model}"
_BEARER: _Object = {"type": "http", "scheme": "bearer"}
_OF_ADMIN: list[_Object] = [{}, {"admin_token": []}]
_RESULT_NAMES = ", ".join(field.name for field in RESULT_FIELDS)
_ARROW_NOTE = (
    f"The Arrow reply is one record batch: {_RESULT_NAMES}, then the columns of the row. The query "
    "parameters `columns` and `timeout_ms` are for keys in an Arrow stream only."
)
_MODELS: list[tuple[_Model, JsonSchemaMode]] = [
    *((model, "validation") for model in (LookupRequest, InvalidateRequest)),
    *(
        (model, "serialization")
        for model in (
            *(models.LookupAnswer, models.Row, models.DimensionNames, models.Dimension),
            *(models.Explanation, models.Invalidated, models.ReloadRequested, models.Channels),
            *(models.Status, models.StatusHistory, Problem),
        )
    ),
]


class OpenApi:
    """Handler of the document."""

    def __init__(self, version: str) -> None:
        self._body = orjson.dumps(openapi_document(version))

    async def get(self, _request: web.Request) -> web.Response:
        """The document; it does not change while the service runs."""
        return web.Response(body=self._body, content_type=MediaType.JSON.value)


def openapi_document(version: str) -> _Object:
    """The whole document."""
    _, schemas = models_json_schema(_MODELS, ref_template=_REFERENCE)
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
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "token": {**_BEARER, "description": "The token of `auth.token_file`."},
                "admin_token": {**_BEARER, "description": "That of `auth.admin_token_file`."},
            },
        },
        "security": [{}, {"token": []}],
    }


def _dimension_paths() -> _Object:
    name = _path_parameter("name", "A configured dimension.")
    key = _path_parameter(
        "key", "A key; commas separate the percent-encoded parts of a composite key."
    )
    query = _query_parameters()
    one = "/v1/dimensions/{name}"
    return {
        "/v1/dimensions": {
            "get": _operation(
                "listDimensions", "List the dimensions.", models.DimensionNames, errors=(401,)
            )
        },
        one: {
            "parameters": [name],
            "get": _operation(
                "getDimension",
                "Get schema, settings and state of a dimension.",
                models.Dimension,
                errors=(401, 404),
            ),
        },
        f"{one}/lookup": {"parameters": [name, *query], "post": _lookup()},
        f"{one}/rows/{{key}}": {
            "parameters": [name, key, *query],
            "get": _operation(
                "getRow",
                "Look up one key; its failure is the status.",
                models.Row,
                errors=(400, 401, 404, 409, 422, 502, 503, 504),
            ),
        },
        f"{one}/explain/{{key}}": {
            "parameters": [name, key],
            "get": _operation(
                "explainKey",
                "Explain where the answer to a key comes from, without a query.",
                models.Explanation,
                errors=(400, 401, 404, 503),
            ),
        },
        f"{one}/invalidate": {"parameters": [name], "post": _invalidate()},
        f"{one}/reload": {"parameters": [name], "post": _reload()},
    }


def _service_paths() -> _Object:
    text, loaded = "text/plain", "Check that all full tables are loaded."
    return {
        "/v1/channels": {
            "get": _operation(
                "listChannels", "List the open channels.", models.Channels, errors=(401,)
            )
        },
        "/v1/status": {
            "get": _operation(
                "getStatus", "Get the state of the sidecar.", models.Status, errors=(401,)
            )
        },
        "/v1/status/history": {
            "get": _operation(
                "getStatusHistory",
                "Get the totals of the last ten minutes.",
                models.StatusHistory,
                errors=(401,),
            )
        },
        "/v1/stream": {
            "get": {
                "operationId": "openStream",
                "summary": "Open a WebSocket with the subprotocol sidelook.v1.",
                "responses": {"101": {"description": "Upgraded."}, **_problems(400, 401, 503)},
            }
        },
        "/livez": {"get": _public("isAlive", "Check that the event loop runs.", text)},
        "/readyz": {"get": _public("isReady", "Check that lookups are accepted.", text, 503)},
        "/startupz": {"get": _public("isStarted", loaded, text, 503)},
        "/metrics": {"get": _plain("getMetrics", "Get the metrics for Prometheus.", text, 401)},
        "/openapi.json": {
            "get": _public("getOpenApi", "Get the OpenAPI document.", MediaType.JSON.value)
        },
        "/": {"get": _public("getStatusPage", "Get the status page.", "text/html")},
    }


def _lookup() -> _Object:
    statuses = 400, 401, 404, 406, 408, 413, 415, 422, 502, 503, 504
    summary = "Look up many keys at once; failures of single keys are outcomes."
    operation = _operation("lookup", summary, models.LookupAnswer, errors=statuses)
    arrow: _Object = {MediaType.ARROW.value: {}}
    operation["responses"]["200"]["content"] |= arrow
    return {
        **operation,
        "description": _ARROW_NOTE,
        "requestBody": {"required": True, "content": _json(LookupRequest) | arrow},
    }


def _invalidate() -> _Object:
    statuses = 400, 401, 404, 408, 413, 415, 422, 503
    return {
        **_operation(
            "invalidate", "Drop rows from the cache.", models.Invalidated, errors=statuses
        ),
        "security": _OF_ADMIN,
        "requestBody": {"required": True, "content": _json(InvalidateRequest)},
    }


def _reload() -> _Object:
    return {
        **_operation(
            "reload",
            "Load the full table again.",
            models.ReloadRequested,
            errors=(401, 404, 422, 503),
            success="202",
        ),
        "security": _OF_ADMIN,
        "description": "Returns at once; `freshness.load` shows the progress.",
    }


def _operation(
    name: str, summary: str, model: _Model, *, errors: Sequence[int], success: str = "200"
) -> _Object:
    answer = {"description": model.__name__, "content": _json(model)}
    responses = {success: answer, **_problems(*errors)}
    return {"operationId": name, "summary": summary, "responses": responses}


def _public(name: str, summary: str, media_type: str, *errors: int) -> _Object:
    return {**_plain(name, summary, media_type, *errors), "security": []}


def _plain(name: str, summary: str, media_type: str, *errors: int) -> _Object:
    answer = {"description": summary, "content": {media_type: {}}}
    responses = {"200": answer, **_problems(*errors)}
    return {"operationId": name, "summary": summary, "responses": responses}


def _json(model: _Model, media_type: str = MediaType.JSON.value) -> _Object:
    return {media_type: {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}


def _problems(*statuses: int) -> _Object:
    problem = {"description": "RFC 9457 problem.", "content": _json(Problem, CONTENT_TYPE)}
    # The default stands for Host, Origin, overload and bugs, which any operation may return.
    return {**{str(status): problem for status in sorted(statuses)}, "default": problem}


def _path_parameter(name: str, description: str) -> _Object:
    place = {"name": name, "in": "path", "required": True}
    return {**place, "description": description, "schema": {"type": "string"}}


def _query_parameters() -> list[_Object]:
    fields = LookupRequest.model_json_schema()["properties"]
    # The first alternative is the value's type, the second is null: a query has no null.
    columns, timeout = (fields[name]["anyOf"][0] for name in ("columns", "timeout_ms"))
    return [
        {"name": "columns", "in": "query", "style": "form", "explode": False, "schema": columns},
        {"name": "timeout_ms", "in": "query", "schema": timeout},
    ]
