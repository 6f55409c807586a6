"""A sidecar that answers over a Unix socket with what it was given; no engine behind it.

Not a test; its answers have the shape that the HTTP side documents.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from service.commands.application import run
from tests.service.commands.status_answer import STATUS

TEXT_KEY = [{"name": "faa", "type": "string", "nullable": False}]
PAIR_KEY = [*TEXT_KEY, {"name": "hour", "type": "int64", "nullable": False}]
Rows = Mapping[str, Mapping[str, Any]]  # {key: row}
AIRPORTS: Rows = {
    "JFK": {"name": "John F Kennedy Intl", "alt": 13},
    "LGA": {"name": None, "alt": 22},
}

DESCRIPTIONS = {  # {dimension: body}
    "airports": json.dumps({"key": TEXT_KEY, "unavailable": None}),
    "weather": json.dumps({"key": PAIR_KEY, "unavailable": None}),
    "down": json.dumps(
        {"key": None, "unavailable": {"code": "table_unavailable", "detail": "no table x"}}
    ),
    "html": "<html>",
    "list": "[]",
}


@dataclass
class FakeSidecar:
    """Dimensions with one key column and with two, one without a schema yet, and odd ones."""

    socket: Path
    rows: Rows = field(default_factory=lambda: AIRPORTS)
    reader_token: str | None = None  # of the status
    admin_token: str | None = None
    refusal: str = "this needs a valid token"
    status: Mapping[str, Any] = field(default_factory=lambda: STATUS)
    asked: list[tuple[str, Any]] = field(default_factory=list)  # (path, body), oldest first

    async def command(self, *arguments: str) -> int:
        """Run a command against this sidecar, and return its exit code."""
        endpoint = ("--endpoint", f"unix://{self.socket}")
        # In a thread, as the command runs a loop of its own.
        return await asyncio.to_thread(run, [arguments[0], *endpoint, *arguments[1:]])

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["FakeSidecar"]:
        """Answer on the socket until the end of the block."""
        app = web.Application()
        one = "/v1/dimensions/{name}"
        app.router.add_get("/v1/status", self._status)
        app.router.add_get(one, self._describe)
        app.router.add_post(f"{one}/lookup", self._lookup)
        app.router.add_get(f"{one}/explain/{{key}}", self._explain)
        app.router.add_post(f"{one}/invalidate", self._invalidate)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.UnixSite(runner, str(self.socket)).start()
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _status(self, request: web.Request) -> web.Response:
        if self.reader_token not in {None, _token(request)}:
            return problem(401, "unauthorized", self.refusal)
        return web.json_response(dict(self.status))

    async def _describe(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name == "moved":
            return web.Response(status=302, headers={"Location": "/"}, text="{}")
        if name not in DESCRIPTIONS:
            return problem(404, "unknown_dimension", f"no dimension {name!r}; configured: a")
        return web.Response(text=DESCRIPTIONS[name])

    async def _lookup(self, request: web.Request) -> web.Response:
        keys = (await request.json())["keys"]
        self.asked.append((request.rel_url.raw_path, keys))
        rows = [self.rows.get(str(key)) for key in keys]
        outcomes = ["hit" if row else "missing" for row in rows]
        answer = {
            "outcomes": outcomes,
            "rows": rows,
            "ages_ms": [1500 if row else 0 for row in rows],
        }
        if "bad" in keys:
            position = keys.index("bad")
            outcomes[position] = "error"
            answer["errors"] = {str(position): {"code": "type", "retryable": False}}
        return web.json_response(answer)

    async def _explain(self, request: web.Request) -> web.Response:
        self.asked.append((request.rel_url.raw_path, None))
        return web.json_response({"dimension": request.match_info["name"], "state": "cached"})

    async def _invalidate(self, request: web.Request) -> web.Response:
        if self.admin_token not in {None, _token(request)}:
            return problem(401, "unauthorized", self.refusal)
        body = await request.json()
        self.asked.append((request.rel_url.raw_path, body))
        return web.json_response({"invalidated": len(body.get("keys", self.rows))})


def problem(status: int, code: str, detail: str) -> web.Response:
    """A refusal, as RFC 9457 has it."""
    body = {"status": status, "code": code, "detail": detail, "retryable": False}
    return web.json_response(body, status=status, content_type="application/problem+json")


def _token(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ")
