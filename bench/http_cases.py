"""HTTP requests of the benchmark, their right answers, and the bare aiohttp handler."""

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import orjson
import pyarrow as pa
from aiohttp import web
from aiohttp.typedefs import Handler

from bench.wrk import WrkRequest
from service.commands.serve import run_on_event_loop

ONE = "one key, its row"
ONE_POSTED = "one key, posted"
HUNDRED = "100 keys, posted"
_DIMENSION = "/v1/dimensions/customers"
_ROUTE = "/v1/dimensions/{name}"
_TIMEOUT_S = 10.0
_STRIDE = 71


@dataclass(frozen=True, slots=True)
class HttpCase:
    """A question to the dimension `customers`, and the rows that answer it."""

    name: str
    request: WrkRequest
    route: str  # the form of the path
    rows: Sequence[Mapping[str, Any]]

    def fault(self, url: str) -> str | None:
        """What is wrong with the answer of the server there, if anything is."""
        answer = self.answer(url)
        rows = answer.get("rows", [answer])
        return None if rows == self.rows else f"{self.name}: {url} gives other rows"

    def answer(self, url: str) -> dict[str, Any]:
        """What the server there answers; raises OSError for another status than 2xx."""
        asked = self.request
        headers = {"Content-Type": "application/json"}
        request = Request(  # noqa: S310  # of this benchmark's own servers
            url + asked.path, asked.body.encode() or None, headers, method=asked.method
        )
        with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            found: dict[str, Any] = json.loads(response.read())
        return found


def http_cases(customers: pa.Table) -> list[HttpCase]:
    """All of them, for a dimension in which row n has the key n."""
    many = [number * _STRIDE for number in range(100)]
    return [
        HttpCase(
            ONE,
            WrkRequest("GET", f"{_DIMENSION}/rows/42"),
            f"{_ROUTE}/rows/{{key}}",
            _rows(customers, [42]),
        ),
        _posted(ONE_POSTED, customers, [42]),
        _posted(HUNDRED, customers, many),
    ]


def _posted(name: str, customers: pa.Table, keys: list[int]) -> HttpCase:
    request = WrkRequest("POST", f"{_DIMENSION}/lookup", json.dumps({"keys": keys}))
    return HttpCase(name, request, f"{_ROUTE}/lookup", _rows(customers, keys))


def _rows(customers: pa.Table, keys: list[int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = customers.drop_columns(["id"]).take(keys).to_pylist()
    return rows


LOOPBACK = "127.0.0.1"
_STOP_TIMEOUT_S = 10.0


@contextmanager
def bare_handler(answers: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[str]:
    """Start it with an answer for each `METHOD path`; its URL. Stopped in the end."""
    path = folder / "bare_handler.json"
    path.write_text(json.dumps(answers))
    command = [sys.executable, "-m", "bench.http_cases", str(path)]
    with subprocess.Popen(  # noqa: S603  our own command
        command, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://{LOOPBACK}:{int(process.stdout.readline())}"
        finally:
            process.terminate()
            process.wait(_STOP_TIMEOUT_S)


def bare_application(answers: Mapping[str, Mapping[str, Any]]) -> web.Application:
    """An application that gives these answers, and has nothing else."""
    app = web.Application()
    for name, answer in answers.items():
        method, path = name.split(" ")
        app.router.add_route(method, path, _handler(answer))
    return app


def _handler(answer: Mapping[str, Any]) -> Handler:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return handler


async def _serve(answers: Mapping[str, Mapping[str, Any]]) -> None:
    runner = web.AppRunner(bare_application(answers), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    gc.freeze()  # as the sidecar does
    run_on_event_loop(_serve(json.loads(Path(sys.argv[1]).read_text())))
