"""Endpoint URLs of a sidecar: `unix:///path`, `http://host:port` and `https://host:port`."""

from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

_Url = TypeVar("_Url", bound="EndpointUrl")

_UNIX = "unix://"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class EndpointUrl:
    """A parsed URL: `path` of a Unix socket, otherwise a host and a port."""

    url: str
    path: str | None
    host: str
    port: int
    is_secure: bool

    @classmethod
    def parse(cls: type[_Url], url: str) -> _Url:
        """Parse a URL, whose path may be relative; ValueError names the accepted forms."""
        if url.startswith(_UNIX) and url != _UNIX:
            return cls(url, url.removeprefix(_UNIX), "localhost", 0, is_secure=False)
        refusal = f"{url!r} is neither unix:///path nor http://host:port nor https://host:port"
        try:
            parts = urlsplit(url)
            default_port = _DEFAULT_PORTS[parts.scheme]
            port = parts.port or default_port
        except (ValueError, KeyError) as error:
            raise ValueError(refusal) from error
        is_origin = parts.path in {"", "/"} and not parts.query and not parts.fragment
        if not parts.hostname or "@" in parts.netloc or not is_origin:
            raise ValueError(refusal)
        return cls(url, None, parts.hostname, port, is_secure=parts.scheme == "https")
