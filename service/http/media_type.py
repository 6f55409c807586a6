"""Whether a body is JSON or Arrow: what was sent, and what is wanted back.

Not the encoding itself: see `json_body`, `json_reply` and `arrow`.
"""

from enum import StrEnum

from aiohttp import web


class MediaType(StrEnum):
    """The two forms of keys and answers."""

    JSON = "application/json"
    ARROW = "application/vnd.apache.arrow.stream"


# A body without a type, and what `curl -d` calls every body, are taken for JSON.
_JSON_TYPES = frozenset({"", MediaType.JSON.value, "application/x-www-form-urlencoded"})
_JSON_RANGES = frozenset({"application/*", MediaType.JSON.value})


def sent_media_type(request: web.Request) -> MediaType:
    """What the body is; raises 415 for anything else."""
    sent = _essence(request.headers.get("Content-Type", ""))
    if sent in _JSON_TYPES:
        return MediaType.JSON
    if sent == MediaType.ARROW:
        return MediaType.ARROW
    raise web.HTTPUnsupportedMediaType(text=f"a body is {MediaType.JSON} or {MediaType.ARROW}")


def wanted_media_type(request: web.Request, *, default: MediaType) -> MediaType:
    """What the caller accepts; `default` if it does not care. Raises 406 if it is neither."""
    ranges = {_essence(each) for each in request.headers.get("Accept", "*/*").split(",")}
    if "*/*" in ranges or default.value in ranges:
        return default
    if MediaType.ARROW in ranges:
        return MediaType.ARROW
    if ranges & _JSON_RANGES:
        return MediaType.JSON
    raise web.HTTPNotAcceptable(text=f"answers are {MediaType.JSON} or {MediaType.ARROW}")


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
