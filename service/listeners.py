"""Listeners of `listen`: sockets served by HTTP applications; a Unix socket is bound again."""

import asyncio
import socket
from collections.abc import AsyncIterator, Container, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from aiohttp import web

from lookup_core.errors import ConfigurationError
from service.bound_sockets import BACKLOG, BoundSockets, UnixSocket
from service.config.settings import Auth, Settings
from service.http.application import ServiceParts, application, health_application
from service.http.readiness import Readiness
from service.http.security import LOOPBACK_HOSTS, Access, TokenFile
from service.http.sockets import HttpConnections, SecureAcceptor, connections
from service.tls.server_certificate import CertificateRotation

log = structlog.get_logger()

_FILE_CHECK_PERIOD_S = 1.0
REQUESTS_END_S = 2.0  # for responses that are still being sent at the end


def certificate_rotation(settings: Settings) -> CertificateRotation | None:
    """The certificate of `listen.tls`, None without it; raises ConfigurationError."""
    tls = settings.listen.tls
    if tls is None:
        return None
    try:
        return CertificateRotation(tls.files())
    except ValueError as error:  # the files changed since the configuration was read
        raise ConfigurationError([f"listen.tls: {error}"]) from error


@dataclass(frozen=True, slots=True)
class _KnownHosts:
    """Accepted values of the Host header: loopback names, and names of the certificate."""

    own: Container[str]
    certificate: CertificateRotation | None

    def __contains__(self, host: object) -> bool:
        return host in self.own or (self.certificate is not None and host in self.certificate)


@asynccontextmanager
async def listeners(
    settings: Settings,
    parts: ServiceParts,
    sockets: BoundSockets,
    *,
    certificate: CertificateRotation | None = None,
) -> AsyncIterator[None]:
    """Serve the sockets of `listen` until the block ends, `http` by TLS if there is a certificate.

    Sockets of a listener that is closed are empty.
    """
    listen, readiness = settings.listen, parts.readiness
    _watch_tokens(settings.auth, readiness)
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())

        async def opened(app: web.Application) -> HttpConnections:
            opening = connections(app, parts.limits, shutdown_timeout_s=REQUESTS_END_S)
            return await stack.enter_async_context(opening)

        def run(*runs: Coroutine[None, None, None]) -> None:
            for each in runs:
                stack.callback(tasks.create_task(each).cancel)

        if sockets.unix is not None:
            unix = await UnixListener.serving(
                sockets.unix, await opened(application(parts, _access(None, readiness))), readiness
            )
            stack.callback(unix.close)
            run(unix.run())
        if listen.http is not None:
            hosts = _KnownHosts(LOOPBACK_HOSTS | {listen.http.host}, certificate)
            http = await opened(application(parts, _access(hosts, readiness)))
            if certificate is None:
                await _serve(http, sockets.http, stack)
            else:
                acceptor = SecureAcceptor(http, lambda: certificate.current.context)
                run(certificate.run(), *map(acceptor.run, sockets.http))
        if listen.health is not None:
            await _serve(await opened(health_application(parts)), sockets.health, stack)
        addresses = {"unix": listen.unix, "http": listen.http}
        log.info("service.listening", **{name: at and str(at) for name, at in addresses.items()})
        yield


async def _serve(
    served: HttpConnections, sockets: Sequence[socket.socket], stack: AsyncExitStack
) -> None:
    for listening in sockets:
        stack.callback((await served.serve(listening, backlog=BACKLOG)).close)


@dataclass(slots=True, eq=False)
class UnixListener:
    """Serves the Unix socket; `run` notices that its file is lost, and binds the path again."""

    unix: UnixSocket
    connections: HttpConnections
    readiness: Readiness
    _server: asyncio.Server

    @classmethod
    async def serving(
        cls, unix: UnixSocket, opened: HttpConnections, readiness: Readiness
    ) -> "UnixListener":
        """A listener that serves the socket as it is bound."""
        return cls(unix, opened, readiness, await opened.serve(unix.socket, backlog=BACKLOG))

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()

    async def run(self) -> None:
        """Check the file each second, until cancelled."""
        while True:
            await asyncio.sleep(_FILE_CHECK_PERIOD_S)
            await self.check()

    async def check(self) -> None:
        """Bind the path again if its file is lost; the service is not ready while it cannot be.

        Open connections continue.
        """
        fault_before = self.unix.fault
        bound = self.unix.renew()
        self.readiness.unreachable = fault = self.unix.fault
        path = str(self.unix.path)
        if bound is not None:
            former = self._server
            self._server = await self.connections.serve(bound, backlog=BACKLOG)
            former.close()
            log.warning("listener.bound_again", path=path, reason="its file was lost")
        elif fault is not None and fault != fault_before:
            log.error("listener.unreachable", code="unreachable", path=path, detail=fault)
        elif fault is None and fault_before is not None:
            log.info("listener.reachable", path=path)


def _access(hosts: Container[str] | None, readiness: Readiness) -> Access:
    return Access(hosts, readiness.reader_token, readiness.admin_token)


def _watch_tokens(auth: Auth, readiness: Readiness) -> None:
    if auth.token_file is not None:
        readiness.reader_token = TokenFile(auth.token_file)
    if auth.admin_token_file is not None:
        readiness.admin_token = TokenFile(auth.admin_token_file, "auth.admin_token_file")
