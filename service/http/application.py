"""aiohttp applications of the listeners: routes and middleware."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

from lookup_core.protocol.channel_registry import EndedStream
from lookup_core.protocol.server_channel import ChannelStatistics
from service.engine.dimension import Dimension
from service.engine.tracer import NullTracer, Tracer
from service.http.body import BodyReader, wait_for_body
from service.http.delivery import ResponseDelivery
from service.http.limits import AdmissionLimit, AnswerByteBudget, BodyByteBudget, RequestLimits
from service.http.middleware import RequestMiddleware
from service.http.readiness import Readiness
from service.http.routes.admin import Admin
from service.http.routes.cached_rows import CachedRows
from service.http.routes.lookup import LookupRoute
from service.http.routes.openapi import OpenApi
from service.http.routes.probes import Probes
from service.http.routes.single_row import SingleRow
from service.http.routes.status import ProcessStatistics, StatusRoutes
from service.http.routes.table import ROUTES
from service.http.security import Access, Audience
from service.http.status_history import StatusHistory
from service.http.status_page import StatusPage

_PATHS = "no such path; rows are at /v1/dimensions/{name}/rows/{key}, all paths in /openapi.json"
_HEALTH_PATHS = "probes and metrics only; lookups are served at listen.unix and listen.http"
_UNROUTED_AUDIENCE = Audience.READER


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """What the routes need; shared by all listeners."""

    dimensions: Mapping[str, Dimension]
    readiness: Readiness
    channels: Callable[[], Sequence[ChannelStatistics]]
    stream: Handler  # `/v1/stream`; upgrades the connection itself
    metrics: Callable[[], bytes]
    version: str
    history: StatusHistory = field(default_factory=lambda: StatusHistory({}))
    ended_streams: Callable[[], Sequence[EndedStream]] = tuple
    process: ProcessStatistics = field(default_factory=ProcessStatistics)
    limits: RequestLimits = field(default_factory=RequestLimits)
    body_budget: BodyByteBudget = field(default_factory=BodyByteBudget)
    answer_budget: AnswerByteBudget = field(default_factory=AnswerByteBudget)
    tracer: Tracer = field(default_factory=NullTracer)


def application(parts: ServiceParts, access: Access) -> web.Application:
    """The application of one listener, with its own admission limit and access rules."""
    handlers = _health_handlers(parts) | _handlers(parts)
    return _guarded(handlers, parts, access, not_found=_PATHS)


def health_application(parts: ServiceParts) -> web.Application:
    """The application of the health listener: probes and metrics, without access rules."""
    return _guarded(_health_handlers(parts), parts, Access(), not_found=_HEALTH_PATHS)


def _guarded(
    handlers: Mapping[str, Handler], parts: ServiceParts, access: Access, *, not_found: str
) -> web.Application:
    """An application of the operations that have a handler, each within the middleware.

    `not_found` is the detail of the problem for other paths.
    """
    middleware = RequestMiddleware(
        parts.readiness,
        ResponseDelivery(parts.limits),
        admission_limit=AdmissionLimit(parts.limits.connections),
        answer_budget=parts.answer_budget,
        access=access,
        tracer=parts.tracer,
        dimensions=frozenset(parts.dimensions),
    )
    app = web.Application()

    def add(resource: web.Resource, handler: Handler, *methods: str) -> None:
        for method in methods:
            resource.add_route(method, handler, expect_handler=wait_for_body)

    for route in ROUTES:
        if (handler := handlers.get(route.operation)) is not None:
            # A key may be empty, and have braces.
            resource = app.router.add_resource(route.path.replace("{key}", "{key:[^/]*}"))
            add(resource, middleware.around_route(handler, route), *route.methods)
            refusing = _refusing(partial(web.HTTPMethodNotAllowed, "", route.methods))
            add(resource, middleware.around(refusing, _UNROUTED_AUDIENCE), "*")
    refusing = _refusing(partial(web.HTTPNotFound, text=not_found))
    add(app.router.add_resource("/{path:.*}"), middleware.around(refusing, _UNROUTED_AUDIENCE), "*")
    return app


def _refusing(error: Callable[[], web.HTTPException]) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        raise error()

    return handle


def _handlers(parts: ServiceParts) -> dict[str, Handler]:
    dimensions, cached_rows = parts.dimensions, CachedRows()
    bodies = BodyReader(parts.limits, parts.body_budget)
    single_row = SingleRow(dimensions, cached_rows)
    admin = Admin(dimensions, parts.limits, bodies)
    status = StatusRoutes(
        dimensions=dimensions,
        channels=parts.channels,
        ended_streams=parts.ended_streams,
        readiness=parts.readiness,
        process=parts.process,
        history=parts.history,
        version=parts.version,
    )
    return {
        "getRow": single_row.get,
        "lookup": LookupRoute(dimensions, parts.limits, bodies, cached_rows).post,
        "getStatusPage": StatusPage().get,
        "getOpenApi": OpenApi(parts.version).get,
        "listDimensions": status.get_dimensions,
        "getDimension": status.get_dimension,
        "explainKey": single_row.explain,
        "invalidate": admin.invalidate,
        "reload": admin.reload,
        "listChannels": status.get_channels,
        "getStatus": status.get,
        "getStatusHistory": status.get_history,
        "openStream": parts.stream,
    }


def _health_handlers(parts: ServiceParts) -> dict[str, Handler]:
    probes = Probes(parts.readiness, parts.metrics)
    return {
        "isAlive": probes.livez,
        "isReady": probes.readyz,
        "isStarted": probes.startupz,
        "getMetrics": probes.scrape,
    }
