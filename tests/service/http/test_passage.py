"""Every request passes the same rules in the same order, however short its way is."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from lookup_core.answer import Outcome
from service.http.limits import Limits
from service.http.security import Access, TokenFile
from tests.service.http.serving import Served, Setting, served

ROW = "/v1/dimensions/customers/rows/1"


async def status(service: Served, headers: Mapping[str, str] | None = None) -> int:
    """Ask for a row over TCP."""
    async with service.tcp.get(ROW, headers=headers) as response:
        await response.read()
    return response.status


async def test_whoever_fails_gives_back_what_he_held() -> None:
    """After a bug the slot is free again, and so is the room for answers."""

    async def fail(_request: web.Request) -> web.StreamResponse:
        raise KeyError("4711")

    def change(setting: Setting) -> Setting:
        return replace(setting, change_parts=lambda parts: replace(parts, stream=fail))

    async with served(change(Setting(limits=Limits(connections=1)))) as service:
        async with service.tcp.get("/v1/stream") as response:
            assert response.status == 500
        assert await status(service) == 200

    assert service.parts.answer_budget.used_bytes == 0


async def test_slots_come_before_access(service: Served) -> None:
    """A request that cannot begin is refused before anything of it was looked at."""
    before = await status(service, {"Origin": "http://evil.example"})
    service.parts.readiness.start_draining()
    after = await status(service, {"Origin": "http://evil.example"})

    assert (before, after) == (403, 503)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({"Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 421), ({}, 200)],
)
async def test_recent_rows_pass_the_same_rules(
    service: Served, headers: Mapping[str, str], expected: int
) -> None:
    """A row that was asked for before is not told to whom it must not be told."""
    before = [await status(service) for _ in range(3)]

    assert (before, await status(service, headers)) == ([200] * 3, expected)


async def test_recent_rows_need_the_token(tmp_path: Path) -> None:
    """Who has no token gets no row, whoever had it before."""
    path = tmp_path / "token"
    path.write_text("reader")
    async with served(Setting(access=Access(reader_token=TokenFile(path)))) as service:
        allowed = [await status(service, {"Authorization": "Bearer reader"}) for _ in range(3)]

        assert (allowed, await status(service)) == ([200] * 3, 401)


async def test_recent_rows_wait_for_memory(service: Served) -> None:
    """While there is no memory for more requests, those are refused, too."""
    before = [await status(service) for _ in range(3)]
    service.parts.readiness.allow_requests(is_allowed=False)

    assert (before, await status(service)) == ([200] * 3, 503)
    assert service.parts.dimensions["customers"].statistics().outcomes[Outcome.HIT] == 2
