"""JSON answers whose head is written as one text, where nothing else about it is to be decided.

Says byte for byte what aiohttp's own response would, in a third of the time. Not for errors.
"""

import time
from email.utils import formatdate
from functools import lru_cache

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter

from service.http.body import MediaType

FIXED_HEADERS = {
    "Server": "sidelook",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_MOST_HEADS = 1_024

Headers = tuple[tuple[str, str], ...]


class ReadyResponse(web.StreamResponse):
    """A 200 with this body, for a caller who takes HTTP/1.1 and stays connected."""

    def __init__(self, body: bytes, headers: Headers) -> None:
        super().__init__()
        self._whole = _head(headers, len(body), int(time.time())) + body
        self._writer: AbstractStreamWriter | None = None

    @property
    def prepared(self) -> bool:
        """Whether it was handed to the connection."""
        return self._writer is not None

    @property
    def keep_alive(self) -> bool:
        """The connection stays open."""
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Hand it to the connection, if that has not been done; raises ConnectionError."""
        if self._writer is None:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the caller left")
            request.transport.write(self._whole)
            self._writer = request.writer
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Wait until the kernel has it; there is no more `data`."""
        assert self._writer is not None
        assert not data
        await self._writer.drain()


def json_response(request: web.Request, body: bytes, headers: Headers = ()) -> web.StreamResponse:
    """A 200 with a JSON body and these headers besides those that every answer has."""
    # Not with TLS: there it would be taken in as a whole, whether its caller reads or not.
    is_plain = request.keep_alive and request.version == HttpVersion11 and not request.secure
    if is_plain and request.method != hdrs.METH_HEAD:
        return ReadyResponse(body, headers)
    return web.Response(body=body, content_type=MediaType.JSON.value, headers=headers)


@lru_cache(maxsize=_MOST_HEADS)  # the answers of one second have few lengths and ages
def _head(headers: Headers, body_bytes: int, second: int) -> bytes:
    lines = [
        *headers,
        ("Content-Type", MediaType.JSON.value),
        ("Content-Length", str(body_bytes)),
        ("Date", _date(second)),
        *FIXED_HEADERS.items(),
    ]
    text = "".join([f"{name}: {value}\r\n" for name, value in lines])
    return f"HTTP/1.1 200 OK\r\n{text}\r\n".encode()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
