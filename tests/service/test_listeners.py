"""Listeners: a lost Unix socket; callers and certificates of the TCP listener with TLS.

The backend is a fake; sockets, handshake, certificates and routes are real.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from lookup_core.errors import ConfigurationError
from service.bound_sockets import bound_sockets, unix_socket
from service.config.settings import Settings
from service.http.application import application
from service.http.limits import RequestLimits
from service.http.security import Access
from service.http.sockets import connections
from service.listeners import UnixListener, certificate_rotation, listeners
from service.tls.server_certificate import CertificateRotation
from tests.service.config.configuration import MINIMAL
from tests.service.http.serving import Served, Setting, is_closed, served
from tests.service.stream.streaming import until
from tests.service.tls.certificates import Authority, authority, section, yesterday
from tools.processes.sidecar_process import free_port

PATIENCE_S = 20.0
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUICK = RequestLimits(header_deadline_s=0.3)
# With TLS 1.3 a caller ends its handshake before the listener has seen its certificate.
REFUSALS = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


@dataclass(frozen=True, slots=True)
class SecureListener:
    """A listener, and the authority of its certificates."""

    port: int
    signer: Authority
    certificate: CertificateRotation

    def trust(self) -> ssl.SSLContext:
        """A caller that trusts the authority and has no certificate."""
        return ssl.create_default_context(cafile=self.signer.file)

    def caller(self) -> ssl.SSLContext:
        """A caller with a certificate of the authority."""
        files = self.signer.issue("caller.example", name="caller")
        context = self.trust()
        context.load_cert_chain(files.cert_file, files.key_file)
        return context

    async def status(self, context: ssl.SSLContext, *, host: str = "localhost") -> int:
        """The status of a request; raises aiohttp's ClientError."""
        url = f"https://127.0.0.1:{self.port}/v1/dimensions"
        async with (
            asyncio.timeout(PATIENCE_S),
            aiohttp.ClientSession(headers={"Host": host}) as session,
            session.get(url, ssl=context, server_hostname="localhost") as response,
        ):
            return response.status

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection with TLS."""
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.trust(), server_hostname="localhost"
        )

    async def until_renewed(self) -> None:
        """Wait until new connections get the certificate for `new.example`."""
        names: set[str] = set()
        async with asyncio.timeout(PATIENCE_S):
            while "new.example" not in names:
                _, writer = await self.connected()
                shown = writer.get_extra_info("peercert")["subjectAltName"]
                names = {name for _, name in shown}
                writer.transport.abort()


@asynccontextmanager
async def secure_listener(
    folder: Path,
    *,
    is_mutual: bool = False,
    limits: RequestLimits | None = None,
    metrics: bytes = b"",
) -> AsyncIterator[SecureListener]:
    """Listen at a free port of loopback until the block ends."""
    signer = authority(folder)
    ca_file = signer.file if is_mutual else None
    files = replace(signer.issue("localhost", "127.0.0.1"), client_ca_file=ca_file)
    port = free_port()
    listen = {"unix": None, "health": None, "http": f"127.0.0.1:{port}", "tls": section(files)}
    settings = Settings({"listen": listen}, MINIMAL)
    assert settings.listen.tls is not None
    certificate = CertificateRotation(settings.listen.tls.files(), check_period_s=0.02)
    async with served(Setting(limits=limits or RequestLimits())) as service:
        parts = replace(service.parts, metrics=lambda: metrics)
        with bound_sockets(settings.listen) as sockets:
            async with listeners(settings, parts, sockets, certificate=certificate):
                yield SecureListener(port, signer, certificate)


async def until_refused(listener: SecureListener, context: ssl.SSLContext) -> None:
    """Repeat a request until the new context is in effect."""
    async with asyncio.timeout(PATIENCE_S):
        while await listener.status(context) == 200:
            pass


# The Unix socket


async def get(session: aiohttp.ClientSession, path: str) -> tuple[int, bytes]:
    """The status and the body of a request."""
    async with asyncio.timeout(PATIENCE_S), session.get(path) as response:
        return response.status, await response.read()


def client_of(path: Path) -> aiohttp.ClientSession:
    """A client of a Unix socket."""
    connector = aiohttp.UnixConnector(str(path))
    return aiohttp.ClientSession("http://localhost", connector=connector)


@asynccontextmanager
async def unix_listener(service: Served, path: Path) -> AsyncIterator[UnixListener]:
    """The service at another Unix socket, whose file is checked by the test."""
    app = application(service.parts, Access())
    with unix_socket(path) as unix:
        async with connections(app, RequestLimits(), shutdown_timeout_s=0.1) as opened:
            served_socket = await UnixListener.serving(unix, opened, service.parts.readiness)
            yield served_socket
            served_socket.close()


async def test_lost_socket_is_served_again(tmp_path: Path) -> None:
    """After its file was removed, the path takes new clients, and former connections continue."""
    path = tmp_path / "s.sock"
    async with (
        served() as service,
        unix_listener(service, path) as unix,
        client_of(path) as former,
        client_of(path) as new,
    ):
        assert (await get(former, "/livez"))[0] == 200
        path.unlink()
        with capture_logs() as logs:
            await unix.check()
            await unix.check()

        assert [(await get(each, "/readyz"))[0] for each in (former, new)] == [200, 200]
    assert [(each["event"], each["path"]) for each in logs] == [("listener.bound_again", str(path))]


async def test_unreachable_service_is_not_ready(tmp_path: Path) -> None:
    """While the path cannot be bound, probe, status and log name it; then all is well again."""
    path = tmp_path / "s.sock"
    fault = f"listen.unix: {path} is not a socket; remove it or choose another path"
    async with served() as service, unix_listener(service, path) as unix:
        await service.described()
        path.unlink()
        path.touch()
        with capture_logs() as logs:
            await unix.check()
            await unix.check()
        refusal = await service.get("/readyz", over="health")
        health = (await service.get("/v1/status")).json["health"]
        path.unlink()
        await unix.check()
        ready = await service.get("/readyz", over="health")

    assert (refusal.problem, refusal.json["detail"]) == ((503, "sidecar_unreachable"), fault)
    assert (health["state"], health["reasons"][0]["text"]) == ("degraded", fault)
    assert [(each["event"], each["detail"]) for each in logs] == [("listener.unreachable", fault)]
    assert ready.status == 200


async def test_listeners_watch_their_socket(tmp_path: Path) -> None:
    """A running service binds a removed socket again by itself."""
    path = tmp_path / "s.sock"
    listen = {"unix": str(path), "health": None, "http": None}
    settings = Settings({"listen": listen}, MINIMAL)
    async with served() as service, client_of(path) as client:
        with bound_sockets(settings.listen) as sockets:
            async with listeners(settings, service.parts, sockets):
                path.unlink()
                await until(path.exists)

                assert (await get(client, "/livez"))[0] == 200
    assert not path.exists()


# TLS


@pytest.mark.parametrize(
    ("host", "status"), [("localhost", 200), ("LOCALHOST:1", 200), ("evil.example", 421)]
)
async def test_hosts_are_those_of_the_certificate(tmp_path: Path, host: str, status: int) -> None:
    """Callers may use the names of the certificate as Host, and no others."""
    async with secure_listener(tmp_path) as listener:
        assert await listener.status(listener.trust(), host=host) == status


async def test_new_connections_get_the_new_certificate(tmp_path: Path) -> None:
    """Open connections continue without a restart; new names are accepted as Host."""
    async with secure_listener(tmp_path) as listener:
        reader, writer = await listener.connected()
        before = await listener.status(listener.trust(), host="new.example")
        listener.signer.issue("localhost", "new.example")
        await listener.until_renewed()

        after = await listener.status(listener.trust(), host="new.example")
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
    assert (before, after) == (421, 200)


async def test_old_tls_is_refused(tmp_path: Path) -> None:
    """Versions before TLS 1.2 are refused."""
    async with secure_listener(tmp_path) as listener:
        context = listener.trust()
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1

        with pytest.raises(aiohttp.ClientConnectorError):
            await listener.status(context)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00"])
async def test_handshake_has_a_deadline(tmp_path: Path, sent: bytes) -> None:
    """A caller that does not continue its handshake is disconnected."""
    async with secure_listener(tmp_path, limits=QUICK) as listener, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(sent)

        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("caller", ["none", "stranger", "expired"])
async def test_callers_without_one_are_refused(tmp_path: Path, caller: str) -> None:
    """With `client_ca_file` a caller needs a valid certificate of that authority."""
    async with secure_listener(tmp_path, is_mutual=True) as listener:
        context = listener.trust()
        signer = authority(tmp_path / "other") if caller == "stranger" else listener.signer
        end = yesterday() if caller == "expired" else None
        files = signer.issue("caller.example", name="caller", not_after=end)
        if caller != "none":
            context.load_cert_chain(files.cert_file, files.key_file)

        with pytest.raises(REFUSALS):
            await listener.status(context)


async def test_withdrawn_authority_is_refused(tmp_path: Path) -> None:
    """A certificate of the authority is accepted until the authority is replaced."""
    async with secure_listener(tmp_path, is_mutual=True) as listener:
        context = listener.caller()
        assert await listener.status(context) == 200
        other = authority(tmp_path / "other")
        (tmp_path / "ca.crt").write_bytes(other.file.read_bytes())
        await until(lambda: listener.certificate.taken_total > 0)

        with pytest.raises(REFUSALS):
            await until_refused(listener, context)


async def test_stalled_callers_are_disconnected(tmp_path: Path) -> None:
    """A caller that does not read its answer is disconnected."""
    limits = RequestLimits(send_deadline_s=0.2, header_deadline_s=0.5, linger_s=0.2)
    async with secure_listener(tmp_path, limits=limits, metrics=b"x" * 50_000_000) as listener:
        with socket.create_connection(("127.0.0.1", listener.port), PATIENCE_S) as plain:
            caller = listener.trust().wrap_socket(
                plain, server_hostname="localhost", do_handshake_on_connect=False
            )
            with caller:
                await asyncio.to_thread(caller.do_handshake)
                await asyncio.to_thread(caller.sendall, METRICS)

                assert await asyncio.to_thread(is_closed, caller)


async def test_large_answers_arrive_whole(tmp_path: Path) -> None:
    """Large answers are sent in pieces; a HEAD has no body."""
    large = bytes(range(256)) * 20_000
    async with secure_listener(tmp_path, metrics=large) as listener, asyncio.timeout(PATIENCE_S):
        url = f"https://localhost:{listener.port}/metrics"
        async with aiohttp.ClientSession() as session:
            async with session.get(url, ssl=listener.trust()) as response:
                assert await response.read() == large
            async with session.head(url, ssl=listener.trust()) as response:
                assert (await response.read(), response.status) == (b"", 200)
    with pytest.raises(ConnectionRefusedError):  # the port is free after the end
        await asyncio.open_connection("127.0.0.1", listener.port)


def test_vanished_certificate_stops_the_start(tmp_path: Path) -> None:
    """A file that was removed after the configuration was read is a configuration error."""
    files = authority(tmp_path).issue()
    settings = Settings({"listen": {"http": "127.0.0.1:1", "tls": section(files)}}, MINIMAL)
    files.cert_file.unlink()

    with pytest.raises(ConfigurationError) as caught:
        certificate_rotation(settings)

    assert caught.value.faults == (
        f"listen.tls: cannot read {files.cert_file}: No such file or directory",
    )
    assert certificate_rotation(Settings(MINIMAL)) is None
