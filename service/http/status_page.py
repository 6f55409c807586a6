"""`GET /`: the status page, one self-contained document that shows `/v1/status`."""

import secrets
from pathlib import Path

from aiohttp import web

_FOLDER = Path(__file__).parent / "page"
# Joined into one script, in this order: a file uses definitions of earlier files.
_SCRIPTS = ("format.js", "elements.js", "dimensions.js", "channels.js", "main.js")
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class StatusPage:
    """Handler of the page."""

    def __init__(self) -> None:
        page = (_FOLDER / "page.html").read_text("utf-8")
        page = page.replace("/*style*/", (_FOLDER / "page.css").read_text("utf-8"))
        scripts = (_FOLDER / name for name in _SCRIPTS)
        self._page = page.replace(
            "/*script*/", "\n".join(each.read_text("utf-8") for each in scripts)
        )

    async def get(self, _request: web.Request) -> web.Response:
        """The page; its security policy allows its own script and style only."""
        nonce = secrets.token_urlsafe(16)
        return web.Response(
            text=self._page.replace("{nonce}", nonce),
            content_type="text/html",
            headers={
                "Content-Security-Policy": _POLICY.format(nonce=nonce),
                "Referrer-Policy": "no-referrer",
            },
        )
