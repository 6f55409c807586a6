"""Plain questions to a sidecar."""

from pathlib import Path

import pytest
from aiohttp import web

from lookup_core.errors import SidecarUnreachable
from service.commands.doctor_io import sidecar_questions
from service.commands.endpoint import ClientFiles, parse_endpoint
from tests.service.commands.fake_sidecar import FakeSidecar
from tests.service.tls.certificates import authority


async def test_answers_are_told_as_they_are(sidecar: FakeSidecar) -> None:
    """JSON as values, other bodies as text, errors with their status, and when it was answered."""
    endpoint = parse_endpoint(f"unix://{sidecar.socket}")

    ask = sidecar_questions(endpoint, token=None)
    known = await ask("/v1/dimensions/airports")
    html = await ask("/v1/dimensions/html")
    unknown = await ask("/v1/dimensions/no%20such")

    assert (known.status, known.told["unavailable"], bool(known.date)) == (200, None, True)
    assert (html.body, html.told) == ("<html>", {})
    assert (unknown.status, unknown.told["code"]) == (404, "unknown_dimension")


async def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    """Who does not answer is unreachable, with the reason."""
    ask = sidecar_questions(parse_endpoint(f"unix://{tmp_path}/s"), token="t")

    with pytest.raises(SidecarUnreachable, match="No such file"):
        await ask("/livez")


async def test_secure_sidecar_is_asked_with_tls(tmp_path: Path) -> None:
    """Over https the authority that is named is trusted, and no other."""
    signer = authority(tmp_path)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=signer.server_context())
    await site.start()

    trusting = parse_endpoint(site.name, ClientFiles(str(signer.file)))
    assert (await sidecar_questions(trusting, token=None)("/livez")).status == 404
    with pytest.raises(SidecarUnreachable):
        await sidecar_questions(parse_endpoint(site.name), token=None)("/livez")
    with pytest.raises(SidecarUnreachable, match="not for"):
        await sidecar_questions(trusting, token=None, server_name="b")("/livez")
    await runner.cleanup()
