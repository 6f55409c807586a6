"""`GET …/rows/{key}` and `GET …/explain/{key}`: one key, named in the path.

For many keys there is `lookup`; these are for people, scripts and monitors.
"""

from dataclasses import asdict, dataclass
from functools import partial

import orjson
from aiohttp import web

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.outcome import Outcome
from service.engine.dimension import Dimension
from service.http.answer_room import ANSWER_HOLD
from service.http.catalogue import Catalogue
from service.http.engine_lookup import engine_lookup
from service.http.json_rows import json_rows
from service.http.lookup_request import from_query
from service.http.lookup_result import LookupResult
from service.http.media_type import MediaType
from service.http.path_key import path_key, path_value
from service.http.problem import HttpCode, Problem, problem_of_code
from service.http.ready_response import json_response
from service.http.recent_rows import RowText
from service.http.request_spans import taken_span
from service.http.row_texts import RowTexts

_HIT = Outcome.HIT.label


@dataclass(frozen=True, slots=True)
class SingleRow:
    """Handles requests for one key."""

    catalogue: Catalogue
    row_texts: RowTexts

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The row; 404 `missing` without one, and the error's status if the lookup failed."""
        row = self.row_texts.again(request.raw_path)
        if row is not None:
            return _found(request, row.text, _HIT, age_ms=row.age_ms)
        dimension = self.catalogue.named(request)
        if not request.query_string and (row := self._cached(request, dimension)):
            return _found(request, row.text, _HIT, age_ms=row.age_ms)
        asked = from_query(request.query)
        typed = partial(path_key, request.rel_url.raw_path)
        hold = request[ANSWER_HOLD]
        span = taken_span(request)
        result = await engine_lookup(dimension, asked, typed=typed, hold=hold, span=span)
        return _response(request, result)

    async def explain(self, request: web.Request) -> web.Response:
        """Where this key's answer would come from now, and why."""
        dimension = self.catalogue.named(request)
        (explanation,) = dimension.explain(path_key(request.rel_url.raw_path, dimension.schema))
        return web.Response(
            body=orjson.dumps({"dimension": dimension.name, **asdict(explanation)}),
            content_type=MediaType.JSON.value,
        )

    def _cached(self, request: web.Request, dimension: Dimension) -> RowText | None:
        try:
            value = path_value(request.rel_url.raw_path, dimension.schema)
        except BackendError:  # no schema yet: the lookup waits for it
            return None
        return self.row_texts.find(dimension, value, question=request.raw_path)


def _response(request: web.Request, result: LookupResult) -> web.StreamResponse:
    outcome = Outcome(int(result.outcomes[0]))
    age_ms = int(result.ages_ms[0])
    if outcome.has_row:
        text = b"".join(json_rows(result.rows, result.has_row))
        return _found(request, text, outcome.label, age_ms=age_ms)
    return _problem(outcome, result.errors.get(0)).response()


def _found(request: web.Request, text: bytes, outcome: str, *, age_ms: int) -> web.StreamResponse:
    request[ANSWER_HOLD].take_text(text)
    headers = (("Age", str(age_ms // 1000)), ("Sidelook-Outcome", outcome))
    return json_response(request, text, headers)


def _problem(outcome: Outcome, code: ErrorCode | None) -> Problem:
    if outcome is Outcome.MISSING:
        return Problem(404, HttpCode.MISSING, "the dimension has no such row", is_retryable=False)
    fallback = ErrorCode.TIMEOUT if outcome is Outcome.TIMEOUT else ErrorCode.INTERNAL
    code = code or fallback
    return problem_of_code(code, f"the lookup of this key failed: {code.meaning}")
