"""TLS at a real listener: who gets in, who does not, and what a new certificate changes."""

import asyncio
import select
import socket
import ssl
from pathlib import Path

import aiohttp
import pytest

from lookup_core.errors import ConfigurationError
from service.config.settings import Settings
from service.http.limits import Limits
from service.listeners import certificate_rotation, listeners
from tests.service.config.configuration import MINIMAL
from tests.service.http.serving import served
from tests.service.secure_listener import PATIENCE_S, SecureListener, secure_listener
from tests.service.tls.certificates import authority, yesterday

METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUICK = Limits(header_deadline_s=0.3)
# With TLS 1.3 a caller is done with the handshake before the listener has looked at it.
REFUSALS = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


async def certificate_names(listener: SecureListener, context: ssl.SSLContext) -> set[str]:
    """The names in the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection(
        "127.0.0.1", listener.port, ssl=context, server_hostname="localhost"
    )
    shown = writer.get_extra_info("peercert")
    writer.transport.abort()
    return {name for _, name in shown["subjectAltName"]}


async def test_trusted_listener_answers(tmp_path: Path) -> None:
    """Whoever trusts the authority is served as without TLS."""
    async with secure_listener(tmp_path) as listener:
        assert await listener.status(listener.trust()) == 200


async def test_stranger_is_not_trusted(tmp_path: Path) -> None:
    """A caller who does not know the authority does not speak to the listener."""
    async with secure_listener(tmp_path) as listener:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await listener.status(ssl.create_default_context())


@pytest.mark.parametrize(
    ("host", "status"), [("localhost", 200), ("LOCALHOST:1", 200), ("evil.example", 421)]
)
async def test_hosts_are_those_of_the_certificate(tmp_path: Path, host: str, status: int) -> None:
    """What callers may call the listener stands in its certificate."""
    async with secure_listener(tmp_path) as listener:
        assert await listener.status(listener.trust(), host=host) == status


async def test_hosts_change_with_the_certificate(tmp_path: Path) -> None:
    """A name that the new certificate has is known from then on."""
    async with secure_listener(tmp_path) as listener:
        before = await listener.status(listener.trust(), host="new.example")
        listener.signer.issue("localhost", "new.example")
        await until_taken(listener)

        assert before == 421
        assert await listener.status(listener.trust(), host="new.example") == 200


async def until_taken(listener: SecureListener) -> None:
    """Wait until new connections get the new certificate."""
    async with asyncio.timeout(PATIENCE_S):
        while "new.example" not in await certificate_names(listener, listener.trust()):
            pass  # each look is a connection, which takes its time


async def test_new_certificate_is_shown_to_new_connections(tmp_path: Path) -> None:
    """Connections that stand go on; nobody has to restart anything."""
    async with secure_listener(tmp_path) as listener:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=listener.trust(), server_hostname="localhost"
        )
        listener.signer.issue("localhost", "new.example")
        await until_taken(listener)

        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_faulty_certificate_is_not_shown(tmp_path: Path) -> None:
    """While the new one is of no use, callers get the old one."""
    async with secure_listener(tmp_path) as listener:
        listener.signer.issue("localhost", not_after=yesterday())
        async with asyncio.timeout(PATIENCE_S):
            while listener.certificate.refused_total == 0:  # noqa: ASYNC110  nobody is told
                await asyncio.sleep(0.01)

        assert await listener.status(listener.trust()) == 200


async def test_plain_http_gets_nothing(tmp_path: Path) -> None:
    """A request without TLS is not read."""
    async with secure_listener(tmp_path) as listener, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET /v1/dimensions HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert b"HTTP/" not in await reader.read()
        writer.close()


async def test_old_tls_is_refused(tmp_path: Path) -> None:
    """Nothing older than TLS 1.2 is spoken."""
    async with secure_listener(tmp_path) as listener:
        context = listener.trust()
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1

        with pytest.raises(aiohttp.ClientConnectorError):
            await listener.status(context)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01\x00"])
async def test_handshake_has_a_deadline(tmp_path: Path, said: bytes) -> None:
    """Whoever connects and does not go on with the handshake is let go."""
    async with secure_listener(tmp_path, limits=QUICK) as listener, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(said)

        assert await reader.read() == b""
        writer.close()


async def test_callers_show_certificates(tmp_path: Path) -> None:
    """Where an authority of callers is named, one of its certificates opens the way."""
    async with secure_listener(tmp_path, is_mutual=True) as listener:
        files = listener.signer.issue("caller.example", name="caller")
        context = listener.trust()
        context.load_cert_chain(files.cert_file, files.key_file)

        assert await listener.status(context) == 200


@pytest.mark.parametrize("caller", ["none", "stranger", "expired"])
async def test_callers_without_one_are_refused(tmp_path: Path, caller: str) -> None:
    """No certificate, one that somebody else signed, and one whose time is over are no good."""
    async with secure_listener(tmp_path, is_mutual=True) as listener:
        context = listener.trust()
        signer = authority(tmp_path / "other") if caller == "stranger" else listener.signer
        end = yesterday() if caller == "expired" else None
        files = signer.issue("caller.example", name="caller", not_after=end)
        if caller != "none":
            context.load_cert_chain(files.cert_file, files.key_file)

        with pytest.raises(REFUSALS):
            await listener.status(context)


async def test_withdrawn_authority_lets_nobody_in(tmp_path: Path) -> None:
    """Once another authority of callers is named, the old one's certificates are no good."""
    async with secure_listener(tmp_path, is_mutual=True) as listener:
        files = listener.signer.issue("caller.example", name="caller")
        context = listener.trust()
        context.load_cert_chain(files.cert_file, files.key_file)
        assert await listener.status(context) == 200
        other = authority(tmp_path / "other")
        (tmp_path / "ca.crt").write_bytes(other.file.read_bytes())
        async with asyncio.timeout(PATIENCE_S):
            while listener.certificate.taken_total == 0:  # noqa: ASYNC110  nobody is told
                await asyncio.sleep(0.01)

        with pytest.raises(REFUSALS):
            await until_refused(listener, context)


