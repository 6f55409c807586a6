"""Host names of servers: waits until one resolves, outside the threads of the event loop.

The C library cannot interrupt a resolution. If the name server is silent, each attempt to connect
would take another of the loop's few threads, until no other name resolves and no process ends.
"""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Protocol
from urllib.parse import parse_qs, unquote, urlsplit


class Address(Protocol):
    """The settings of a connection that name its server."""

    @property
    def connect_timeout_s(self) -> float:
        """The time limit of an attempt."""

    def current_dsn(self) -> str:
        """The DSN with the current password."""


def host_names(dsn: str) -> Iterator[str]:
    """The hosts of a valid address before the first IP address or folder of a socket, in order."""
    parts = urlsplit(dsn)
    hosts = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", [""])[-1]
    for each in map(unquote, hosts.split(",")):
        name = each.partition(":")[0]
        if _is_place(name):
            return
        yield name


def _is_place(host: str) -> bool:
    """Whether a host needs no name server."""
    return not host or host.startswith(("/", "[")) or _is_ip_address(host)


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _look_up(name: str) -> None:
    socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)


@dataclass(slots=True, eq=False)
class HostNames:
    """Resolutions under way: at most one of each name, in a thread that outlives no process.

    Their result is whether the name was found.
    """

    look_up: Callable[[str], object] = _look_up
    _pending: dict[str, Future[bool]] = field(default_factory=dict)

    async def resolved_dsn(self, settings: Address) -> str:
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


HOST_NAMES = HostNames()  # of the process, as the resolver is
