"""Who may not ask is refused before anything is done, and is told nothing."""

from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from service.http.security import Access, TokenFile
from tests.service.http.raw_http import exchanged
from tests.service.http.serving import JSON_TYPE, Served, Setting, served

INVALIDATE = "/v1/dimensions/customers/invalidate"
READER, ADMIN = {"Authorization": "Bearer reader"}, {"Authorization": "Bearer admin"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", b"200"),
        (b"LOCALHOST:8815", b"200"),
        (b"127.0.0.1:1", b"200"),
        (b"[::1]:8815", b"200"),
        (b"evil.example", b"421"),
        (b"localhost.evil.example", b"421"),
        (b"169.254.169.254", b"421"),
        (b"", b"421"),
    ],
)
async def test_host_must_be_ours_on_tcp(service: Served, host: bytes, status: bytes) -> None:
    """A page that points its own name at loopback does not reach the service."""
    request = b"GET /livez HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"

    assert (await exchanged(service, request)).split()[1] == status


async def test_host_is_free_on_the_unix_socket(service: Served) -> None:
    """Clients of a Unix socket put anything there."""
    async with service.unix.get("/livez", headers={"Host": "anything"}) as response:
        assert response.status == 200


@pytest.mark.parametrize("path", ["/livez", "/v1/dimensions", "/nowhere", "/"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_web_pages_are_refused(service: Served, method: str, path: str) -> None:
    """A request with an Origin comes from a browser's page; preflights get no CORS headers."""
    headers = {"Origin": "http://localhost:8815", "Access-Control-Request-Method": "GET"}

    for client in (service.tcp, service.unix, service.health):
        async with client.request(method, path, headers=headers) as response:
            assert (response.status, (await response.json())["code"]) == (403, "origin_refused")
        assert [name for name in response.headers if name.startswith("Access-Control")] == []


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-origin", 200)])
async def test_other_sites_cannot_load_figures(service: Served, site: str, status: int) -> None:
    """What a foreign page embeds as an image has no Origin, but browsers say where it is from."""
    async with service.tcp.get("/v1/dimensions", headers={"Sec-Fetch-Site": site}) as response:
        assert response.status == status


@dataclass(frozen=True)
class Tokens:
    """A service's access rules with both tokens, or one."""

    reader: bool = True
    admin: bool = True

    def setting(self, folder: Path) -> Setting:
        """The service's setting, with token files in the folder."""
        for name in ("reader", "admin"):
            (folder / name).write_text(name)
        reader = TokenFile(folder / "reader") if self.reader else None
        return Setting(
            access=Access(None, reader, TokenFile(folder / "admin") if self.admin else None)
        )


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer wrong", "Basic reader", "reader", "Bearer", "Bearer " + "a" * 8000],
)
async def test_wrong_tokens_get_the_same_answer(tmp_path: Path, authorization: str | None) -> None:
    """An absent, a wrong and a huge token cannot be told apart by the answer."""
    headers = {} if authorization is None else {"Authorization": authorization}
    async with (
        served(Tokens().setting(tmp_path)) as service,
        service.tcp.get("/v1/dimensions", headers=headers) as response,
    ):
        problem = await response.json()

    assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert (problem["code"], problem["detail"]) == ("unauthorized", "this needs a valid token")


@pytest.mark.parametrize("headers", [READER, ADMIN])
async def test_readers_and_admins_may_read(tmp_path: Path, headers: dict[str, str]) -> None:
    """The admin's token opens what a reader's does."""
    async with (
        served(Tokens().setting(tmp_path)) as service,
        service.tcp.get("/v1/dimensions", headers=headers) as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize(("headers", "status"), [({}, 401), (READER, 401), (ADMIN, 200)])
async def test_admin_routes_need_the_admin_token(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """With an admin token, nothing else changes state: not a reader's, not a Unix peer."""
    async with served(Tokens().setting(tmp_path)) as service:
        for client in (service.tcp, service.unix):
            assert await _invalidate(client, headers) == status


@pytest.mark.parametrize("path", ["/metrics", "/v1/dimensions", "/v1/channels", "/v1/stream"])
async def test_figures_need_a_token_as_rows_do(tmp_path: Path, path: str) -> None:
    """With a token nothing but probes, the page and the document is for everybody."""
    async with served(Tokens().setting(tmp_path)) as service:
        for client in (service.tcp, service.unix):
            async with client.get(path) as response:
                assert response.status == 401
        async with service.tcp.get(path, headers=READER) as response:
            assert response.status != 401


async def test_owner_is_admin_without_admin_token(service: Served) -> None:
    """Without an admin token the process's own user may change state, over the Unix socket only."""
    assert await _invalidate(service.unix, {}) == 200
    assert await _invalidate(service.tcp, {}) == 401


@pytest.mark.parametrize(("headers", "status"), [({}, 401), (READER, 200)])
async def test_owner_needs_the_readers_token(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """Being the owner does not replace the token that every request needs."""
    async with served(Tokens(admin=False).setting(tmp_path)) as service:
        assert await _invalidate(service.unix, headers) == status


async def test_refusals_are_logged_without_the_token(tmp_path: Path) -> None:
    """The log says who was refused, and nothing of what it presented."""
    with capture_logs() as logs:
        async with served(Tokens().setting(tmp_path)) as service:
            await _invalidate(service.tcp, {"Authorization": "Bearer sesame"})

    refusals = [event for event in logs if event["event"] == "http.unauthorized"]
    assert [(event["code"], event["peer"]) for event in refusals] == [("unauthorized", "127.0.0.1")]
    assert "sesame" not in str(logs)


async def _invalidate(client: aiohttp.ClientSession, headers: dict[str, str]) -> int:
    sent = {**JSON_TYPE, **headers}
    async with client.post(INVALIDATE, data=b'{"all": true}', headers=sent) as response:
        return response.status
