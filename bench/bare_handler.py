"""What any service on aiohttp costs at the least: handlers that parse nothing, and answer in JSON.

A process of its own on the sidecar's loop, without an access log either; it looks nothing up.
"""

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from service.commands.event_loop import run_on_event_loop

LOOPBACK = "127.0.0.1"
_STOP_TIMEOUT_S = 10.0


@contextmanager
def bare_handler(answers: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[str]:
    """Start it with an answer for each `METHOD path`; its URL. Stopped in the end."""
    path = folder / "bare_handler.json"
    path.write_text(json.dumps(answers))
    command = [sys.executable, "-m", "bench.bare_handler", str(path)]
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
