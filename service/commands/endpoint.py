"""Where a running sidecar is asked: a Unix socket or an HTTP address.

Opens no connection; see `sidecar_client`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from yarl import URL

UNIX = "unix://"
DEFAULT = f"{UNIX}/run/sidelook/sidelook.sock"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The base of all addresses, and the socket that they are asked through, if it is one."""

    text: str
    base_url: URL
    socket: Path | None = None


def parse_endpoint(text: str) -> Endpoint:
    """The endpoint that a text names; raises typer.BadParameter naming the accepted forms."""
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return Endpoint(text, URL("http://localhost"), Path(text.removeprefix(UNIX)))
    try:
        url = URL(text)
        is_http = url.scheme == "http" and bool(url.host) and url == url.origin()
    except ValueError:
        is_http = False
    if not is_http:
        raise typer.BadParameter(f"{text!r} is neither unix:///path nor http://host:port")
    return Endpoint(text, url)


EndpointOption = Annotated[
    str, typer.Option(metavar="URL", help="unix:///path or http://host:port.")
]
