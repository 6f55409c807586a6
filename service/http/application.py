"""aiohttp applications of the listeners: routes and middleware."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler

from lookup_core.protocol.channel_registry import EndedStream
from lookup_core.protocol.server_channel import ChannelStatistics
from service.engine.dimension import Dimension
from service.engine.tracer import NullTracer, Tracer
from service.http.body import BodyReader, wait_for_body
from service.http.delivery import FIXED_HEADERS, ResponseDelivery
from service.http.limits import AdmissionLimit, AnswerByteBudget, BodyByteBudget, RequestLimits
from service.http.middleware import NOT_FOUND, RequestMiddleware, TraceMiddleware
from service.http.readiness import Readiness
from service.http.routes.admin import Admin
from service.http.routes.cached_rows import CachedRows
from service.http.routes.lookup import LookupRoute
from service.http.routes.openapi import OpenApi
from service.http.routes.probes import Probes
from service.http.routes.single_row import SingleRow
from service.http.routes.status import ProcessStatistics, StatusRoutes
from service.http.routes.table import ROUTES, Route
from service.http.security import Access
from service.http.status_history import StatusHistory
from service.http.status_page import StatusPage

_PATHS = "no such path; rows are at /v1/dimensions/{name}/rows/{key}, all paths in /openapi.json"
_HEALTH_PATHS = "probes and metrics only; lookups are served at listen.unix and listen.http"


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
    """An application of the operations that have a handler, behind the middleware.

    `not_found` is the detail of the problem for other paths.
    """
    routes: dict[web.AbstractRoute, Route] = {}
    requests = RequestMiddleware(
        routes,
        parts.readiness,
        ResponseDelivery(parts.limits),
        admission_limit=AdmissionLimit(parts.limits.connections),
        answer_budget=parts.answer_budget,
        access=access,
        is_tracing=parts.tracer.is_on,
    )
    traces = TraceMiddleware(routes, parts.tracer, frozenset(parts.dimensions))
    middlewares = [traces.handle, requests.handle] if parts.tracer.is_on else [requests.handle]
    app = web.Application(middlewares=middlewares)
    app[NOT_FOUND] = not_found
    for route in ROUTES:
        if (handler := handlers.get(route.operation)) is not None:
            routes |= dict.fromkeys(_added(app, route, handler), route)
    app.on_response_prepare.append(_set_headers)
    return app


def _added(app: web.Application, route: Route, handler: Handler) -> Iterable[web.AbstractRoute]:
    # A key may be empty, and have braces.
    resource = app.router.add_resource(route.path.replace("{key}", "{key:[^/]*}"))
    for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
        yield resource.add_route(method, handler, expect_handler=wait_for_body)


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


async def _set_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(FIXED_HEADERS)
