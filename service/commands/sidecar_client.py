"""HTTP client of the commands: options, requests to a running sidecar, and its errors."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from inspect import Parameter, Signature, signature
from typing import Any, Self
from urllib.parse import quote

import aiohttp

from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
    of_dimension,
)
from lookup_core.protocol.tls_hints import plain_refusal
from service.commands.endpoint import (
    DEFAULT,
    CaFileOption,
    CertFileOption,
    ClientFiles,
    Endpoint,
    EndpointOption,
    KeyFileOption,
    TokenOption,
    parse_endpoint,
)

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


@dataclass(frozen=True, slots=True)
class SidecarClient:
    """HTTP session with one sidecar."""

    endpoint: Endpoint
    session: aiohttp.ClientSession
    has_token: bool

    @classmethod
    @asynccontextmanager
    async def opened(cls, endpoint: Endpoint, *, token: str | None) -> AsyncIterator[Self]:
        """Open the session for the block; the first request connects."""
        async with session_with(endpoint, endpoint.tls(), token=token) as session:
            yield cls(endpoint, session, has_token=token is not None)

    async def request(self, method: str, path: str, *, body: object = None) -> dict[str, Any]:
        """Return the JSON object of a response; `path` is escaped. Raises SidelookError."""
        url = self.endpoint.url(path)
        with mapped_errors(self.endpoint):
            async with self.session.request(
                method, url, json=body, allow_redirects=False
            ) as response:
                answer = await response.json(content_type=None)
                status = response.status
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise problem(status, answer, has_token=self.has_token)
        if not isinstance(answer, dict):
            raise SidecarUnreachable(
                self.endpoint.text, f"{NO_SIDECAR}; {_unreachable_remedy(self.endpoint)}"
            )
        return answer

    async def key_fields(self, dimension: str) -> "list[KeyField]":
        """Return the columns of a key; raises SidelookError, also if they are unknown yet."""
        described = await self.request("GET", dimension_path(dimension))
        if described["key"] is None:
            fault = described["unavailable"]
            named = {**fault, "detail": of_dimension(dimension, fault["detail"])}
            raise problem(HTTPStatus.SERVICE_UNAVAILABLE, named)
        return [KeyField(field["name"], field["type"]) for field in described["key"]]


def dimension_path(name: str) -> str:
    """Return the path of a dimension, escaped."""
    return f"/v1/dimensions/{quote(name, safe='')}"


def sidecar_command(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return a command with the options that name a sidecar, in addition to its own.

    They replace its parameter `client`, which is an open SidecarClient.
    """

    @wraps(command, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def run(
        *,
        endpoint: EndpointOption = DEFAULT,
        token: TokenOption = None,
        ca_file: CaFileOption = None,
        cert_file: CertFileOption = None,
        key_file: KeyFileOption = None,
        **own: object,
    ) -> None:
        async def run_with_client() -> None:
            files = ClientFiles(ca_file, cert_file, key_file)
            async with SidecarClient.opened(parse_endpoint(endpoint, files), token=token) as client:
                await command(client=client, **own)

        asyncio.run(run_with_client())

    # Typer reads the options from the signature and the annotations.
    own = [each for name, each in signature(command).parameters.items() if name != "client"]
    shared = signature(run, follow_wrapped=False).parameters.values()
    options = [*own, *(each for each in shared if each.kind is not Parameter.VAR_KEYWORD)]
    run.__dict__["__signature__"] = Signature(options)
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def session_with(
    endpoint: Endpoint,
    tls: ssl.SSLContext | bool,
    *,
    token: str | None,
    timeout: aiohttp.ClientTimeout = TIMEOUT,
) -> aiohttp.ClientSession:
    """Return a session with an endpoint; the first request connects."""
    path = endpoint.socket
    connector = aiohttp.TCPConnector(ssl=tls) if path is None else aiohttp.UnixConnector(str(path))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)


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
