"""Where a running sidecar is asked: a Unix socket or an HTTP address.

Opens no connection; see `sidecar_client`.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from yarl import URL

from service.commands.client_files import ClientFiles

UNIX = "unix://"
NO_FILES = ClientFiles()
_SCHEMES = frozenset({"http", "https"})
DEFAULT = f"{UNIX}/run/sidelook/sidelook.sock"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The base of all addresses, and the socket that they are asked through, if it is one."""

    text: str
    base_url: URL
    socket: Path | None = None
    files: ClientFiles = NO_FILES

    @property
    def host(self) -> str:
        """Whose certificate is expected, if it has one."""
        return self.base_url.host or ""

    @property
    def is_secure(self) -> bool:
        """Whether it is asked with TLS."""
        return self.base_url.scheme == "https"

    def tls(self) -> ssl.SSLContext | bool:
        """What aiohttp takes as `ssl`; raises typer.BadParameter for files that cannot be used."""
        return self.files.context() if self.is_secure else True


def parse_endpoint(text: str, files: ClientFiles = NO_FILES) -> Endpoint:
    """The endpoint that a text names; raises typer.BadParameter naming the accepted forms.

    So it does for files of TLS where there is none.
    """
    endpoint = _endpoint(text, files)
    if files != NO_FILES and not endpoint.is_secure:
        raise typer.BadParameter(
            f"--ca-file, --cert-file and --key-file are for https://, not for {text}"
        )
    return endpoint


def _endpoint(text: str, files: ClientFiles) -> Endpoint:
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return Endpoint(text, URL("http://localhost"), Path(text.removeprefix(UNIX)))
    try:
        url = URL(text)
        is_http = url.scheme in _SCHEMES and bool(url.host) and url == url.origin()
    except ValueError:
        is_http = False
    if not is_http:
        raise typer.BadParameter(
            f"{text!r} is neither unix:///path nor http://host:port nor https://host:port"
        )
    return Endpoint(text, url, files=files)


EndpointOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        show_default=False,  # in one piece, which a long default never is
        help=f"unix:///path, http://host:port or https://host:port; by default {DEFAULT}.",
    ),
]
