"""aiohttp applications of the listeners: routes and middleware."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler

from lookup_core.protocol.channel_registry import EndedStream
from lookup_core.protocol.server_channel import ChannelStatistics
from service.engine.dimension import Dimension
from service.engine.tracer import NullTracer, Tracer
from service.http.body import BodyReader, wait_for_body
from service.http.delivery import Delivery
from service.http.limits import AdmissionLimit, AnswerByteBudget, BodyByteBudget, Limits
from service.http.middleware import NOT_FOUND, RequestMiddleware
from service.http.readiness import Readiness
from service.http.replies.ready_response import FIXED_HEADERS
from service.http.replies.row_texts import RowTexts
from service.http.request_spans import RequestSpans
from service.http.routes.admin import Admin
from service.http.routes.lookup import Lookup
from service.http.routes.openapi import OpenApi
from service.http.routes.probes import Probes
from service.http.routes.single_row import SingleRow
from service.http.routes.status import ProcessStatistics, Status
from service.http.security import Access, Audience
from service.http.status_history import StatusHistory
from service.http.status_page import StatusPage


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
    limits: Limits = field(default_factory=Limits)
    body_budget: BodyByteBudget = field(default_factory=BodyByteBudget)
    answer_budget: AnswerByteBudget = field(default_factory=AnswerByteBudget)
    tracer: Tracer = field(default_factory=NullTracer)


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path with its handler; GET also answers HEAD."""

    method: str
    path: str
    handler: Handler
    audience: Audience
    is_traced: bool = False  # it looks up rows, so its requests may have spans


_PATHS = "no such path; rows are at /v1/dimensions/{name}/rows/{key}, all paths in /openapi.json"
_HEALTH_PATHS = "probes and metrics only; lookups are served at listen.unix and listen.http"


def application(parts: ServiceParts, access: Access) -> web.Application:
    """The application of one listener, with its own admission limit and access rules."""
    return guarded_application(_routes(parts), parts, access, not_found=_PATHS)


def health_application(parts: ServiceParts) -> web.Application:
    """The application of the health listener: probes and metrics, without access rules."""
    return guarded_application(_health_routes(parts), parts, Access(), not_found=_HEALTH_PATHS)


def guarded_application(
    routes: Sequence[Route], parts: ServiceParts, access: Access, *, not_found: str
) -> web.Application:
    """An application of these routes behind the middleware.

    `not_found` is the detail of the problem for other paths.
    """
    audiences: dict[web.AbstractRoute, Audience] = {}
    middleware = RequestMiddleware(
        audiences,
        parts.readiness,
        admission_limit=AdmissionLimit(parts.limits.connections),
        answer_budget=parts.answer_budget,
        access=access,
        delivery=Delivery(parts.limits),
    )
    traced: dict[web.AbstractRoute, str] = {}
    spans = RequestSpans(parts.tracer, traced, frozenset(parts.dimensions))
    middlewares = [spans.handle, middleware.handle] if parts.tracer.is_on else [middleware.handle]
    app = web.Application(client_max_size=parts.limits.request_bytes, middlewares=middlewares)
    app[NOT_FOUND] = not_found
    for route in routes:
        resource = app.router.add_resource(route.path)
        for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
            added = resource.add_route(method, route.handler, expect_handler=wait_for_body)
            audiences[added] = route.audience
            if route.is_traced:
                traced[added] = resource.canonical
    app.on_response_prepare.append(_set_headers)
    return app


def _routes(parts: ServiceParts) -> list[Route]:
    dimensions, row_texts = parts.dimensions, RowTexts()
    bodies = BodyReader(parts.limits, parts.body_budget)
    lookup = Lookup(dimensions, parts.limits, bodies, row_texts)
    single_row = SingleRow(dimensions, row_texts)
    admin = Admin(dimensions, parts.limits, bodies)
    status = Status(
        dimensions=dimensions,
        channels=parts.channels,
        ended_streams=parts.ended_streams,
        readiness=parts.readiness,
        process=parts.process,
        history=parts.history,
        version=parts.version,
    )
    one = "/v1/dimensions/{name}"
    key = "{key:[^/]*}"
    return [
        # First, because routes are tried in order, and these two are the hot paths.
        Route("GET", f"{one}/rows/{key}", single_row.get, Audience.CALLER, is_traced=True),
        Route("POST", f"{one}/lookup", lookup.post, Audience.CALLER, is_traced=True),
        *_health_routes(parts),
        Route("GET", "/", StatusPage().get, Audience.PAGE),
        Route("GET", "/openapi.json", OpenApi(parts.version).get, Audience.PAGE),
        Route("GET", "/v1/dimensions", status.get_dimensions, Audience.READER),
        Route("GET", one, status.get_dimension, Audience.READER),
        Route("GET", f"{one}/explain/{key}", single_row.explain, Audience.READER),
        Route("POST", f"{one}/invalidate", admin.invalidate, Audience.ADMIN),
        Route("POST", f"{one}/reload", admin.reload, Audience.ADMIN),
        Route("GET", "/v1/channels", status.get_channels, Audience.READER),
        Route("GET", "/v1/status", status.get, Audience.READER),
        Route("GET", "/v1/status/history", status.get_history, Audience.READER),
        Route("GET", "/v1/stream", parts.stream, Audience.CALLER),
    ]


def _health_routes(parts: ServiceParts) -> list[Route]:
    probes = Probes(parts.readiness, parts.metrics)
    return [
        Route("GET", "/livez", probes.livez, Audience.PROBE),
        Route("GET", "/readyz", probes.readyz, Audience.PROBE),
        Route("GET", "/startupz", probes.startupz, Audience.PROBE),
        Route("GET", "/metrics", probes.scrape, Audience.READER),
    ]


async def _set_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(FIXED_HEADERS)
