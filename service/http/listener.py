"""Serves one application on sockets, with the time limits that aiohttp does not set by itself.

Does not bind: its owner adds the sites, and cleans up.
"""

from aiohttp import web

from service.http.limits import Limits

MAX_LINE_BYTES = 8190  # of the request line and of each header
MAX_HEADERS = 128


def listener(app: web.Application, limits: Limits, *, shutdown_timeout_s: float) -> web.AppRunner:
    """A runner without sites.

    Its keep-alive limit is absolute from the last response on, so it ends silent connections and
    headers that drip. Handlers are cancelled when their caller leaves. `shutdown_timeout_s` is how
    long a clean-up waits for the requests under way.
    """
    return web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        handler_cancellation=True,
        keepalive_timeout=limits.header_deadline_s,
        lingering_time=limits.linger_s,
        max_field_size=MAX_LINE_BYTES,
        max_headers=MAX_HEADERS,
        max_line_size=MAX_LINE_BYTES,
        shutdown_timeout=shutdown_timeout_s,
    )