async def until_refused(listener: SecureListener, context: ssl.SSLContext) -> None:
    """Ask again, as the new context takes over a moment after it was taken."""
    async with asyncio.timeout(PATIENCE_S):
        while await listener.status(context) == 200:
            pass


async def test_callers_who_do_not_read_are_cut_off(tmp_path: Path) -> None:
    """With TLS, too, an answer that is not taken ends with its connection."""
    limits = Limits(send_deadline_s=0.2, header_deadline_s=0.5, linger_s=0.2)
    async with secure_listener(tmp_path, limits=limits, metrics=b"x" * 50_000_000) as listener:
        with socket.create_connection(("127.0.0.1", listener.port), PATIENCE_S) as plain:
            caller = listener.trust().wrap_socket(
                plain, server_hostname="localhost", do_handshake_on_connect=False
            )
            with caller:
                await asyncio.to_thread(caller.do_handshake)
                await asyncio.to_thread(caller.sendall, METRICS)

                assert await asyncio.to_thread(is_reset, caller)


def is_reset(caller: socket.socket) -> bool:
    """Wait until the connection has ended, without reading from it."""
    poll = select.poll()
    poll.register(caller, select.POLLRDHUP)
    return bool(poll.poll(PATIENCE_S * 1000))


async def test_large_answers_arrive_whole(tmp_path: Path) -> None:
    """With TLS they are sent in pieces, and a HEAD has none of them."""
    large = bytes(range(256)) * 20_000
    async with secure_listener(tmp_path, metrics=large) as listener, asyncio.timeout(PATIENCE_S):
        url = f"https://localhost:{listener.port}/metrics"
        async with aiohttp.ClientSession() as session:
            async with session.get(url, ssl=listener.trust()) as response:
                assert await response.read() == large
            async with session.head(url, ssl=listener.trust()) as response:
                assert (await response.read(), response.status) == (b"", 200)


async def test_port_is_given_back(tmp_path: Path) -> None:
    """After the end nobody listens there."""
    async with secure_listener(tmp_path) as listener:
        port = listener.port

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_unknown_host_is_told() -> None:
    """A name that leads nowhere is a fault of the configuration."""
    listen = {"unix": None, "http": None, "health": "no-such-host.invalid:1"}
    settings = Settings({"listen": listen | {"http": "127.0.0.1:0"}}, MINIMAL)
    async with served() as service:
        with pytest.raises(ConfigurationError) as caught:
            async with listeners(settings, service.parts):
                pass

    (fault,) = caught.value.faults
    assert fault.startswith("listen.health: no-such-host.invalid:1: ")
    assert "Unknown error" not in fault


def test_without_tls_there_is_no_certificate() -> None:
    """Plain HTTP needs none."""
    assert certificate_rotation(Settings(MINIMAL)) is None


def test_certificate_that_went_bad_stops_the_start(tmp_path: Path) -> None:
    """What changed after the configuration was read is told like one of its faults."""
    files = authority(tmp_path).issue()
    tls = {"cert_file": str(files.cert_file), "key_file": str(files.key_file)}
    settings = Settings({"listen": {"http": "127.0.0.1:1", "tls": tls}}, MINIMAL)
    files.cert_file.unlink()

    with pytest.raises(ConfigurationError) as caught:
        certificate_rotation(settings)

    assert caught.value.faults == (
        f"listen.tls: cannot read {files.cert_file}: No such file or directory",
    )
