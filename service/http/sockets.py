"""Connections of the listeners: malformed requests, and handshakes of TLS."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import InvalidHeader, InvalidURLError, LineTooLong

from lookup_core.errors import ErrorCode
from service.http.delivery import FIXED_HEADERS
from service.http.limits import RequestLimits
from service.http.problem import HttpCode, Problem

MAX_LINE_BYTES = 8190  # the request line's, and each header's
MAX_HEADERS = 128
_ACCEPT_PAUSE_S = 1.0  # after a failed accept, such as without a free file descriptor
# A TLS connection takes ten times the memory of a plain one, before the client is authorized. A
# handshake takes milliseconds: beyond this number the oldest one is stuck, and is cancelled.
MAX_HANDSHAKES = 256
MAX_OPEN_FACTOR = 4  # open connections per admitted request
_MESSAGES = {  # parts of the parser's messages, and what they mean
    "Too many headers received": f"it has more than {MAX_HEADERS} headers",
    "PRI/Upgrade": "HTTP/2 is not supported; set HTTP/1.1 at the client or proxy",
}


@dataclass(frozen=True, slots=True)
class HttpConnections:
    """Connections to one application.

    The keep-alive timeout counts from the last response, so it ends idle connections and slow
    headers. Handlers are cancelled when their client disconnects.
    """

    server: web.Server
    limits: RequestLimits

    @property
    def are_too_many(self) -> bool:
        """Whether over four connections per admitted request are open, or as many."""
        return len(self.server.connections) >= MAX_OPEN_FACTOR * self.limits.connections

    async def serve(self, listening: socket.socket, *, backlog: int) -> asyncio.Server:
        """Accept plain connections on a bound socket, until the returned server is closed."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(self.new, sock=listening, backlog=backlog)

    def new(self) -> web.RequestHandler:
        """The protocol of one more connection."""
        no_log: Any = None  # admitted, but not typed
        return _Connection(
            self.server,
            loop=asyncio.get_running_loop(),
            access_log=no_log,
            auto_decompress=False,
            keepalive_timeout=self.limits.header_deadline_s,
            lingering_time=self.limits.linger_s,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            max_line_size=MAX_LINE_BYTES,
        )


@asynccontextmanager
async def connections(
    app: web.Application, limits: RequestLimits, *, shutdown_timeout_s: float
) -> AsyncIterator[HttpConnections]:
    """Connections to the application, until the block ends.

    They end last: sockets must not accept any more by then. The end waits up to
    `shutdown_timeout_s` for running requests.
    """
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=shutdown_timeout_s)
    await runner.setup()
    try:
        assert runner.server is not None  # after setup
        yield HttpConnections(runner.server, limits)
    finally:
        await runner.cleanup()


class _Connection(web.RequestHandler):
    def handle_error(  # noqa: PLR0917 -- aiohttp's signature
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 -- it may quote the request
    ) -> web.StreamResponse:
        """The reply to a request that reached no route, or whose middleware failed."""
        if request.writer.output_size:
            raise ConnectionError("a part of the response was sent")
        log = structlog.get_logger()
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("http.request_failed", code=ErrorCode.INTERNAL.value, exc_info=exc)
            problem = Problem.of(status, ErrorCode.INTERNAL, "internal error; see the log")
        else:
            # Not the message: it quotes the request, possibly with its token.
            peer, reason = request.remote or "unix", type(exc).__name__
            log.warning("http.malformed_request", code="bad_http", peer=peer, reason=reason)
            detail = f"this is not a valid HTTP/1.1 request: {_fault(exc)}"
            problem = Problem.of(status, HttpCode.BAD_HTTP, detail)
        response = problem.response()
        response.headers.update(FIXED_HEADERS)
        response.force_close()
        return response


def _fault(error: BaseException | None) -> str:
    """The text of a parser's error, without a part of the request."""
    match error:
        case LineTooLong():
            return f"its first line, a header or a chunk's size has over {MAX_LINE_BYTES} bytes"
        case InvalidHeader():
            return "a header has a character that is not allowed"
        case InvalidURLError():
            return "the request target is no URL"
        case HttpProcessingError(message=message):
            special = (text for part, text in _MESSAGES.items() if part in message)
            return next(special, message.strip().partition("\n")[0].rstrip(":"))
        case _:
            return type(error).__name__


@dataclass(slots=True, eq=False)
class SecureAcceptor:
    """Accepts TLS connections on one socket, each with the current certificate.

    The servers of asyncio cannot change their certificate.
    """

    connections: HttpConnections
    context: Callable[[], ssl.SSLContext]
    _handshakes: dict[asyncio.Task[None], None] = field(default_factory=dict)  # oldest first

    async def run(self, listening: socket.socket) -> None:
        """Accept until cancelled, which also cancels handshakes but keeps open connections."""
        listening.settimeout(0)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as handshakes:
            while True:
                try:
                    connection, peer = await loop.sock_accept(listening)
                except OSError as error:
                    structlog.get_logger().error("tls.accept_failed", code=type(error).__name__)
                    await asyncio.sleep(_ACCEPT_PAUSE_S)
                    continue
                if self.connections.are_too_many:
                    structlog.get_logger().warning(
                        "tls.too_many_connections", code="overloaded", peer=peer[0]
                    )
                    connection.close()
                    continue
                self._cancel_oldest()
                task = handshakes.create_task(self._handshake(connection, peer[0]))
                self._handshakes[task] = None
                task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)

    def _cancel_oldest(self) -> None:
        if len(self._handshakes) >= MAX_HANDSHAKES:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()

    async def _handshake(self, connection: socket.socket, peer: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self.connections.new,
                connection,
                ssl=self.context(),
                ssl_handshake_timeout=self.connections.limits.header_deadline_s,
                ssl_shutdown_timeout=self.connections.limits.linger_s,
            )
        except OSError as error:  # TLS and TCP errors, and the deadline
            reason = getattr(error, "reason", None) or type(error).__name__
            structlog.get_logger().warning(
                "tls.handshake_failed", code=str(reason).lower(), peer=peer
            )
            connection.close()
