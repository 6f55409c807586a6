"""Access control: Host, Origin, bearer tokens from files, and the peer's uid on a Unix socket."""

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import structlog
from aiohttp import hdrs, web
from multidict import istr

from lookup_core.errors import ErrorCode
from service.http.route import Audience

_Version = tuple[int, int, int]  # inode, modification time, size: a swapped symlink changes it


class TokenFile:
    """The token of one file; while the file cannot be read, the last one that was read counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: _Version | None = None
        self._digest = b""  # equals no digest: without a token nothing matches

    def matches(self, presented: str) -> bool:
        """Whether the token is this one; takes as long for a wrong one as for the right one."""
        self._refresh()
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(digest, self._digest)

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version != self._version:
                self._digest = _digest(self._path.read_bytes().strip())
                self._version = version
        except OSError as error:
            structlog.get_logger().error(
                "http.token_file_unreadable", code=type(error).__name__, path=str(self._path)
            )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest() if token else b""


LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_OPEN_TO_ANYONE = frozenset({Audience.PROBE, Audience.PAGE})
_SEC_FETCH_SITE = istr("Sec-Fetch-Site")  # found in a fraction of the time that a plain text takes
_OWN_FETCHES = frozenset({None, "same-origin", "none"})
_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: Linux's struct ucred


@dataclass(frozen=True, slots=True)
class Access:
    """What one listener asks of its callers; without tokens everyone may read."""

    hosts: Container[str] | None = None  # None: any, as on a Unix socket, where it names nothing
    reader_token: TokenFile | None = None
    admin_token: TokenFile | None = None


class Security:
    """Holds the access rules of one listener."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def check(self, request: web.Request, audience: Audience) -> None:
        """Raise 421, 403 or 401 for a request that must not be answered."""
        self._check_host(request)
        _check_origin(request, audience)
        if audience not in _OPEN_TO_ANYONE and not self._is_allowed(request, audience):
            peer = request.remote or "unix"
            structlog.get_logger().warning(
                "http.unauthorized", code=str(ErrorCode.UNAUTHORIZED), peer=peer
            )
            raise web.HTTPUnauthorized(
                text=self._remedy(audience), headers={"WWW-Authenticate": "Bearer"}
            )

    def _remedy(self, audience: Audience) -> str:
        if audience is Audience.ADMIN and self._access.admin_token is None:
            return (
                "no admin token is configured: ask over the Unix socket as the service's own user, "
                "or set auth.admin_token_file"
            )
        return "this needs a valid token"

    def _check_host(self, request: web.Request) -> None:
        # Against DNS rebinding: a page that resolves its own name to loopback sends that name.
        hosts = self._access.hosts
        if hosts is None:
            return
        # `request.host` is another one than the header's where the target is an absolute URL.
        for host in {request.headers.get(hdrs.HOST, ""), request.host}:
            name = _host_name(host)
            if name not in hosts and name != _local_address(request):
                raise web.HTTPMisdirectedRequest(text="this service does not answer to that Host")

    def _is_allowed(self, request: web.Request, audience: Audience) -> bool:
        presented = _bearer(request.headers.get(hdrs.AUTHORIZATION, ""))
        reader, admin = self._access.reader_token, self._access.admin_token
        # Both are always compared, so that the time tells nothing.
        is_reader = reader is not None and reader.matches(presented)
        is_admin = admin is not None and admin.matches(presented)
        may_read = reader is None or is_reader or is_admin
        if audience is not Audience.ADMIN:
            return may_read
        return is_admin if admin is not None else may_read and _is_owner(request)


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _check_origin(request: web.Request, audience: Audience) -> None:
    # Browsers send these when another site's page asks; the status page's own fetches do not.
    if hdrs.ORIGIN in request.headers:
        raise web.HTTPForbidden(text="requests of web pages are refused")
    is_own = request.headers.get(_SEC_FETCH_SITE) in _OWN_FETCHES
    if not is_own and audience is not Audience.PAGE:
        raise web.HTTPForbidden(text="requests of other sites' web pages are refused")


@lru_cache(maxsize=64)
def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return (host.rpartition(":")[0] or host).lower()


def _local_address(request: web.Request) -> str | None:
    # An address cannot be rebound as a name can; so the one that was connected to is allowed.
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
