"""Access control: audiences, Host, Origin, bearer tokens, and the peer's uid on a Unix socket."""

import hashlib
import hmac
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path

import structlog
from aiohttp import hdrs, web
from multidict import istr

from lookup_core.bearer_token import FORM, parse_token
from lookup_core.errors import ErrorCode
from service.file_identity import FileIdentity, read_regular_file

_GRACE_S = 10.0  # a file that is replaced may be absent or empty for a moment


@dataclass(slots=True, eq=False)
class TokenFile:
    """The token in one file; the last token is valid for 10 s after the file was last usable."""

    path: Path
    setting: str = "auth.token_file"
    clock: Callable[[], float] = time.monotonic
    _identity: FileIdentity | None = None
    _digest: bytes = b""  # equals no digest, so nothing matches without a token
    _usable_s: float = -math.inf  # the last time
    _fault: str | None = None

    def matches(self, presented: str) -> bool:
        """Compare a token in constant time."""
        self._refresh()
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(digest, self._digest)

    def fault(self) -> str | None:
        """Why the file is not usable now, with the remedy; None if it is usable."""
        self._refresh()
        return self._fault

    @property
    def is_valid(self) -> bool:
        """Whether some token matched when the file was last checked."""
        return bool(self._digest)

    def _refresh(self) -> None:
        try:
            identity = FileIdentity.of(self.path)
            if identity != self._identity:
                token = parse_token(read_regular_file(self.path))
                self._digest = hashlib.sha256(token.encode()).digest()
                self._identity = identity
            self._usable_s = self.clock()
            self._set_fault(None)
        except ValueError as error:
            self._on_unusable(str(error))
        except OSError as error:
            self._on_unusable(f"cannot be read ({error.strerror})")

    def _on_unusable(self, reason: str) -> None:
        if self.clock() - self._usable_s <= _GRACE_S:
            effect = f"its last token is valid for {_GRACE_S:g} s"
        else:
            self._identity, self._digest = None, b""
            effect = "no token is valid"
        self._set_fault(f"{self.setting}: {self.path} {reason}; {effect}: {FORM}")

    def _set_fault(self, fault: str | None) -> None:
        if fault == self._fault:
            return
        self._fault = fault
        if fault is None:
            structlog.get_logger().info("http.token_file_usable", path=str(self.path))
        else:
            structlog.get_logger().warning(
                "http.token_file_unusable", code="unusable_token", detail=fault
            )


class Audience(Enum):
    """Who may call a route, and when."""

    PROBE = auto()  # everyone, always: an overload must not look like a dead process
    PAGE = auto()  # everyone: it contains no data
    READER = auto()  # holders of the token, if one is configured
    CALLER = auto()  # as READER, but not during a drain
    ADMIN = auto()  # holders of the admin token, or the owner of the process


LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
PUBLIC = frozenset({Audience.PROBE, Audience.PAGE})
_SEC_FETCH_SITE = istr("Sec-Fetch-Site")  # several times faster to look up than a str
_OWN_FETCHES = frozenset({None, "same-origin", "none"})
_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: Linux's struct ucred


@dataclass(frozen=True, slots=True)
class Access:
    """Access rules of one listener; without tokens everyone may read."""

    hosts: Container[str] | None = None  # None: any, because Host means nothing on a Unix socket
    reader_token: TokenFile | None = None
    admin_token: TokenFile | None = None

    def check(self, request: web.Request, audience: Audience) -> None:
        """Raise 421 (Host), 403 (Origin) or 401 (token) for a request that is not allowed."""
        self._check_host(request)
        _check_origin(request, audience)
        if not self._is_allowed(request, audience):
            peer = request.remote or "unix"
            structlog.get_logger().warning(
                "http.unauthorized", code=str(ErrorCode.UNAUTHORIZED), peer=peer
            )
            raise web.HTTPUnauthorized(
                text=self._remedy(audience), headers={"WWW-Authenticate": "Bearer"}
            )

    def _remedy(self, audience: Audience) -> str:
        if audience is Audience.ADMIN and self.admin_token is None:
            return (
                "no admin token is configured: use the Unix socket as the service's own user, "
                "or set auth.admin_token_file"
            )
        return "this needs a valid token"

    def _check_host(self, request: web.Request) -> None:
        # Against DNS rebinding: a page whose own name resolves to loopback sends that name.
        hosts = self.hosts
        if hosts is None:
            return
        # `request.host` differs from the header if the request target is an absolute URL.
        for host in {request.headers.get(hdrs.HOST, ""), request.host}:
            name = _host_name(host)
            if name not in hosts and name != _local_address(request):
                raise web.HTTPMisdirectedRequest(text="this service does not accept that Host")

    def _is_allowed(self, request: web.Request, audience: Audience) -> bool:
        is_reading = audience is not Audience.ADMIN
        if is_reading and (self.reader_token is None or audience in PUBLIC):
            return True
        presented = _bearer(request.headers.get(hdrs.AUTHORIZATION, ""))
        reader, admin = self.reader_token, self.admin_token
        # Both are always compared, so that the time discloses nothing.
        is_reader = reader is not None and reader.matches(presented)
        is_admin = admin is not None and admin.matches(presented)
        may_read = reader is None or is_reader or is_admin
        if is_reading:
            return may_read
        return is_admin if admin is not None else may_read and _is_owner(request)


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _check_origin(request: web.Request, audience: Audience) -> None:
    # Browsers send these for requests of other sites' pages, not for those of the status page.
    if hdrs.ORIGIN in request.headers:
        raise web.HTTPForbidden(text="requests by web pages are refused")
    is_own = request.headers.get(_SEC_FETCH_SITE) in _OWN_FETCHES
    if not is_own and audience is not Audience.PAGE:
        raise web.HTTPForbidden(text="requests by web pages of other sites are refused")


@lru_cache(maxsize=64)
def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return (host.rpartition(":")[0] or host).lower()


def _local_address(request: web.Request) -> str | None:
    # The address of the connection is allowed: unlike a name, it cannot be rebound.
    address = request.transport.get_extra_info("sockname") if request.transport else None
    return str(address[0]) if isinstance(address, tuple) else None


def _is_owner(request: web.Request) -> bool:
    connection = request.transport.get_extra_info("socket") if request.transport else None
    if connection is None or connection.family != socket.AF_UNIX:
        return False
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
    )
    _, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
    return uid in {0, os.getuid()}
