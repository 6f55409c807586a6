"""Table of the HTTP routes: tasks, audiences and replies.

The application binds a handler to each operation, and `/openapi.json` describes the table.
"""

from dataclasses import dataclass

from pydantic import BaseModel

from service.http.body import MediaType
from service.http.replies.arrow import RESULT_FIELDS
from service.http.replies.models import (
    Channels,
    DimensionNames,
    DimensionReply,
    ExplanationReply,
    Invalidated,
    LookupAnswer,
    ReloadRequested,
    Row,
    StatusHistoryReply,
    StatusReply,
)
from service.http.routes.lookup_request import InvalidateRequestBody, LookupRequestBody
from service.http.security import Audience

PROBE, PAGE, READER, CALLER, ADMIN = Audience
_ONE = "/v1/dimensions/{name}"
_RESULT_NAMES = ", ".join(field.name for field in RESULT_FIELDS)
_ARROW_NOTE = (
    f"The Arrow reply is one record batch: {_RESULT_NAMES}, then the columns of the row. The query "
    "parameters `columns` and `timeout_ms` are for keys in an Arrow stream only."
)
_JSON, _HTML, _TEXT = MediaType.JSON.value, "text/html", "text/plain"
_RELOAD_NOTE = "Returns at once; `freshness.load` shows the progress."


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path; GET also answers HEAD."""

    operation: str
    path: str
    audience: Audience
    summary: str
    reply: type[BaseModel] | str | None  # a model of JSON, or a media type; None: no reply
    errors: tuple[int, ...] = ()  # statuses, in addition to those of all such routes
    method: str = "GET"
    body: type[BaseModel] | None = None
    status: int = 200
    has_arrow: bool = False  # body and reply may also be Arrow streams
    has_query: bool = False  # `columns` and `timeout_ms`
    is_traced: bool = False  # it looks up rows, so its requests may have spans
    note: str | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it answers."""
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)


# The hot paths are first, because routes are tried in order.
ROUTES = (
    Route(
        "getRow",
        f"{_ONE}/rows/{{key}}",
        CALLER,
        "Look up one key; its failure is the status.",
        Row,
        errors=(409, 422, 502, 504),
        has_query=True,
        is_traced=True,
    ),
    Route(
        "lookup",
        f"{_ONE}/lookup",
        CALLER,
        "Look up many keys at once; failures of single keys are outcomes.",
        LookupAnswer,
        errors=(406, 422, 502, 504),
        method="POST",
        body=LookupRequestBody,
        has_arrow=True,
        has_query=True,
        is_traced=True,
        note=_ARROW_NOTE,
    ),
    Route("isAlive", "/livez", PROBE, "Check that the event loop runs.", _TEXT),
    Route("isReady", "/readyz", PROBE, "Check that lookups are accepted.", _TEXT, errors=(503,)),
    Route(
        "isStarted",
        "/startupz",
        PROBE,
        "Check that all full tables are loaded.",
        _TEXT,
        errors=(503,),
    ),
    Route("getMetrics", "/metrics", READER, "Get the metrics for Prometheus.", _TEXT),
    Route("getStatusPage", "/", PAGE, "Get the status page.", _HTML),
    Route("getOpenApi", "/openapi.json", PAGE, "Get the OpenAPI document.", _JSON),
    Route("listDimensions", "/v1/dimensions", READER, "List the dimensions.", DimensionNames),
    Route(
        "getDimension",
        _ONE,
        READER,
        "Get schema, settings and state of a dimension.",
        DimensionReply,
    ),
    Route(
        "explainKey",
        f"{_ONE}/explain/{{key}}",
        READER,
        "Explain where the answer to a key comes from, without a query.",
        ExplanationReply,
        errors=(503,),
    ),
    Route(
        "invalidate",
        f"{_ONE}/invalidate",
        ADMIN,
        "Drop rows from the cache.",
        Invalidated,
        errors=(422, 503),
        method="POST",
        body=InvalidateRequestBody,
    ),
    Route(
        "reload",
        f"{_ONE}/reload",
        ADMIN,
        "Load the full table again.",
        ReloadRequested,
        errors=(422, 503),
        method="POST",
        status=202,
        note=_RELOAD_NOTE,
    ),
    Route("listChannels", "/v1/channels", READER, "List the open channels.", Channels),
    Route("getStatus", "/v1/status", READER, "Get the state of the sidecar.", StatusReply),
    Route(
        "getStatusHistory",
        "/v1/status/history",
        READER,
        "Get the totals of the last ten minutes.",
        StatusHistoryReply,
    ),
    Route(
        "openStream",
        "/v1/stream",
        CALLER,
        "Open a WebSocket with the subprotocol sidelook.v1.",
        None,
        errors=(400,),
        status=101,
    ),
)
