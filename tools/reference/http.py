"""docs/reference/http.md: operations and schemas, from the OpenAPI document of the service."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from lookup_core.error_texts import ErrorScope
from lookup_core.errors import ErrorCode
from service.http.problem import HttpCode, problem_of_code
from service.http.routes.openapi import openapi_document
from service.version import own_version
from tools.reference.markdown import alternatives, bullets, code, examples, page, paragraph
from tools.reference.markdown import unwrapped as paragraphs

_Object = Mapping[str, Any]
_LARGEST_ENUM = 12  # members; a page lists no more


def http_page() -> str:
    """The text of the page."""
    texts, document = examples("http"), openapi_document(own_version())
    parts = [texts[""], "## Authorization", texts["Authorization"]]
    parts += ["## Status codes", texts["Status codes"], bullets(_statuses())]
    parts += ["## Setup of the examples", texts["Setup of the examples"]]
    for path, item in document["paths"].items():
        for method in ("get", "post"):
            if method in item:
                operation = {"parameters": item.get("parameters", []), **item[method]}
                parts += [f"## `{method.upper()} {path}`", *_operation_parts(operation)]
                parts.append(texts[operation["operationId"]])
    parts += ["## Schemas", texts["Schemas"]]
    for name, schema in document["components"]["schemas"].items():
        parts += [f"### {name}", *_schema_parts(schema)]
    return page("HTTP interface", parts)


def has_status(error: ErrorCode) -> bool:
    """Whether a reply of HTTP may have the code."""
    return error.scope not in {ErrorScope.STREAM, ErrorScope.CLIENT}


def error_codes() -> dict[int, list[str]]:
    """{status: its error codes}."""
    statuses: dict[int, list[str]] = {}
    for error in filter(has_status, ErrorCode):
        statuses.setdefault(problem_of_code(error, "").status, []).append(str(error))
    for each in HttpCode:
        statuses.setdefault(each.status, []).append(str(each))
    return dict(sorted(statuses.items()))


def _statuses() -> Iterator[str]:
    for status, codes in error_codes().items():
        named = ", ".join(map(code, codes))
        yield f"**{status}** {HTTPStatus(status).phrase}: {named}"


def _operation_parts(operation: _Object) -> Iterator[str]:
    yield paragraph(operation["summary"])
    yield from map(paragraph, paragraphs(operation.get("description", "")))
    facts = [f"operation {code(operation['operationId'])}", _access(operation)]
    yield paragraph(" · ".join(facts))
    fields = [*map(_parameter, operation["parameters"])]
    if body := operation.get("requestBody"):
        fields.append(f"body: {_media_types(body['content'])}")
    replies = operation["responses"]
    fields += [
        f"reply {status}: {_media_types(reply.get('content', {}))}"
        for status, reply in replies.items()
        if status < "400"
    ]
    if errors := [status for status in replies if "400" <= status < "600"]:
        fields.append(f"errors: {', '.join(errors)}")
    yield bullets(fields)


def _access(operation: _Object) -> str:
    match operation.get("security"):
        case []:
            return "no token"
        case [*_, {"admin_token": []}]:
            return "admin token"
    return "token, if one is configured"


def _parameter(parameter: _Object) -> str:
    description = parameter.get("description", "as in [LookupRequest](#lookuprequest)")
    kind = _type(parameter["schema"])
    return f"{code(parameter['name'])} ({parameter['in']}, {kind}): {description}"


def _media_types(content: _Object) -> str:
    texts = []
    for media_type, value in content.items():
        schema = f" {_type(value['schema'])}" if "schema" in value else ""
        texts.append(f"{code(media_type)}{schema}")
    return ", or ".join(texts) or "no body"


def _schema_parts(schema: _Object) -> Iterator[str]:
    yield from map(paragraph, paragraphs(schema.get("description", "")))
    properties = schema.get("properties", {})
    if properties:
        yield bullets(_field(name, value) for name, value in properties.items())
    elif "enum" in schema:
        yield paragraph(f"One of {alternatives(schema['enum'])}.")


def _field(name: str, schema: _Object) -> str:
    description = schema.get("description", "")
    return f"{code(name)} ({_type(schema)}){f': {description}' if description else ''}"


def _type(schema: _Object) -> str:
    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            text = f"[{name}](#{name.lower()})"
        case {"anyOf": [*some]}:
            text = " or ".join(map(_type, some))
        case {"enum": [*names]} if len(names) <= _LARGEST_ENUM:
            text = alternatives(map(str, names))
        case {"enum": _}:
            text = "[error code](errors.md)"
        case {"const": value}:
            text = code(value)
        case {"type": "array"}:
            text = f"list of {_type(schema['items'])}"
        case {"type": "object", "additionalProperties": dict(values)} if values:
            text = f"object of {_type(values)}"
        case {"type": kind}:
            text = str(kind)
        case _:
            text = "any value"
    return text
