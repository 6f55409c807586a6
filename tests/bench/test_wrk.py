"""The load generator: what it is told to ask, and what is read of it."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bench.wrk import WrkFigures, WrkMissing, WrkRequest, installed_wrk, wrk_figures


def test_script_asks_what_was_said() -> None:
    """Method and body stand in the script as texts of Lua; without a body it is none."""
    posted = WrkRequest("POST", "/lookup", json.dumps({"keys": ["a\n"]})).script
    got = WrkRequest("GET", "/rows/1").script

    assert 'wrk.method = "POST"\nwrk.body = "{\\"keys\\": [\\"a\\\\n\\"]}"' in posted
    assert 'wrk.method = "GET"\nwrk.body = nil' in got


def test_rate_is_of_the_time_it_took() -> None:
    """Requests are told by the second."""
    figures = WrkFigures(300, 1_500_000, p50_us=1, p99_us=2, refused=0, broken=0)

    assert figures.requests_per_second == 200.0


def test_missing_wrk_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not and cannot be installed, the message says what to do."""
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(WrkMissing, match="apt-get install -y wrk"):
        installed_wrk()


async def test_figures_are_read_of_a_run(tmp_path: Path) -> None:
    """All answers are counted, and those that refuse; what was sent is what was said."""
    try:
        wrk = installed_wrk()
    except WrkMissing as error:
        pytest.skip(str(error))
    bodies: set[str] = set()
    # Its own loop must run while wrk does: wrk goes to a thread.
    figures = await _figures(wrk, tmp_path, bodies)

    assert bodies == {'{"keys": [1]}'}
    assert figures.requests == figures.refused > 0
    assert (figures.broken, 0 < figures.p50_us <= figures.p99_us) == (0, True)


async def _figures(wrk: str, folder: Path, bodies: set[str]) -> WrkFigures:
    async def refuse(request: web.Request) -> web.Response:
        bodies.add(await request.text())
        return web.Response(status=503)

    app = web.Application()
    app.router.add_post("/lookup", refuse)
    asked = WrkRequest("POST", "/lookup", '{"keys": [1]}')
    script = folder / "asked.lua"
    script.write_text(asked.script)
    async with TestServer(app) as server:
        url = str(server.make_url(asked.path))
        return await asyncio.to_thread(wrk_figures, wrk, url, script, seconds=1)
