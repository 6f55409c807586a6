"""`GET /openapi.json`: the table of routes as OpenAPI 3.1, with the schemas of the models."""

from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from service.http.body import MediaType
from service.http.problem import CONTENT_TYPE, Problem
from service.http.routes.lookup_request import LookupRequestBody
from service.http.routes.table import ROUTES, Route
from service.http.security import PUBLIC, Audience

_Object = dict[str, Any]

_REFERENCE = "#/components/schemas/{model}"
_BEARER: _Object = {"type": "http", "scheme": "bearer"}
_PATH_PARAMETERS = {
    "name": "A configured dimension.",
    "key": "A key; commas separate the percent-encoded parts of a composite key.",
}


class _Schemas(GenerateJsonSchema):
    """Schemas whose names lack the suffixes that set models apart in Python."""

    def normalize_name(self, name: str) -> str:
        """The name of a schema."""
        return super().normalize_name(_schema_name(name))


def _schema_name(model: str) -> str:
    return model.removesuffix("Reply").removesuffix("Body")


class OpenApi:
    """Handler of the document."""

    def __init__(self, version: str) -> None:
        self._body = orjson.dumps(openapi_document(version))

    async def get(self, _request: web.Request) -> web.Response:
        """The document; it does not change while the service runs."""
        return web.Response(body=self._body, content_type=MediaType.JSON.value)


def openapi_document(version: str) -> _Object:
    """The whole document."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(Problem, "serialization")]
    for route in ROUTES:
        if route.body is not None:
            models.append((route.body, "validation"))
        if isinstance(route.reply, type):
            models.append((route.reply, "serialization"))
    _, schemas = models_json_schema(models, ref_template=_REFERENCE, schema_generator=_Schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sidelook",
            "version": version,
            "summary": "Looks up rows of dimensions by key; batched, coalesced and cached.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {route.path: _path(route) for route in ROUTES},
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "token": {**_BEARER, "description": "The token of `auth.token_file`."},
                "admin_token": {**_BEARER, "description": "That of `auth.admin_token_file`."},
            },
        },
        "security": [{}, {"token": []}],
    }


def _path(route: Route) -> _Object:
    found: _Object = {route.method.lower(): _operation(route)}
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": description,
            "schema": {"type": "string"},
        }
        for name, description in _PATH_PARAMETERS.items()
        if f"{{{name}}}" in route.path
    ]
    if route.has_query:
        parameters += _query_parameters()
    return {"parameters": parameters, **found} if parameters else found


def _operation(route: Route) -> _Object:
    operation: _Object = {
        "operationId": route.operation,
        "summary": route.summary,
        "responses": {str(route.status): _success(route), **_problems(route)},
    }
    if route.note is not None:
        operation["description"] = route.note
    if route.body is not None:
        content = _json(route.body) | _arrow(route)
        operation["requestBody"] = {"required": True, "content": content}
    if route.audience in PUBLIC:
        operation["security"] = []
    if route.audience is Audience.ADMIN:
        operation["security"] = [{}, {"admin_token": []}]
    return operation


def _success(route: Route) -> _Object:
    match route.reply:
        case None:
            return {"description": "Upgraded."}
        case str(media_type):
            return {"description": route.summary, "content": {media_type: {}}}
        case model:
            return {
                "description": _schema_name(model.__name__),
                "content": _json(model) | _arrow(route),
            }


def _json(model: type[BaseModel], media_type: str = MediaType.JSON.value) -> _Object:
    return {media_type: {"schema": {"$ref": _REFERENCE.format(model=_schema_name(model.__name__))}}}


def _arrow(route: Route) -> _Object:
    return {MediaType.ARROW.value: {}} if route.has_arrow else {}


def _problems(route: Route) -> _Object:
    problem = {"description": "RFC 9457 problem.", "content": _json(Problem, CONTENT_TYPE)}
    # The default stands for Host, Origin, overload and bugs, which any operation may return.
    return {**{str(status): problem for status in _statuses(route)}, "default": problem}


def _statuses(route: Route) -> list[int]:
    """The statuses of problems: those of all such routes, and the route's own."""
    statuses = set(route.errors)
    if route.audience not in PUBLIC:
        statuses.add(401)
    if route.audience is Audience.CALLER:
        statuses.add(503)
    if "{name}" in route.path:
        statuses.add(404)
    if "{key}" in route.path:
        statuses.add(400)
    if route.body is not None:
        statuses |= {400, 408, 413, 415}
    return sorted(statuses)


def _query_parameters() -> list[_Object]:
    fields = LookupRequestBody.model_json_schema()["properties"]
    # The first alternative is the value's type, the second is null: a query has no null.
    columns, timeout = (fields[name]["anyOf"][0] for name in ("columns", "timeout_ms"))
    return [
        {"name": "columns", "in": "query", "style": "form", "explode": False, "schema": columns},
        {"name": "timeout_ms", "in": "query", "schema": timeout},
    ]
