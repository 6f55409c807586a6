"""`GET …/rows/{key}` and `GET …/explain/{key}`: one key, given in the path."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
from aiohttp import hdrs, web
from multidict import istr
from pyarrow import types

from lookup_core.answer import Outcome
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest, of_dimension
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.typed_keys import TypedKeys
from service.engine.dimension import Dimension
from service.http.body import MediaType
from service.http.limits import RESOURCES, RequestResources
from service.http.problem import HttpCode, Problem, problem_of_code
from service.http.replies import models
from service.http.replies.json_reply import json_rows
from service.http.replies.lookup_result import LookupResult
from service.http.routes.cached_rows import INTEGER, CachedRows
from service.http.routes.lookup import engine_lookup
from service.http.routes.lookup_request import from_query, path_dimension

_HIT = Outcome.HIT.label
_OUTCOME = istr("Sidelook-Outcome")
_JSON = MediaType.JSON.value
_BOOLEANS = {"true": True, "false": False}


def path_key(raw_path: str, schema: DimensionSchema) -> TypedKeys:
    """The key in the last segment of a path, in its exact type.

    `raw_path` is percent-encoded, so that encoded commas do not separate key parts. Raises
    InvalidRequest (`type`, `invalid_text`) for a key of another type.
    """
    segment = raw_path.rpartition("/")[2]
    fields = list(schema.key)
    parts = segment.split(",") if len(fields) > 1 else [segment]
    if len(parts) != len(fields):
        raise _refused(ErrorCode.TYPE, schema)
    values = [_value(part, field, schema) for part, field in zip(parts, fields, strict=True)]
    keys = typed_keys_from_json([values if len(fields) > 1 else values[0]], schema)
    if keys.faults:
        raise _refused(keys.faults[0], schema)
    return keys


def _value(part: str, field: pa.Field, schema: DimensionSchema) -> str | int:
    try:
        text = unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise _refused(ErrorCode.INVALID_TEXT, schema) from error
    if types.is_integer(field.type) and INTEGER.fullmatch(text):
        return int(text)
    if types.is_boolean(field.type):
        return _BOOLEANS.get(text, text)
    return text


def _refused(code: ErrorCode, schema: DimensionSchema) -> InvalidRequest:
    return InvalidRequest(code, f"not a valid key; a key is {schema.key_text}")


@dataclass(frozen=True, slots=True)
class SingleRow:
    """Handlers of requests for one key."""

    dimensions: Mapping[str, Dimension]
    cached_rows: CachedRows

    async def get(self, request: web.Request) -> web.Response:
        """The row; 404 `missing` without one, or the status of the error if the lookup failed."""
        dimension, resources = path_dimension(request, self.dimensions), request[RESOURCES]
        url = request.rel_url
        if not url.raw_query_string:
            row = self.cached_rows.find_by_path(dimension, url.raw_path, resources.span)
            if row is not None:
                return _found(resources, row.text, _HIT, age_ms=row.age_ms)
        typed = partial(path_key, url.raw_path)
        lookup = from_query(request.query)
        result = await engine_lookup(dimension, lookup, typed=typed, resources=resources)
        return _response(resources, result, dimension)

    async def explain(self, request: web.Request) -> web.Response:
        """Where the answer for this key would come from now, and why."""
        dimension = path_dimension(request, self.dimensions)
        schema = dimension.schema.known()
        (explanation,) = dimension.explain(path_key(request.rel_url.raw_path, schema))
        return models.ExplanationReply(dimension=dimension.name, **asdict(explanation)).response()


def _response(
    resources: RequestResources, result: LookupResult, dimension: Dimension
) -> web.Response:
    outcome = Outcome(int(result.outcomes[0]))
    if outcome.has_row:
        text = b"".join(json_rows(result.rows, result.has_row))
        return _found(resources, text, outcome.label, age_ms=int(result.ages_ms[0]))
    return _problem(outcome, result.errors.get(0), dimension).response()


def _found(resources: RequestResources, text: bytes, outcome: str, *, age_ms: int) -> web.Response:
    resources.take_row_text(text)
    headers = {hdrs.AGE: str(age_ms // 1000), _OUTCOME: outcome}
    return web.Response(body=text, content_type=_JSON, headers=headers)


def _problem(outcome: Outcome, code: ErrorCode | None, dimension: Dimension) -> Problem:
    if outcome is Outcome.MISSING:
        return Problem.of(404, HttpCode.MISSING, "the dimension has no such row")
    fallback = ErrorCode.TIMEOUT if outcome is Outcome.TIMEOUT else ErrorCode.INTERNAL
    code = code or fallback
    reason = dimension.record.errors.reason(code)
    detail = of_dimension(dimension.name, f"the lookup of this key failed: {reason}")
    return problem_of_code(code, detail)
