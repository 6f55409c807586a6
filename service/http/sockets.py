"""Connections of the listeners: runners of applications, malformed requests, handshakes of TLS."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError, RawRequestMessage
from aiohttp.http_exceptions import InvalidHeader, InvalidURLError, LineTooLong

from lookup_core.errors import ErrorCode
from service.http.body import MalformedBodyError
from service.http.limits import Limits
from service.http.problem import HttpCode, Problem
from service.http.replies.ready_response import FIXED_HEADERS

MAX_LINE_BYTES = 8190  # of the request line and of each header
MAX_HEADERS = 128


def listener(app: web.Application, limits: Limits, *, shutdown_timeout_s: float) -> web.AppRunner:
    """A runner without sites.

    The keep-alive timeout counts from the last response, so it ends idle connections and slow
    headers. Handlers are cancelled when their client disconnects. A clean-up waits up to
    `shutdown_timeout_s` for running requests.
    """
    return _Runner(
        app,
        access_log=None,
        auto_decompress=False,
        handler_cancellation=True,
        keepalive_timeout=limits.header_deadline_s,
        lingering_time=limits.linger_s,
        max_field_size=MAX_LINE_BYTES,
        max_headers=MAX_HEADERS,
        max_line_size=MAX_LINE_BYTES,
        shutdown_timeout=shutdown_timeout_s,
    )


class _Runner(web.AppRunner):
    """A runner whose connections report malformed requests as problems, too."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            **made._kwargs,  # noqa: SLF001 -- aiohttp has no other way to its connections
        )


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._kwargs)


class _Connection(web.RequestHandler):
    def data_received(self, data: bytes) -> None:
        """Take bytes; a broken chunk fails the request whose body it belongs to.

        aiohttp would only queue the error behind that request, which waits for its body.
        """
        super().data_received(data)
        messages, current = self._messages, self._current_request
        error = messages[-1][0] if messages else None
        if error is None or isinstance(error, RawRequestMessage):
            return
        if len(messages) > 1:
            body = messages[-2][1]
        elif current is not None:
            body = current.content
        else:
            return
        if not body.is_eof():  # else the error is that of another request
            messages.pop()
            peer = None if current is None else current.remote
            body.set_exception(MalformedBodyError(text=_log_malformed(error.exc, peer)))
            body.feed_eof()

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
            problem = Problem.of(status, HttpCode.BAD_HTTP, _log_malformed(exc, request.remote))
        response = problem.response()
        response.headers.update(FIXED_HEADERS)
        response.force_close()
        return response


def _log_malformed(error: BaseException | None, peer: str | None) -> str:
    """Log the kind of a parser's error; returns its text without a part of the request."""
    reason = type(error).__name__
    # Not the message: it quotes the request, possibly with its token.
    log = structlog.get_logger()
    log.warning("http.malformed_request", code="bad_http", peer=peer or "unix", reason=reason)
    match error:
        case LineTooLong():
            fault = f"its first line, a header or a chunk's size has over {MAX_LINE_BYTES} bytes"
        case InvalidHeader():
            fault = "a header has a character that is not allowed"
        case InvalidURLError():
            fault = "the request target is no URL"
        case HttpProcessingError(message="Too many headers received"):
            fault = f"it has more than {MAX_HEADERS} headers"
        case HttpProcessingError(message=text) if "PRI/Upgrade" in text:
            fault = "HTTP/2 is not supported; set HTTP/1.1 at the client or proxy"
        case HttpProcessingError():
            fault = error.message.strip().partition("\n")[0].rstrip(":")
        case _:
            fault = reason
    return f"this is not a valid HTTP/1.1 request: {fault}"


_ACCEPT_PAUSE_S = 1.0  # after a failed accept, such as without a free file descriptor
# A TLS connection takes ten times the memory of a plain one, before the client is authorized. A
# handshake takes milliseconds: beyond this number the oldest one is stuck, and is cancelled.
MAX_HANDSHAKES = 256
MAX_OPEN_FACTOR = 4  # open connections per admitted request


@dataclass(slots=True, eq=False)
class SecureAcceptor:
    """Accepts TLS connections on one socket, each with the current certificate.

    aiohttp's own sites cannot change their certificate.
    """

    factory: Callable[[], asyncio.Protocol]
    context: Callable[[], ssl.SSLContext]
    limits: Limits
    open_connections: Callable[[], int]
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
                if self.open_connections() >= MAX_OPEN_FACTOR * self.limits.connections:
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
                self.factory,
                connection,
                ssl=self.context(),
                ssl_handshake_timeout=self.limits.header_deadline_s,
                ssl_shutdown_timeout=self.limits.linger_s,
            )
        except OSError as error:  # TLS and TCP errors, and the deadline
            reason = getattr(error, "reason", None) or type(error).__name__
            structlog.get_logger().warning(
                "tls.handshake_failed", code=str(reason).lower(), peer=peer
            )
            connection.close()
