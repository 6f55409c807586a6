"""`GET /`: a page for people, with what `/v1/status` tells to machines.

One self-contained document; it fetches its figures by itself and asks nobody else for anything.
"""

import secrets
from pathlib import Path

from aiohttp import web

_FOLDER = Path(__file__).parent / "page"
_STYLES = ("colours.css", "page.css")
# One script for the browser: each file may use what those before it define.
_SCRIPTS = (
    "format.js",
    "elements.js",
    "words.js",
    "figures.js",
    "rates.js",
    "chart.js",
    "service_client.js",
    "health.js",
    "refresh_part.js",
    "dimension_card.js",
    "channel_groups.js",
    "error_list.js",
    "first_steps.js",
    "main.js",
)
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class StatusPage:
    """Handles people."""

    def __init__(self) -> None:
        page = (_FOLDER / "page.html").read_text()
        page = page.replace("/*style*/", _joined(_STYLES))
        self._page = page.replace("/*script*/", _joined(_SCRIPTS))

    async def get(self, _request: web.Request) -> web.Response:
        """The page, whose script and style are the only ones that the browser may run."""
        nonce = secrets.token_urlsafe(16)
        return web.Response(
            text=self._page.replace("{nonce}", nonce),
            content_type="text/html",
            headers={
                "Content-Security-Policy": _POLICY.format(nonce=nonce),
                "Referrer-Policy": "no-referrer",
            },
        )


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((_FOLDER / name).read_text() for name in names)
