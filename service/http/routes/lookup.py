"""`POST …/lookup`: many keys at once, as JSON or as Arrow."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.key_casts import typed_keys_from_arrow
from lookup_core.keys.typed_keys import TypedKeys
from service.engine.dimension import Dimension
from service.engine.tracer import CallerSpan
from service.http.body import MediaType, body, json_body, sent_media_type, wanted_media_type
from service.http.limits import ANSWER_HOLD, AnswerReservation, BodyByteBudget, Limits
from service.http.replies.arrow import arrow_keys, arrow_reply
from service.http.replies.json_reply import json_hit, json_reply
from service.http.replies.lookup_result import LookupResult, lookup_result
from service.http.replies.ready_response import json_response
from service.http.replies.row_texts import RowTexts
from service.http.request_spans import taken_span
from service.http.routes.dimensions import Catalogue
from service.http.routes.lookup_request import LookupRequest, from_json, from_query, refuse_query


async def engine_lookup(
    dimension: Dimension,
    asked: LookupRequest,
    *,
    typed: Callable[[DimensionSchema], TypedKeys],
    hold: AnswerReservation,
    span: CallerSpan | None = None,
) -> LookupResult:
    """Bring the keys into their types by `typed`, and look them up.

    The timeout covers the wait for a store that has not described itself yet. Raises BackendError
    if it still has not, InvalidRequest and Overloaded, also for answers without room in `hold`.
    Cancellation leaves shared work to others.
    """
    clock = asyncio.get_running_loop().time
    timeout_s = dimension.settings.timeout_s if asked.timeout_s is None else asked.timeout_s
    deadline_s = clock() + timeout_s
    schema = await dimension.wait_until_described(timeout_s)
    columns = schema.select(asked.columns)
    keys = typed(schema)
    left_s = max(0.0, deadline_s - clock())
    answers = await dimension.lookup(
        keys, columns=asked.columns, timeout_s=left_s, take=hold.take, span=span
    )
    result = lookup_result(answers, keys.size, columns)
    if span is not None:
        span.count_outcomes(result.outcomes)
    return result


@dataclass(frozen=True, slots=True)
class _Question:
    asked: LookupRequest
    typed: Callable[[DimensionSchema], TypedKeys]

    @property
    def is_simple(self) -> bool:
        """Whether it is for all columns of one key."""
        return len(self.asked.keys) == 1 and self.asked.columns is None


@dataclass(frozen=True, slots=True)
class Lookup:
    """Handles lookups; cancelled when the caller leaves, which leaves shared work to others."""

    catalogue: Catalogue
    limits: Limits
    body_budget: BodyByteBudget
    row_texts: RowTexts

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer every key of the body, in its order."""
        dimension = self.catalogue.named(request)
        sent = sent_media_type(request)
        wanted = wanted_media_type(request, default=sent)
        content = await body(request, self.limits, self.body_budget)
        if sent is MediaType.ARROW:
            question = self._arrow_question(content, from_query(request.query))
        else:
            refuse_query(request.query_string)
            question = self._json_question(content)
        hold = request[ANSWER_HOLD]
        is_single = question.is_simple and wanted is MediaType.JSON
        row = self.row_texts.find(dimension, question.asked.keys[0]) if is_single else None
        if row is not None:
            reply = json_hit(row)
        else:
            asked, span = question.asked, taken_span(request)
            result = await engine_lookup(
                dimension, asked, typed=question.typed, hold=hold, span=span
            )
            reply = arrow_reply(result) if wanted is MediaType.ARROW else await json_reply(result)
        if is_single:
            hold.take_text(reply)
        else:
            hold.only(len(reply))
        if wanted is MediaType.ARROW:
            return web.Response(body=reply, content_type=wanted.value)
        return json_response(request, reply)

    def _json_question(self, content: bytes) -> _Question:
        asked = from_json(LookupRequest, json_body(content))
        check_key_count(len(asked.keys), self.limits)
        return _Question(asked, lambda schema: typed_keys_from_json(asked.keys, schema))

    def _arrow_question(self, content: bytes, asked: LookupRequest) -> _Question:
        keys = arrow_keys(content)
        check_key_count(keys.num_rows, self.limits)
        return _Question(asked, lambda schema: typed_keys_from_arrow(keys, schema))


def check_key_count(count: int, limits: Limits) -> None:
    """Raise InvalidRequest (`too_many_keys`) for more keys than one request may have."""
    if count > limits.request_keys:
        raise InvalidRequest(
            ErrorCode.TOO_MANY_KEYS, f"{count} keys; a request may have {limits.request_keys}"
        )
