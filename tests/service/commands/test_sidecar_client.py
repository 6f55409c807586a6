"""Asking a sidecar, and what may come instead of an answer."""

import asyncio

import pytest

from lookup_core.errors import SidecarUnreachable
from service.commands.endpoint import parse_endpoint
from service.commands.sidecar_client import SidecarClient, mapped_errors
from tests.service.commands.fake_sidecar import FakeSidecar


@pytest.mark.parametrize("dimension", ["html", "list"])
async def test_other_servers_are_no_sidecars(sidecar: FakeSidecar, dimension: str) -> None:
    """An answer that is no JSON object comes from something else."""
    endpoint = parse_endpoint(f"unix://{sidecar.socket}")

    async with SidecarClient(endpoint, token=None) as client:
        with pytest.raises(SidecarUnreachable, match="what answers there is no sidecar"):
            await client.ask("GET", f"/v1/dimensions/{dimension}")


async def test_redirects_are_not_followed(sidecar: FakeSidecar) -> None:
    """A sidecar sends nobody elsewhere, least of all a token."""
    assert await sidecar.command("lookup", "moved", "x") == 65


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_closed_connection_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A server that hangs up without a word is no sidecar."""
    path = tmp_path_factory.mktemp("s") / "s.sock"

    server = await asyncio.start_unix_server(_hang_up, path)
    async with server, SidecarClient(parse_endpoint(f"unix://{path}"), token=None) as client:
        with pytest.raises(SidecarUnreachable, match="or it broke off; is it running there"):
            await client.ask("GET", "/v1/status")


async def test_plain_address_may_have_tls() -> None:
    """Who listens with TLS hangs up on plain HTTP, so https:// is what to try."""
    server = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = parse_endpoint(f"http://127.0.0.1:{port}")

    async with server, SidecarClient(endpoint, token=None) as client:
        with pytest.raises(SidecarUnreachable, match=f"its address is https://127.0.0.1:{port}"):
            await client.ask("GET", "/v1/status")


def test_silence_is_told() -> None:
    """A sidecar that does not answer in time is named as such."""
    endpoint = parse_endpoint("http://127.0.0.1:1")

    with (
        pytest.raises(SidecarUnreachable, match=r"127\.0\.0\.1:1: no answer in time"),
        mapped_errors(endpoint),
    ):
        raise TimeoutError


async def test_refused_connections_are_told() -> None:
    """A port without a listener is told in the system's words."""
    endpoint = parse_endpoint("http://127.0.0.1:1")

    async with SidecarClient(endpoint, token=None) as client:
        with pytest.raises(SidecarUnreachable, match=r"Connection refused; is it running there"):
            await client.ask("GET", "/v1/status")
