"""HTTP client of the commands: requests to a running sidecar, problems as errors."""

import json
import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
)
from lookup_core.protocol.tls_hints import plain_refusal
from service.commands.endpoint import Endpoint
from service.commands.key_arguments import KeyField

# {status: what it means without a code of ours}
PLAIN_CODES = {
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.UNAUTHORIZED,
    404: ErrorCode.UNKNOWN_DIMENSION,
    503: ErrorCode.OVERLOADED,
}


GIVE_IT = "give --token-file FILE"
GIVE_ANOTHER = (
    "the token of --token-file is not the one of its auth.token_file, or, where something is to "
    "change, of its auth.admin_token_file"
)
ADMIN_SETTING = "auth.admin_token_file"  # where a refusal names it, no token would help
USE_SOCKET = "the socket is chosen by --endpoint unix:///path"


def problem(status: int, body: object, *, has_token: bool = False) -> SidelookError:
    """The error for an answer that is none; `body` is its JSON value, whatever that is.

    A refusal has its remedy, which depends on whether a token was shown.
    """
    told = body if isinstance(body, dict) else {}
    code = _code(status, told.get("code"))
    detail = str(told.get("detail") or f"the sidecar answered with status {status}")
    if code is ErrorCode.UNAUTHORIZED:
        detail = f"{detail}; {_remedy(detail, has_token=has_token)}"
    return (InvalidRequest if status < 500 else BackendError)(code, detail)


def _remedy(detail: str, *, has_token: bool) -> str:
    if ADMIN_SETTING in detail:
        return USE_SOCKET
    return GIVE_ANOTHER if has_token else GIVE_IT


def _code(status: int, name: object) -> ErrorCode:
    plain = ErrorCode.BAD_REQUEST if status < 500 else ErrorCode.INTERNAL
    known = {code.value: code for code in ErrorCode}
    return known.get(str(name), PLAIN_CODES.get(status, plain))


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
                self._endpoint.text, f"{NO_SIDECAR}; {_unreachable_remedy(self._endpoint)}"
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
        raise SidecarUnreachable(
            endpoint.text, f"{NO_SIDECAR}; {_unreachable_remedy(endpoint)}"
        ) from error


def _unreachable_remedy(endpoint: Endpoint) -> str:
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


@dataclass(frozen=True, slots=True)
class DimensionClient:
    """One dimension of a sidecar."""

    sidecar: SidecarClient
    dimension: str

    async def key_fields(self) -> list[KeyField]:
        """The columns of the dimension's key; raises SidelookError, also while it has none."""
        described = await self._ask("GET", "")
        if described["key"] is None:
            unavailable = described["unavailable"]
            raise problem(HTTPStatus.SERVICE_UNAVAILABLE, unavailable)
        return [KeyField(field["name"], field["type"]) for field in described["key"]]

    async def lookup(self, keys: Sequence[Any]) -> dict[str, Any]:
        """Outcomes, rows and ages in the order of the keys; raises SidelookError."""
        return await self._ask("POST", "/lookup", body={"keys": keys})

    async def explain(self, key: object) -> dict[str, Any]:
        """Where this key's answer comes from; raises SidelookError."""
        parts = key if isinstance(key, list) else [key]
        return await self._ask("GET", f"/explain/{','.join(map(_segment, parts))}")

    async def invalidate(self, keys: Sequence[Any] | None) -> dict[str, Any]:
        """Forget the keys, or all for None; raises SidelookError."""
        return await self._ask(
            "POST", "/invalidate", body={"all": True} if keys is None else {"keys": keys}
        )

    async def _ask(self, method: str, path: str, *, body: object = None) -> dict[str, Any]:
        one = f"/v1/dimensions/{quote(self.dimension, safe='')}"
        return await self.sidecar.ask(method, f"{one}{path}", body=body)


def _segment(part: object) -> str:
    return quote(part if isinstance(part, str) else json.dumps(part), safe="")
