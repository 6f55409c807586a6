"""Asking a running sidecar over HTTP, for the commands.

Not for lookups in bulk: Spark tasks stream them. What is asked of a dimension stands in
`dimension_client`.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import aiohttp
from yarl import URL

from lookup_core.errors import SidecarUnreachable
from lookup_core.plain_refusal import plain_refusal
from service.commands.endpoint import Endpoint
from service.commands.problem import problem

TIMEOUT = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0)  # seconds
NO_SIDECAR = "what answers there is no sidecar, or it broke off"
REMEDY = "is it running there? if it is elsewhere, name it with --endpoint"


class SidecarClient:
    """Asks one sidecar; opened and closed by `async with`."""

    def __init__(self, endpoint: Endpoint, *, token: str | None) -> None:
        self._endpoint = endpoint
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def __aenter__(self) -> Self:
        """Prepare; the connection is made by the first question."""
        connector = connector_of(self._endpoint, self._endpoint.tls())
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=TIMEOUT
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self._session.close()

    async def ask(self, method: str, path: str, *, body: object = None) -> dict[str, Any]:
        """What it answers to a path, which is escaped already; raises SidelookError."""
        url = URL(f"{self._endpoint.base_url.origin()}{path}", encoded=True)
        with mapped_errors(self._endpoint):
            async with self._session.request(
                method, url, json=body, allow_redirects=False
            ) as response:
                answer = await response.json(content_type=None)
                status = response.status
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise problem(status, answer, has_token="Authorization" in self._headers)
        if not isinstance(answer, dict):
            raise SidecarUnreachable(
                self._endpoint.text, f"{NO_SIDECAR}; {_remedy(self._endpoint)}"
            )
        return answer


def connector_of(endpoint: Endpoint, tls: ssl.SSLContext | bool) -> aiohttp.BaseConnector:
    """The connections to it, with `Endpoint.tls`; to be closed by the session that has it."""
    if endpoint.socket is not None:
        return aiohttp.UnixConnector(str(endpoint.socket))
    return aiohttp.TCPConnector(ssl=tls)


@contextmanager
def mapped_errors(endpoint: Endpoint) -> Iterator[None]:
    """Turn what aiohttp raises into SidecarUnreachable."""
    try:
        yield
    except TimeoutError as error:
        raise SidecarUnreachable(endpoint.text, "no answer in time") from error
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
        raise SidecarUnreachable(endpoint.text, _tls_reason(endpoint, error)) from error
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno or 0  # names that do not resolve have negative ones
        reason = os.strerror(number) if number > 0 else str(error.os_error)
        raise SidecarUnreachable(endpoint.text, f"{reason}; {REMEDY}") from error
    except (aiohttp.ClientError, ValueError, RecursionError) as error:
        raise SidecarUnreachable(endpoint.text, f"{NO_SIDECAR}; {_remedy(endpoint)}") from error


def _remedy(endpoint: Endpoint) -> str:
    if endpoint.is_secure:
        return endpoint.files.refusal(endpoint.host).of_silence()
    return plain_refusal(endpoint.text) or REMEDY


def _tls_reason(
    endpoint: Endpoint,
    error: aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError,
) -> str:
    refusal = endpoint.files.refusal(endpoint.host)
    match error:
        case aiohttp.ClientConnectorCertificateError(
            certificate_error=ssl.SSLCertVerificationError() as refused
        ):
            return refusal.of_certificate(refused.verify_code, refused.verify_message)
        case aiohttp.ClientConnectorSSLError(os_error=ssl.SSLError() as failed):
            return refusal.of_alert(failed.reason or str(failed))
    return str(error)
