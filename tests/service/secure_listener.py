"""A sidecar's TCP listener with TLS, and callers with certificates of their own.

The store is a fake; handshake, certificates and routes are real.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp

from service.config.settings import Settings
from service.http.limits import Limits
from service.listeners import listeners
from service.tls.certificate_rotation import CertificateRotation
from tests.service.config.configuration import MINIMAL
from tests.service.http.serving import Setting, served
from tests.service.tls.certificates import Authority, authority
from tools.processes.sidecar_process import free_port

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class SecureListener:
    """Where it listens, and who signs its certificates."""

    port: int
    signer: Authority
    certificate: CertificateRotation

    def trust(self) -> ssl.SSLContext:
        """A caller who trusts the authority, and shows no certificate."""
        return ssl.create_default_context(cafile=self.signer.file)

    async def status(self, context: ssl.SSLContext, *, host: str = "localhost") -> int:
        """What a request is answered with; raises aiohttp's ClientError."""
        url = f"https://127.0.0.1:{self.port}/v1/dimensions"
        async with (
            asyncio.timeout(PATIENCE_S),
            aiohttp.ClientSession(headers={"Host": host}) as session,
            session.get(url, ssl=context, server_hostname="localhost") as response,
        ):
            return response.status


@asynccontextmanager
async def secure_listener(
    folder: Path,
    *,
    is_mutual: bool = False,
    limits: Limits | None = None,
    metrics: bytes = b"",
) -> AsyncIterator[SecureListener]:
    """Listen at a free port of loopback until the block ends."""
    signer = authority(folder)
    files = signer.issue("localhost", "127.0.0.1")
    section = {"cert_file": str(files.cert_file), "key_file": str(files.key_file)}
    if is_mutual:
        section["client_ca_file"] = str(signer.file)
    port = free_port()
    listen = {"unix": None, "health": None, "http": f"127.0.0.1:{port}", "tls": section}
    settings = Settings({"listen": listen}, MINIMAL)
    tls = settings.listen.tls
    assert tls is not None
    certificate = CertificateRotation(tls.files(), look_every_s=0.02)
    async with (
        served(Setting(limits=limits or Limits())) as service,
        listeners(settings, replace(service.parts, metrics=lambda: metrics), certificate),
    ):
        yield SecureListener(port, signer, certificate)
