"""PostgreSQL DSNs that were checked: their hosts and settings, those of files, and host names.

The package of the configuration checks them.

The C library cannot interrupt the resolution of a host name. If the name server is silent, each
attempt to connect would take another of the loop's few threads, until no other name resolves and no
process ends: resolutions have threads of their own.
"""

import asyncio
import errno
import ipaddress
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import structlog

log = structlog.get_logger()

_CONNECT_TIMEOUT = "connect_timeout"
_OPTION = re.compile(r"(?:-c\s*|--)([\w.-]+)=((?:\\.|[^\s\\])*)")
# Settings that SQL of the user reads, besides custom ones, and whose values are not rewritten.
_READ_BY_SQL = {"lc_monetary", "lc_numeric", "lc_time", "role", "search_path"}
_HOST = re.compile(r"(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?", re.ASCII)


def host_names(dsn: str) -> Iterator[str]:
    """The hosts before the first IP address or folder of a socket, in order."""
    parts = urlsplit(dsn)
    hosts = parts.netloc.rpartition("@")[2] or _parameters(dsn).get("host", "")
    for each in map(unquote, hosts.split(",")):
        name = each.partition(":")[0]
        if not name or name.startswith(("/", "[")) or _is_ip_address(name):
            return
        yield name


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def settings_of(dsn: str) -> dict[str, str]:
    """The settings of sessions that SQL of the user may read."""
    parameters = _parameters(dsn)
    options = {
        name.replace("-", "_"): re.sub(r"\\(.)", r"\1", value)
        for name, value in _OPTION.findall(parameters.pop("options", ""))
    }
    found = {name.lower(): value for name, value in {**options, **parameters}.items()}
    return {name: value for name, value in found.items() if "." in name or name in _READ_BY_SQL}


def shown_hosts(dsn: str) -> str:
    """Hosts and ports; empty if they may include a password."""
    parts = dsn.partition("://")[2].split("@")
    hosts = re.split(r"[/?#]", parts[-1], maxsplit=1)[0]
    are_plain = all(_HOST.fullmatch(host) for host in hosts.split(","))
    # No other @ may be in it, nor an end of the hosts before: a password may have / or ?.
    is_clear = len(parts) == 1 or (len(parts) == 2 and not re.search(r"[/?#]", parts[0]))
    return hosts if are_plain and is_clear else ""


def connect_timeout_s(dsn: str) -> float | None:
    """The `connect_timeout`; None without one."""
    value = _parameters(dsn).get(_CONNECT_TIMEOUT)
    return None if value is None else float(value)


def without_connect_timeout(dsn: str) -> str:
    """The DSN without `connect_timeout`, which asyncpg would send to the server."""
    address, _, query = dsn.partition("?")
    kept = [
        each for each in query.split("&") if unquote(each.partition("=")[0]) != _CONNECT_TIMEOUT
    ]
    return "?".join(filter(None, [address, "&".join(kept)]))


def _parameters(dsn: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(dsn).query))


class RotatedDsn:
    """DSN from a file; the last valid one while the file is missing during a rotation.

    `read` raises OSError, or ValueError for an invalid DSN.
    """

    def __init__(self, path: Path, read: Callable[[], str], *, first: str) -> None:
        self._path = path
        self._read = read
        self._last = first

    def now(self) -> str:
        """The DSN for a new connection; an invalid file is logged, and the last DSN stays."""
        try:
            self._last = self._read()
        except (OSError, ValueError) as error:
            log.error(  # noqa: TRY400 -- the error's text may contain the secret
                "postgres.dsn_file_unusable",
                code=type(error).__name__,
                path=str(self._path),
                detail="the last valid address is used; check-config shows the fault",
            )
        return self._last


class DsnSettings(Protocol):
    """The settings of a connection that name its server."""

    @property
    def connect_timeout_s(self) -> float:
        """The time limit of an attempt."""

    def current_dsn(self) -> str:
        """The DSN with the current password."""


def _look_up(name: str) -> None:
    socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)


@dataclass(slots=True, eq=False)
class HostNames:
    """Resolutions under way: at most one of each name, in a thread that outlives no process.

    Their result is whether the name was found.
    """

    look_up: Callable[[str], object] = _look_up
    _pending: dict[str, Future[bool]] = field(default_factory=dict)

    async def resolved_dsn(self, settings: DsnSettings) -> str:
        """The present DSN, once a name in it resolves, or all have failed, or it has none.

        Raises socket.gaierror after the connect timeout.
        """
        dsn = settings.current_dsn()
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                for name in host_names(dsn):
                    if await asyncio.wrap_future(self._resolution(name)):
                        break
        except TimeoutError as error:
            raise socket.gaierror(socket.EAI_AGAIN, "no answer in time") from error
        return dsn

    def _resolution(self, name: str) -> Future[bool]:
        found = self._pending.get(name)
        if found is None:
            found = self._pending[name] = Future()
            found.set_running_or_notify_cancel()  # no waiting attempt cancels it for the others
            try:
                Thread(target=self._resolve, args=(name, found), daemon=True).start()
            except RuntimeError as error:  # at the limit of threads
                del self._pending[name]
                raise OSError(errno.EAGAIN, "no thread to resolve a host name") from error
        return found

    def _resolve(self, name: str, resolution: Future[bool]) -> None:
        is_found = False
        try:
            with suppress(OSError, UnicodeError):  # the attempt to connect meets it, too
                self.look_up(name)
                is_found = True
        finally:
            del self._pending[name]
            resolution.set_result(is_found)


HOST_NAMES = HostNames()  # one for the process, as the resolver is
