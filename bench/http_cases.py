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

from service.commands.serve import run_on_event_loop

ONE = "one key, its row"
ONE_POSTED = "one key, posted"
HUNDRED = "100 keys, posted"
LOOPBACK = "127.0.0.1"
_DIMENSION = "/v1/dimensions/customers"
_ROUTE = "/v1/dimensions/{name}"
_REQUEST_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 10.0
_STRIDE = 71


@dataclass(frozen=True, slots=True)
class HttpCase:
    """A request to the dimension `customers` and the rows of its answer."""

    name: str
    method: str
    path: str
    route: str  # the path with placeholders
    body: str  # JSON
    rows: Sequence[Mapping[str, Any]]

    def fault(self, url: str) -> str | None:
        """Return a text if the server at `url` answers with wrong rows, else None."""
        answer = self.answer(url)
        rows = answer.get("rows", [answer])
        return None if rows == self.rows else f"{self.name}: {url} returns wrong rows"

    def answer(self, url: str) -> dict[str, Any]:
        """Return the answer of the server at `url`; raises OSError for a status other than 2xx."""
        headers = {"Content-Type": "application/json"}
        request = Request(  # noqa: S310  the benchmark's own servers
            url + self.path, self.body.encode() or None, headers, method=self.method
        )
        with urlopen(request, timeout=_REQUEST_TIMEOUT_S) as response:  # noqa: S310  as above
            found: dict[str, Any] = json.loads(response.read())
        return found


def http_cases(customers: pa.Table) -> list[HttpCase]:
    """Return all cases for a dimension whose row n has key n."""
    path, route = f"{_DIMENSION}/rows/42", f"{_ROUTE}/rows/{{key}}"
    return [
        HttpCase(ONE, "GET", path, route, body="", rows=_rows(customers, [42])),
        _posted(ONE_POSTED, customers, [42]),
        _posted(HUNDRED, customers, [number * _STRIDE for number in range(100)]),
    ]


def _posted(name: str, customers: pa.Table, keys: list[int]) -> HttpCase:
    path, route = f"{_DIMENSION}/lookup", f"{_ROUTE}/lookup"
    body = json.dumps({"keys": keys})
    return HttpCase(name, "POST", path, route, body=body, rows=_rows(customers, keys))


def _rows(customers: pa.Table, keys: list[int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = customers.drop_columns(["id"]).take(keys).to_pylist()
    return rows


@contextmanager
def bare_handler(answers: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[str]:
    """Run the bare handler with an answer for each `METHOD route`; yield its URL."""
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


async def _serve(answers: Mapping[str, Mapping[str, Any]]) -> None:
    app = web.Application()
    for name, answer in answers.items():
        method, route = name.split(" ")
        app.router.add_route(method, route, _handler(answer))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def _handler(answer: Mapping[str, Any]) -> Handler:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return handler


if __name__ == "__main__":
    gc.freeze()  # as in the sidecar
    run_on_event_loop(_serve(json.loads(Path(sys.argv[1]).read_text())))
