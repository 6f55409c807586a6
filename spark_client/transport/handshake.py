"""WebSocket opening handshake with a sidecar, over a Unix socket, TCP or TLS.

Classifies refusals as final or retriable; the connection retries.
"""

import socket
import time
from contextlib import ExitStack
from http import HTTPStatus

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidMessage, InvalidStatus
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from lookup_core.endpoint import plain_refusal
from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable, SidelookError
from lookup_core.protocol.frames import SUBPROTOCOL
from lookup_core.protocol.stream_client import AGENT
from spark_client.transport.endpoint import SYSTEMS_TLS, ClientTls, StreamEndpoint, limit_wait
from spark_client.transport.web_socket import RECEIVE_BYTES, WebSocket

MAX_MESSAGE_BYTES = 256 * 1024 * 1024


def handshake(
    endpoint: StreamEndpoint, *, token: str | None, timeout_s: float, tls: ClientTls = SYSTEMS_TLS
) -> WebSocket:
    """Connect and shake hands; `timeout_s` bounds all of it, also a slow answer.

    Raises SidecarUnreachable if a retry may help, InvalidRequest if it will not.
    """
    deadline_s = time.monotonic() + timeout_s
    connected = endpoint.connect(timeout_s, tls)
    with ExitStack() as stack:
        stack.callback(connected.close)
        protocol = ClientProtocol(
            parse_uri(endpoint.web_socket_url),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=MAX_MESSAGE_BYTES,
        )
        try:
            _send_request(connected, protocol, token=token, deadline_s=deadline_s)
            _take_answer(connected, protocol, deadline_s=deadline_s)
        except OSError as error:
            # With TLS 1.3 a refusal of the client's certificate comes only now.
            of_tls = tls.reason(error, endpoint.host) if endpoint.is_secure else None
            reason = f"the handshake failed: {of_tls or with_remedy(str(error), endpoint.url)}"
            raise SidecarUnreachable(endpoint.url, reason) from error
        _check_answer(protocol, endpoint.url, has_token=token is not None)
        connected.settimeout(0)
        stack.pop_all()
        return WebSocket(connected, protocol, url=endpoint.url)


def _send_request(
    connected: socket.socket, protocol: ClientProtocol, *, token: str | None, deadline_s: float
) -> None:
    request = protocol.connect()
    request.headers["User-Agent"] = AGENT
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
    protocol.send_request(request)
    for data in protocol.data_to_send():
        limit_wait(connected, deadline_s)
        connected.sendall(data)


def _take_answer(connected: socket.socket, protocol: ClientProtocol, *, deadline_s: float) -> None:
    while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
        limit_wait(connected, deadline_s)
        chunk = connected.recv(RECEIVE_BYTES)
        if chunk:
            protocol.receive_data(chunk)
        else:
            protocol.receive_eof()
    refused = protocol.handshake_exc
    if isinstance(refused, InvalidMessage) and isinstance(refused.__cause__, EOFError):
        raise ConnectionResetError("it closed the connection") from refused


def _check_answer(protocol: ClientProtocol, url: str, *, has_token: bool) -> None:
    refused = protocol.handshake_exc
    if refused is not None:
        raise _refusal(refused, url, has_token=has_token) from refused
    if protocol.subprotocol != SUBPROTOCOL:
        raise InvalidRequest(ErrorCode.UNSUPPORTED_VERSION, f"{url} does not speak {SUBPROTOCOL}")


def _refusal(error: Exception, url: str, *, has_token: bool) -> SidelookError:
    if not isinstance(error, InvalidStatus):
        reason = with_remedy(f"{url} is no sidecar: {error}", url)
        return InvalidRequest(ErrorCode.BAD_REQUEST, reason)
    return refusal_of(error.response.status_code, url, has_token=has_token)


def refusal_of(status: int, url: str, *, has_token: bool) -> SidelookError:
    """The error for an HTTP status other than the expected one; retriable from 500 on."""
    if status in {401, 403}:
        detail = (
            f"{url} wants a token (HTTP {status}); name its file: Sidecar({url!r}, token_file=…)"
        )
        if has_token:
            detail = f"{url} refused the token (HTTP {status}); see token_file"
        return InvalidRequest(ErrorCode.UNAUTHORIZED, detail)
    if status >= 500:
        return SidecarUnreachable(url, f"it answered HTTP {status}")
    reason = f"{url} is no sidecar: HTTP {status}"
    if status == HTTPStatus.BAD_REQUEST:  # the answer of many TLS servers to plain HTTP
        reason = with_remedy(reason, url)
    if status == HTTPStatus.NOT_FOUND:
        reason += "; the health listener serves no lookups: use the address of listen.http"
    return InvalidRequest(ErrorCode.BAD_REQUEST, reason)


def with_remedy(reason: str, url: str) -> str:
    """The reason, and the remedy if plain HTTP may have met a TLS port."""
    remedy = plain_refusal(url)
    return f"{reason}; {remedy}" if remedy else reason
