"""Asking a cluster for its version."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from service.doctor.deployment.kubernetes_check import ACCOUNT, KubernetesCheck
from tests.service.doctor.findings import gathered


@dataclass
class ApiServer:
    """One that tells its version to who has the token, or to everybody."""

    environ: dict[str, str]
    root: Path
    version: str = "v1.28.4"
    token: str | None = None

    async def answer(self, request: web.Request) -> web.Response:
        """Its version."""
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=403)
        return web.json_response({"gitVersion": self.version})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """One that listens, and whose authority is mounted as in a pod."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (tmp_path / ACCOUNT).mkdir(parents=True)
    authority.cert_pem.write_to_path(str(tmp_path / ACCOUNT / "ca.crt"))
    server = ApiServer({"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, tmp_path)
    app = web.Application()
    app.router.add_get("/version", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.environ["KUBERNETES_SERVICE_PORT"] = site.name.rpartition(":")[2]
    yield server
    await runner.cleanup()


async def severity(check: KubernetesCheck) -> str:
    """That of its only finding."""
    (finding,) = await gathered(check.findings())
    return finding.severity


async def test_cluster_is_asked_from_inside(server: ApiServer) -> None:
    """In a pod the API server tells; 1.28 has no native sidecars."""
    check = KubernetesCheck(None, server.environ, server.root)

    assert await severity(check) == "error"
    server.version = "v1.31.0"
    assert await severity(check) == "ok"


async def test_account_is_shown_if_there_is_one(server: ApiServer) -> None:
    """Without a token the server may refuse: that stays open; with one it tells."""
    server.token, server.version = "t0ken", "v1.30.0"
    check = KubernetesCheck(None, server.environ, server.root)

    assert await severity(check) == "skipped"
    (server.root / ACCOUNT / "token").write_text("t0ken\n")
    assert await severity(check) == "ok"


async def test_authority_is_checked_where_there_is_one(server: ApiServer, tmp_path: Path) -> None:
    """A token is shown to nobody whose certificate is of another authority."""
    trustme.CA().cert_pem.write_to_path(str(server.root / ACCOUNT / "ca.crt"))

    assert await severity(KubernetesCheck(None, server.environ, server.root)) == "skipped"
    assert await severity(KubernetesCheck(None, server.environ, tmp_path / "none")) == "error"


async def test_server_that_is_away_stays_open() -> None:
    """A server that cannot be reached is nothing that is wrong with the sidecar."""
    environ = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "1"}

    assert await severity(KubernetesCheck(None, environ, Path("/none"))) == "skipped"


@pytest.mark.parametrize(
    ("told", "expected"), [("1.29", "ok"), ("1.28", "error"), ("new", "error"), (None, "skipped")]
)
async def test_caller_may_tell_the_version(told: str | None, expected: str) -> None:
    """What is told is taken; outside of a cluster nobody can be asked."""
    assert await severity(KubernetesCheck(told, {})) == expected


@pytest.mark.parametrize(
    ("told", "message", "remedy"),
    [
        ('{"clientVersion": {}}', "kubectl reached no server", "check its context (kubectl"),
        ("new", "no version of a server", "give one such as 1.31, or pipe: kubectl version"),
    ],
)
async def test_remedy_fits_what_is_wrong(told: str, message: str, remedy: str) -> None:
    """Whoever piped kubectl's answer is not told to pipe it."""
    (finding,) = await gathered(KubernetesCheck(told, {}).findings())

    assert (finding.severity, finding.message) == ("error", message)
    assert finding.remedy.startswith(remedy)
