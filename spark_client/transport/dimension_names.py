"""Names of a sidecar's dimensions, by HTTP at the endpoint of its streams."""

import json
import logging
import math
import time
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from io import BytesIO

from lookup_core.backoff import NEVER, reopening_backoff
from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable
from lookup_core.protocol.stream_client import AGENT, given_up
from spark_client.transport.connection import Timing
from spark_client.transport.connections import SidecarAddress
from spark_client.transport.endpoint import StreamEndpoint, endpoint_of, limit_wait
from spark_client.transport.handshake import refusal_of, with_remedy
from spark_client.transport.web_socket import RECEIVE_BYTES

_log = logging.getLogger(__name__)

_PATH = "/v1/dimensions"
_MAX_ANSWER_BYTES = 16 * 1024 * 1024
WAITING = Timing()


def dimension_names(address: SidecarAddress, timing: Timing = WAITING) -> tuple[str, ...]:
    """Read the names of all dimensions, sorted; retries for about the address's connect timeout.

    Logs a warning if that takes long. Raises SidecarUnreachable, or InvalidRequest if the token is
    refused or no sidecar responds.
    """
    url, timeout_s = address.url, address.connect_timeout_s
    backoff = reopening_backoff(timeout_s)
    warn_at_s = timing.clock() + timing.warn_after_s
    while True:
        try:
            return _names(address)
        except SidecarUnreachable as error:
            now_s = timing.clock()
            delay_s = backoff.on_failure(timing.jitter(), now=now_s)
            if delay_s == NEVER:
                raise given_up(url, error, timeout_s) from error
            if now_s >= warn_at_s:
                warn_at_s = math.inf
                _log.warning("waiting up to %g s for %s: %s", timeout_s, url, error.reason)
            timing.pause(delay_s)


def _names(address: SidecarAddress) -> tuple[str, ...]:
    endpoint, token = endpoint_of(address.url), address.token()
    try:
        response = _response(_received(endpoint, address, token))
        body = response.read()
    except OSError as error:
        raise SidecarUnreachable(address.url, _reason(error, address, endpoint)) from error
    except HTTPException as error:
        raise _no_sidecar(address.url, f"{type(error).__name__}: {error}") from error
    if response.status != HTTPStatus.OK:
        raise refusal_of(response.status, address.url, has_token=token is not None)
    return _listed(body, address.url)


def _received(endpoint: StreamEndpoint, address: SidecarAddress, token: str | None) -> bytes:
    """All bytes of the answer; the attempt's timeout bounds all of it, also a slow answer."""
    deadline_s = time.monotonic() + address.attempt_timeout_s
    headers = {"Connection": "close", "User-Agent": AGENT}
    request = HTTPConnection(endpoint.host, endpoint.port or None)
    request.sock = connected = endpoint.connect(address.attempt_timeout_s, address.tls)
    received = BytesIO()
    with closing(request):
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        limit_wait(connected, deadline_s)
        request.request("GET", _PATH, headers=headers)
        while received.tell() <= _MAX_ANSWER_BYTES:
            limit_wait(connected, deadline_s)
            chunk = connected.recv(RECEIVE_BYTES)
            if not chunk:
                break
            received.write(chunk)
    if not received.tell():
        raise ConnectionResetError("it closed the connection")
    return received.getvalue()


@dataclass(frozen=True, slots=True)
class _Received:
    """The bytes of an answer, as `HTTPResponse` reads them from a socket."""

    data: bytes

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self.data)


def _response(data: bytes) -> HTTPResponse:
    response = HTTPResponse(_Received(data))  # type: ignore[arg-type]
    response.begin()
    return response


def _reason(error: OSError, address: SidecarAddress, endpoint: StreamEndpoint) -> str:
    # With TLS 1.3 a refusal of the client's certificate comes only now.
    of_tls = address.tls.reason(error, endpoint.host) if endpoint.is_secure else None
    return of_tls or with_remedy(f"GET {_PATH} failed: {error}", address.url)


def _listed(body: bytes, url: str) -> tuple[str, ...]:
    try:
        names = json.loads(body)["dimensions"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _no_sidecar(url, f"{_PATH} lists no dimensions") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _no_sidecar(url, f"{_PATH} lists no dimensions")
    return tuple(names)


def _no_sidecar(url: str, reason: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.BAD_REQUEST, with_remedy(f"{url} is no sidecar: {reason}", url))
