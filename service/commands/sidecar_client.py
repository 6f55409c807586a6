"""HTTP client of the commands: requests to a running sidecar, and its errors."""

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
from yarl import URL

from lookup_core.endpoint import TlsHint, plain_refusal
from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
    of_dimension,
)
from service.commands.endpoint import (
    DEFAULT,
    CaFileOption,
    CertFileOption,
    ClientFiles,
    EndpointOption,
    KeyFileOption,
    SidecarEndpoint,
    TokenOption,
    parse_endpoint,
)
from service.doctor.sidecar.response import SidecarResponse

NO_SIDECAR = "another server listens there, or the connection was lost"
_TIMEOUT = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0)  # seconds
_REMEDY = "is it running there? if it is elsewhere, name it with --endpoint"
_NUMERIC_TYPES = ("int", "uint", "float", "double", "halffloat", "bool")  # prefixes of Arrow's
_PLAIN_CODES = {  # {status: code of a response without an error code}
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.UNAUTHORIZED,
    404: ErrorCode.UNKNOWN_DIMENSION,
    503: ErrorCode.OVERLOADED,
}
_GIVE_ONE = "give --token-file FILE"
_GIVE_ANOTHER = (
    "the token of --token-file differs from the sidecar's auth.token_file, or, for changes, from "
    "its auth.admin_token_file"
)
_ADMIN_SETTING = "auth.admin_token_file"  # named by a refusal if no token would be accepted
_USE_SOCKET = "use the socket: --endpoint unix:///path"


@dataclass(frozen=True, slots=True)
class KeyField:
    """A column of a dimension's key, with the name of its Arrow type."""

    name: str
    type: str

    @property
    def is_text(self) -> bool:
        """Whether its JSON values are strings."""
        return not self.type.startswith(_NUMERIC_TYPES)


@dataclass(frozen=True, slots=True)
class SidecarClient:
    """HTTP session with one sidecar."""

    address: SidecarEndpoint
    session: aiohttp.ClientSession
    has_token: bool

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        address: SidecarEndpoint,
        *,
        token: str | None,
        tls: ssl.SSLContext | bool | None = None,
        limits: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> AsyncIterator[Self]:
        """Open the session for the block; the first request connects. `tls` may be read before.

        Raises typer.BadParameter for unusable TLS files.
        """
        connector: aiohttp.BaseConnector = (
            aiohttp.TCPConnector(ssl=address.tls if tls is None else tls)
            if address.path is None
            else aiohttp.UnixConnector(address.path)
        )
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=limits
        ) as session:
            yield cls(address, session, has_token=token is not None)

    async def response(
        self, method: str, path: str, *, body: object = None, server_name: str | None = None
    ) -> SidecarResponse:
        """Return the response to a request; `path` is escaped. Raises SidecarUnreachable.

        The certificate must be valid for `server_name`, by default the host of the address.
        """
        origin = URL("http://localhost" if self.address.path else self.address.url).origin()
        with mapped_errors(self.address):
            async with self.session.request(
                method,
                URL(f"{origin}{path}", encoded=True),
                json=body,
                allow_redirects=False,
                server_hostname=server_name,
            ) as answer:
                text, date = await answer.text(), answer.headers.get("Date")
            return SidecarResponse.parsed(answer.status, text, date)

    async def request(self, method: str, path: str, *, body: object = None) -> dict[str, Any]:
        """Return the JSON object of a response; `path` is escaped. Raises SidelookError."""
        response = await self.response(method, path, body=body)
        is_error = response.status >= HTTPStatus.MULTIPLE_CHOICES
        with mapped_errors(self.address):
            if isinstance(response.body, str) or not (is_error or response.is_object):
                raise ValueError("not an object")
        if is_error:
            raise problem(response.status, response.body, has_token=self.has_token)
        return dict(response.fields)

    async def key_fields(self, dimension: str) -> list[KeyField]:
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


def problem(status: int, body: object, *, has_token: bool = False) -> SidelookError:
    """Return the error of a failed response; `body` is any JSON value.

    The detail of a refusal ends with a remedy, which depends on whether a token was sent.
    """
    fields = body if isinstance(body, dict) else {}
    plain = ErrorCode.BAD_REQUEST if status < 500 else ErrorCode.INTERNAL
    known = {code.value: code for code in ErrorCode}
    code = known.get(str(fields.get("code")), _PLAIN_CODES.get(status, plain))
    detail = str(fields.get("detail") or f"the sidecar answered with status {status}")
    if code is ErrorCode.UNAUTHORIZED:
        of_token = _GIVE_ANOTHER if has_token else _GIVE_ONE
        detail = f"{detail}; {_USE_SOCKET if _ADMIN_SETTING in detail else of_token}"
    return (InvalidRequest if status < 500 else BackendError)(code, detail)


@contextmanager
def mapped_errors(address: SidecarEndpoint) -> Iterator[None]:
    """Map errors of aiohttp and of JSON to SidecarUnreachable."""
    hint = address.files.hint(address.host)
    try:
        yield
    except TimeoutError as error:
        raise SidecarUnreachable(address.url, "no answer in time") from error
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
        raise SidecarUnreachable(address.url, _tls_reason(hint, error)) from error
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno or 0  # negative if a name does not resolve
        reason = os.strerror(number) if number > 0 else str(error.os_error)
        raise SidecarUnreachable(address.url, f"{reason}; {_REMEDY}") from error
    except (aiohttp.ClientError, ValueError, RecursionError) as error:
        silence = hint.of_silence() if address.is_secure else plain_refusal(address.url)
        reason = f"{NO_SIDECAR}; {silence or _REMEDY}"
        raise SidecarUnreachable(address.url, reason) from error


def _tls_reason(
    hint: TlsHint,
    error: aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError,
) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError(
            certificate_error=ssl.SSLCertVerificationError() as refused
        ):
            return hint.of_certificate(refused.verify_code, refused.verify_message)
        case aiohttp.ClientConnectorSSLError(os_error=ssl.SSLError() as failed):
            return hint.of_alert(failed.reason or str(failed))
    return str(error)


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
