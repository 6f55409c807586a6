"""`POST …/invalidate` and `POST …/reload`: forget rows that may have changed, load all anew.

Whether the caller may do this was decided by `security` before it came here.
"""

from dataclasses import dataclass
from http import HTTPStatus

import orjson
from aiohttp import web

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.statistics import InvalidationOrigin
from service.http.body import MediaType, body, json_body, sent_media_type
from service.http.limits import BodyByteBudget, Limits
from service.http.routes.dimensions import Catalogue
from service.http.routes.lookup import check_key_count
from service.http.routes.lookup_request import InvalidateRequest, from_json


@dataclass(frozen=True, slots=True)
class Admin:
    """Handles what changes the state of a dimension."""

    catalogue: Catalogue
    limits: Limits
    body_budget: BodyByteBudget

    async def invalidate(self, request: web.Request) -> web.Response:
        """Forget the keys, or all; says how many entries were dropped from the cache."""
        dimension = self.catalogue.named(request)
        if sent_media_type(request) is not MediaType.JSON:
            raise web.HTTPUnsupportedMediaType(text=f"the body is {MediaType.JSON}")
        asked = from_json(
            InvalidateRequest, json_body(await body(request, self.limits, self.body_budget))
        )
        keys = None if asked.keys is None else self._typed(asked.keys, dimension.schema)
        count = dimension.invalidate(keys, origin=InvalidationOrigin.ADMIN)
        return web.Response(
            body=orjson.dumps({"invalidated": count}), content_type=MediaType.JSON.value
        )

    async def reload(self, request: web.Request) -> web.Response:
        """Have the whole table loaded anew, soon; a body says nothing here, and is not read."""
        self.catalogue.named(request).reload()
        return web.Response(
            body=orjson.dumps({"reload": "asked"}),
            status=HTTPStatus.ACCEPTED,
            content_type=MediaType.JSON.value,
        )

    def _typed(self, values: list[object], schema: DimensionSchema) -> TypedKeys:
        check_key_count(len(values), self.limits)
        keys = typed_keys_from_json(values, schema)
        if keys.faults:
            # Quietly forgetting nothing would leave the operator with the stale row.
            position, code = min(keys.faults.items())
            raise InvalidRequest(ErrorCode.KEY_TYPE, f"keys.{position}: {code.value}")
        return keys
