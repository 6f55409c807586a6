"""`POST …/lookup`: many keys at once, as JSON or Arrow."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.typed_keys import TypedKeys, typed_keys_from_arrow
from service.engine.dimension import Dimension
from service.http.body import BodyReader, MediaType, json_body, sent_media_type, wanted_media_type
from service.http.limits import RESOURCES, RequestLimits, RequestResources
from service.http.replies.arrow import arrow_keys, arrow_reply
from service.http.replies.json_reply import json_reply
from service.http.replies.lookup_result import LookupResult, lookup_result
from service.http.routes.cached_rows import CachedRow, CachedRows
from service.http.routes.lookup_request import (
    LookupRequestBody,
    from_json,
    from_query,
    path_dimension,
    refuse_query,
)


async def engine_lookup(
    dimension: Dimension,
    lookup: LookupRequestBody,
    *,
    typed: Callable[[DimensionSchema], TypedKeys],
    resources: RequestResources,
) -> LookupResult:
    """Look up the keys that `typed` makes for the schema of the dimension.

    The timeout includes the wait for a dimension that is not described yet. Raises BackendError if
    it is still not described, InvalidRequest, and Overloaded; the latter two also if `resources`
    refuses the answers. A cancellation does not affect queries that other lookups share.
    """
    clock = asyncio.get_running_loop().time
    timeout_s = dimension.settings.timeout_s if lookup.timeout_s is None else lookup.timeout_s
    deadline_s = clock() + timeout_s
    schema = await dimension.schema.wait(timeout_s)
    if not schema.has_columns(lookup.columns):
        schema = await dimension.described_again(max(0.0, deadline_s - clock()))
    columns = schema.select(lookup.columns)
    keys = typed(schema)
    left_s = max(0.0, deadline_s - clock())
    answers = await dimension.lookup(
        keys,
        columns=lookup.columns,
        timeout_s=left_s,
        take=resources.take_answer,
        span=resources.span,
    )
    result = lookup_result(answers, keys.size, columns)
    if resources.span is not None:
        resources.span.count_outcomes(result.outcomes)
    return result


@dataclass(frozen=True, slots=True)
class LookupRoute:
    """Handler of lookups; cancelled when the client disconnects."""

    dimensions: Mapping[str, Dimension]
    limits: RequestLimits
    bodies: BodyReader
    cached_rows: CachedRows

    async def post(self, request: web.Request) -> web.Response:
        """Answer every key of the body, in request order."""
        dimension = path_dimension(request, self.dimensions)
        sent = sent_media_type(request)
        wanted = wanted_media_type(request, default=sent)
        content = await self.bodies.read(request)
        resources = request[RESOURCES]
        lookup, typed = self._parsed(request, content, sent)
        is_single = len(lookup.keys) == 1 and lookup.columns is None and wanted is MediaType.JSON
        if is_single and (row := self.cached_rows.find(dimension, lookup.keys[0], resources.span)):
            reply = _reply_of_one(row)
        else:
            result = await engine_lookup(dimension, lookup, typed=typed, resources=resources)
            if wanted is MediaType.ARROW:
                reply = arrow_reply(result)
            else:
                reply = await json_reply(result, dimension.explanation)
        if is_single:
            resources.take_row_text(reply)
        else:
            resources.hold_answer_bytes(len(reply))
        return web.Response(body=reply, content_type=wanted.value)

    def _parsed(
        self, request: web.Request, content: bytes, sent: MediaType
    ) -> tuple[LookupRequestBody, Callable[[DimensionSchema], TypedKeys]]:
        """The lookup in a body, and what makes its keys for a schema."""
        if sent is MediaType.ARROW:
            keys = arrow_keys(content)
            check_key_count(keys.num_rows, self.limits)
            return from_query(request.query), partial(typed_keys_from_arrow, keys)
        refuse_query(request.query_string)
        lookup = from_json(LookupRequestBody, json_body(content))
        check_key_count(len(lookup.keys), self.limits)
        return lookup, partial(typed_keys_from_json, lookup.keys)


def _reply_of_one(row: CachedRow) -> bytes:
    """The body of a lookup of this key alone."""
    return b'{"outcomes":["hit"],"rows":[%b],"ages_ms":[%d]}' % (row.text, row.age_ms)


def check_key_count(count: int, limits: RequestLimits) -> None:
    """Raise InvalidRequest (`too_many_keys`) for more keys than one request may have."""
    if count > limits.request_keys:
        raise InvalidRequest(
            ErrorCode.TOO_MANY_KEYS,
            f"{count} keys; a request may have at most {limits.request_keys} (limits.request_keys)",
        )
