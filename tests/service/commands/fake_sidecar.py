"""A sidecar that answers over a Unix socket with given values; there is no engine behind it.

Its answers have the documented shape of the HTTP routes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS
from service.commands.application import run
from tests.service.config.configuration import parsed

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

_ANSWERS = parsed((Path(__file__).parent / "answers.yaml").read_text())
DIMENSION: dict[str, Any] = _ANSWERS["DIMENSION"]
ERROR: dict[str, Any] = _ANSWERS["ERROR"]
CHANNEL: dict[str, Any] = _ANSWERS["CHANNEL"]
STATUS: dict[str, Any] = _ANSWERS["STATUS"] | {"dimensions": [DIMENSION], "channels": [CHANNEL]}
_IDLE: dict[str, Any] = _ANSWERS["IDLE"] | {
    "backend": DIMENSION["backend"] | {"breaker": "half_open"},
    "cache": DIMENSION["cache"]
    | {"shared": {"why_private": "/s is full; raise it", "folder": None}},
    "recent_errors": [
        ERROR | {"code": "timeout", "last_ago_s": 1.0, "keys": 1, "queries": 0},
        *(ERROR | {"last_ago_s": seconds} for seconds in (600.0, 600.1)),
    ],
}
STATUSES = {  # {name: status}
    "healthy": STATUS | {"channels": []},
    "busy": STATUS
    | {
        "version": "\x1b[2J",
        "health": _ANSWERS["DEGRADED"],
        "memory": {"resident_bytes": None, "limit_bytes": 2**29},
        "dimensions": [
            DIMENSION | {"recent_errors": [ERROR], "freshness": _ANSWERS["WHOLE"]},
            DIMENSION | _IDLE,
        ],
        "channels": [
            CHANNEL | {"watermark_ms": MAX_WATERMARK_MS},
            CHANNEL | {"channel": 3, "origin": "", "is_idle": True, "watermark_ms": None},
            CHANNEL | {"dimension": "a", "watermark_ms": None},
        ],
        "ended_streams": [_ANSWERS["ENDED"], _ANSWERS["ENDED"] | {"origin": ""}],
    },
}


@dataclass
class FakeSidecar:
    """Dimensions with one and with two key columns, one without a schema yet, and odd ones."""

    socket: Path
    rows: Rows = field(default_factory=lambda: AIRPORTS)
    reader_token: str | None = None  # of the status
    admin_token: str | None = None
    refusal: str = "this needs a valid token"
    status: str | Mapping[str, Any] = "healthy"  # by name, or itself
    queries: list[tuple[str, Any]] = field(default_factory=list)  # (path, body), oldest first

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
        status = STATUSES[self.status] if isinstance(self.status, str) else self.status
        return web.json_response(dict(status))

    async def _describe(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name == "moved":
            return web.Response(status=302, headers={"Location": "/"}, text="{}")
        if name not in DESCRIPTIONS:
            return problem(404, "unknown_dimension", f"no dimension {name!r}; configured: a")
        return web.Response(text=DESCRIPTIONS[name])

    async def _lookup(self, request: web.Request) -> web.Response:
        keys = (await request.json())["keys"]
        self.queries.append((request.rel_url.raw_path, keys))
        rows = [self.rows.get(str(key)) for key in keys]
        outcomes = ["hit" if row else "missing" for row in rows]
        answer = {
            "outcomes": outcomes,
            "rows": rows,
            "ages_ms": [90_000 if row else 0 for row in rows],
        }
        if "bad" in keys:
            position = keys.index("bad")
            outcomes[position] = "error"
            answer["errors"] = {str(position): {"code": "type", "retryable": False}}
        return web.json_response(answer)

    async def _explain(self, request: web.Request) -> web.Response:
        self.queries.append((request.rel_url.raw_path, None))
        return web.json_response({"dimension": request.match_info["name"], "state": "cached"})

    async def _invalidate(self, request: web.Request) -> web.Response:
        if self.admin_token not in {None, _token(request)}:
            return problem(401, "unauthorized", self.refusal)
        body = await request.json()
        self.queries.append((request.rel_url.raw_path, body))
        return web.json_response({"invalidated": len(body.get("keys", self.rows))})


def problem(status: int, code: str, detail: str) -> web.Response:
    """A refusal, as RFC 9457 has it."""
    body = {"status": status, "code": code, "detail": detail, "retryable": False}
    return web.json_response(body, status=status, content_type="application/problem+json")


def _token(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ")
