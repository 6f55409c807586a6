"""HTTP client of the commands: requests to a running sidecar, and its errors."""

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

# {status: code of a response without an error code}
PLAIN_CODES = {
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.UNAUTHORIZED,
    404: ErrorCode.UNKNOWN_DIMENSION,
    503: ErrorCode.OVERLOADED,
}


GIVE_IT = "give --token-file FILE"
GIVE_ANOTHER = (
    "the token of --token-file differs from the sidecar's auth.token_file, or, for changes, from "
    "its auth.admin_token_file"
)
ADMIN_SETTING = "auth.admin_token_file"  # named by a refusal if no token would be accepted
USE_SOCKET = "use the socket: --endpoint unix:///path"


def problem(status: int, body: object, *, has_token: bool = False) -> SidelookError:
    """Return the error of a failed response; `body` is any JSON value.

    The detail of a refusal ends with a remedy, which depends on whether a token was sent.
    """
    fields = body if isinstance(body, dict) else {}
    plain = ErrorCode.BAD_REQUEST if status < 500 else ErrorCode.INTERNAL
    known = {code.value: code for code in ErrorCode}
    code = known.get(str(fields.get("code")), PLAIN_CODES.get(status, plain))
    detail = str(fields.get("detail") or f"the sidecar answered with status {status}")
    if code is ErrorCode.UNAUTHORIZED:
        of_token = GIVE_ANOTHER if has_token else GIVE_IT
        detail = f"{detail}; {USE_SOCKET if ADMIN_SETTING in detail else of_token}"
    return (InvalidRequest if status < 500 else BackendError)(code, detail)


TIMEOUT = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0)  # seconds
NO_SIDECAR = "another server listens there, or the connection was lost"
REMEDY = "is it running there? if it is elsewhere, name it with --endpoint"


class SidecarClient:
    """HTTP session with one sidecar; opened and closed by `async with`."""

    def __init__(self, endpoint: Endpoint, *, token: str | None) -> None:
        self._endpoint = endpoint
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def __aenter__(self) -> Self:
        """Open the session; the first request connects."""
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
        """Close the session."""
        await self._session.close()

    async def request(self, method: str, path: str, *, body: object = None) -> dict[str, Any]:
        """Return the JSON object of a response; `path` is escaped. Raises SidelookError."""
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
    """Return a connector to an endpoint; the session that gets it closes it."""
    if endpoint.socket is not None:
        return aiohttp.UnixConnector(str(endpoint.socket))
    return aiohttp.TCPConnector(ssl=tls)


@contextmanager
def mapped_errors(endpoint: Endpoint) -> Iterator[None]:
    """Map aiohttp's errors to SidecarUnreachable."""
    try:
        yield
    except TimeoutError as error:
        raise SidecarUnreachable(endpoint.text, "no answer in time") from error
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
        raise SidecarUnreachable(endpoint.text, _tls_reason(endpoint, error)) from error
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno or 0  # negative if a name does not resolve
        reason = os.strerror(number) if number > 0 else str(error.os_error)
        raise SidecarUnreachable(endpoint.text, f"{reason}; {REMEDY}") from error
    except (aiohttp.ClientError, ValueError, RecursionError) as error:
        raise SidecarUnreachable(
            endpoint.text, f"{NO_SIDECAR}; {_unreachable_remedy(endpoint)}"
        ) from error


def _unreachable_remedy(endpoint: Endpoint) -> str:
    if endpoint.is_secure:
        return endpoint.files.hint(endpoint.host).of_silence()
    return plain_refusal(endpoint.text) or REMEDY


def _tls_reason(
    endpoint: Endpoint,
    error: aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError,
) -> str:
    hint = endpoint.files.hint(endpoint.host)
    match error:
        case aiohttp.ClientConnectorCertificateError(
            certificate_error=ssl.SSLCertVerificationError() as refused
        ):
            return hint.of_certificate(refused.verify_code, refused.verify_message)
        case aiohttp.ClientConnectorSSLError(os_error=ssl.SSLError() as failed):
            return hint.of_alert(failed.reason or str(failed))
    return str(error)


NUMERIC_TYPES = ("int", "uint", "float", "double", "halffloat", "bool")  # prefixes of Arrow's names


@dataclass(frozen=True, slots=True)
class KeyField:
    """A column of a dimension's key, with the name of its Arrow type."""

    name: str
    type: str

    @property
    def is_text(self) -> bool:
        """Whether its JSON values are strings."""
        return not self.type.startswith(NUMERIC_TYPES)


@dataclass(frozen=True, slots=True)
class DimensionClient:
    """Requests for one dimension."""

    sidecar: SidecarClient
    dimension: str

    async def key_fields(self) -> list[KeyField]:
        """Return the columns of the key; raises SidelookError, also if they are unknown yet."""
        described = await self._request("GET", "")
        if described["key"] is None:
            raise problem(HTTPStatus.SERVICE_UNAVAILABLE, described["unavailable"])
        return [KeyField(field["name"], field["type"]) for field in described["key"]]

    async def lookup(self, keys: Sequence[Any]) -> dict[str, Any]:
        """Return outcomes, rows and ages in the order of the keys; raises SidelookError."""
        return await self._request("POST", "/lookup", body={"keys": keys})

    async def explain(self, key: object) -> dict[str, Any]:
        """Return where a key's answer comes from; raises SidelookError."""
        parts = key if isinstance(key, list) else [key]
        return await self._request("GET", f"/explain/{','.join(map(_segment, parts))}")

    async def invalidate(self, keys: Sequence[Any] | None) -> dict[str, Any]:
        """Drop keys from the cache, or all for None; raises SidelookError."""
        return await self._request(
            "POST", "/invalidate", body={"all": True} if keys is None else {"keys": keys}
        )

    async def _request(self, method: str, path: str, *, body: object = None) -> dict[str, Any]:
        one = f"/v1/dimensions/{quote(self.dimension, safe='')}"
        return await self.sidecar.request(method, f"{one}{path}", body=body)


def _segment(part: object) -> str:
    return quote(part if isinstance(part, str) else json.dumps(part), safe="")
