"""One route of the HTTP surface, and for whom it is.

Only a value: `application` makes aiohttp's routes of it, `security` and `admission` read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from aiohttp import web
from aiohttp.typedefs import Handler


class Audience(Enum):
    """Who may call a route, and when."""

    PROBE = auto()  # anyone, always: an overload must not look like a dead process
    PAGE = auto()  # anyone: it shows nothing by itself
    READER = auto()  # whoever has the token, if there is one
    CALLER = auto()  # as a reader, but not while the service drains
    ADMIN = auto()  # whoever has the admin token, or owns the process


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path with its handler; GET answers HEAD, too."""

    method: str
    path: str
    handler: Handler
    audience: Audience
    is_traced: bool = False  # it asks for rows, and may be followed


Audiences = Mapping[web.AbstractRoute, Audience]


def audience_of(request: web.Request, audiences: Audiences) -> Audience:
    """For whom the requested path is; what does not exist is nobody's business but a reader's."""
    return audiences.get(request.match_info.route, Audience.READER)
