"""`POST …/lookup`: many keys at once, as JSON or as Arrow.

Translates only; which keys are asked of whom is the engine's decision.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.key_casts import typed_keys_from_arrow
from lookup_core.keys.typed_keys import TypedKeys
from service.http.answer_room import ANSWER_HOLD
from service.http.arrow import arrow_keys, arrow_reply
from service.http.body import body
from service.http.body_room import BodyRoom
from service.http.catalogue import Catalogue
from service.http.engine_lookup import engine_lookup
from service.http.json_body import json_body
from service.http.json_reply import json_hit, json_reply
from service.http.limits import Limits
from service.http.lookup_request import LookupRequest, from_json, from_query, refuse_query
from service.http.media_type import MediaType, sent_media_type, wanted_media_type
from service.http.ready_response import json_response
from service.http.request_spans import taken_span
from service.http.row_texts import RowTexts


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
    body_room: BodyRoom
    row_texts: RowTexts

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer every key of the body, in its order."""
        dimension = self.catalogue.named(request)
        sent = sent_media_type(request)
        wanted = wanted_media_type(request, default=sent)
        content = await body(request, self.limits, self.body_room)
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
