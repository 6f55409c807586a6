"""`GET /`: a page for people, with what the other routes tell to machines.

One self-contained document; it fetches its figures by itself and asks nobody else for anything.
"""

import secrets
from pathlib import Path

from aiohttp import web

_FOLDER = Path(__file__).parent / "page"
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class StatusPage:
    """Handles people."""

    def __init__(self) -> None:
        page = (_FOLDER / "page.html").read_text()
        style = (_FOLDER / "page.css").read_text()
        script = (_FOLDER / "page.js").read_text()
        self._page = page.replace("/*style*/", style).replace("/*script*/", script)

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
