"""`POST …/invalidate` and `POST …/reload`: drop cached rows, load a full table again."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.statistics import InvalidationOrigin
from service.engine.dimension import Dimension
from service.http.body import BodyReader, MediaType, json_body, sent_media_type
from service.http.limits import RequestLimits
from service.http.replies import models
from service.http.routes.lookup import check_key_count
from service.http.routes.lookup_request import InvalidateRequestBody, from_json, path_dimension


@dataclass(frozen=True, slots=True)
class Admin:
    """Handlers that change the state of a dimension."""

    dimensions: Mapping[str, Dimension]
    limits: RequestLimits
    bodies: BodyReader

    async def invalidate(self, request: web.Request) -> web.Response:
        """Drop the keys, or all, from the cache; the reply has the number of dropped entries."""
        dimension = path_dimension(request, self.dimensions)
        if sent_media_type(request) is not MediaType.JSON:
            raise web.HTTPUnsupportedMediaType(text=f"the body is {MediaType.JSON}")
        wanted = from_json(InvalidateRequestBody, json_body(await self.bodies.read(request)))
        keys = None if wanted.keys is None else self._typed(wanted.keys, dimension.schema.known())
        count = dimension.invalidate(keys, origin=InvalidationOrigin.ADMIN)
        return models.Invalidated(invalidated=count).response()

    async def reload(self, request: web.Request) -> web.Response:
        """Start a load of the full table; a body is not read."""
        path_dimension(request, self.dimensions).reload()
        return models.ReloadRequested(reload="requested").response(HTTPStatus.ACCEPTED)

    def _typed(self, values: list[object], schema: DimensionSchema) -> TypedKeys:
        check_key_count(len(values), self.limits)
        keys = typed_keys_from_json(values, schema)
        if keys.faults:
            # Without an error the operator would take the stale row for dropped.
            position, code = min(keys.faults.items())
            detail = f"keys.{position} is not valid ({code.value}); a key is {schema.key_text}"
            raise InvalidRequest(ErrorCode.KEY_TYPE, detail)
        return keys
