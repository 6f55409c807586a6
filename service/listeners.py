"""Listeners: serve the bound sockets of `listen`, and bind a lost Unix socket again."""

import asyncio
import socket
from collections.abc import AsyncIterator, Container, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from aiohttp import web

from lookup_core.errors import ConfigurationError
from service.bound_sockets import BACKLOG, BoundSockets, UnixSocket
from service.config.settings import Auth, Settings
from service.http.application import ServiceParts, application, health_application
from service.http.limits import Limits
from service.http.readiness import Readiness
from service.http.security import LOOPBACK_HOSTS, Access, TokenFile
from service.http.sockets import SecureAcceptor, listener
from service.tls.server_certificate import CertificateRotation

log = structlog.get_logger()

_CHECK_PERIOD_S = 1.0  # of the Unix socket's file
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
    listen, limits = settings.listen, parts.limits
    _watch_tokens(settings.auth, parts.readiness)
    async with AsyncExitStack() as stack:
        if listen.unix is not None:
            assert sockets.unix is not None
            runner = await _set_up(
                application(parts, _access(None, parts.readiness)), limits, stack
            )
            unix = UnixListener(sockets.unix, runner, parts.readiness)
            await unix.start()
            running = await stack.enter_async_context(asyncio.TaskGroup())
            stack.callback(running.create_task(unix.run()).cancel)
        if listen.http is not None:
            hosts = _KnownHosts(LOOPBACK_HOSTS | {listen.http.host}, certificate)
            app = application(parts, _access(hosts, parts.readiness))
            await _serve(app, limits, sockets.http, certificate=certificate, stack=stack)
        if listen.health is not None:
            await _serve(health_application(parts), limits, sockets.health, stack=stack)
        addresses = {"unix": listen.unix, "http": listen.http}
        log.info("service.listening", **{name: at and str(at) for name, at in addresses.items()})
        yield


async def _serve(
    app: web.Application,
    limits: Limits,
    sockets: Sequence[socket.socket],
    *,
    stack: AsyncExitStack,
    certificate: CertificateRotation | None = None,
) -> None:
    runner = await _set_up(app, limits, stack)
    if certificate is not None:
        await _accept_securely(runner, sockets, certificate, limits=limits, stack=stack)
        return
    for each in sockets:
        await web.SockSite(runner, each, backlog=BACKLOG).start()


async def _set_up(app: web.Application, limits: Limits, stack: AsyncExitStack) -> web.AppRunner:
    runner = listener(app, limits, shutdown_timeout_s=REQUESTS_END_S)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    return runner


@dataclass(slots=True, eq=False)
class UnixListener:
    """Serves the Unix socket; `run` notices that its file is lost, and binds the path again."""

    unix: UnixSocket
    runner: web.AppRunner
    readiness: Readiness
    _site: web.SockSite | None = None

    async def start(self) -> None:
        """Serve the socket as it is bound."""
        assert self.unix.socket is not None
        self._site = web.SockSite(self.runner, self.unix.socket, backlog=BACKLOG)
        await self._site.start()

    async def run(self) -> None:
        """Check the file each second, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_PERIOD_S)
            await self.check()

    async def check(self) -> None:
        """Bind the path again if its file is lost; the service is not ready while it cannot be.

        Open connections continue.
        """
        before, former = self.unix.fault, self._site
        bound = self.unix.renew()
        self.readiness.unreachable = fault = self.unix.fault
        path = str(self.unix.path)
        if bound is not None:
            await self.start()
            assert former is not None  # since `start`
            await former.stop()
            log.warning("listener.bound_again", path=path, reason="its file was lost")
        elif fault is not None and fault != before:
            log.error("listener.unreachable", code="unreachable", path=path, detail=fault)
        elif fault is None and before is not None:
            log.info("listener.reachable", path=path)


async def _accept_securely(
    runner: web.AppRunner,
    sockets: Sequence[socket.socket],
    certificate: CertificateRotation,
    *,
    limits: Limits,
    stack: AsyncExitStack,
) -> None:
    server = runner.server
    assert server is not None  # after setup
    acceptor = SecureAcceptor(
        server,
        lambda: certificate.current.context,
        limits,
        open_connections=lambda: len(server.connections),
    )
    running = await stack.enter_async_context(asyncio.TaskGroup())
    tasks = [running.create_task(certificate.run())]
    tasks += [running.create_task(acceptor.run(each)) for each in sockets]
    for task in tasks:
        stack.callback(task.cancel)


def _access(hosts: Container[str] | None, readiness: Readiness) -> Access:
    return Access(hosts, readiness.reader_token, readiness.admin_token)


def _watch_tokens(auth: Auth, readiness: Readiness) -> None:
    if auth.token_file is not None:
        readiness.reader_token = TokenFile(auth.token_file)
    if auth.admin_token_file is not None:
        readiness.admin_token = TokenFile(auth.admin_token_file, "auth.admin_token_file")
