"""Where a sidecar listens: a Unix socket or an HTTP address.

Only the address; speaking to what listens there is `web_socket`'s business.
"""

import os
import socket
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from lookup_core.errors import SidecarUnreachable
from spark_client.client_tls import SYSTEMS_TLS, ClientTls

STREAM_PATH = "/v1/stream"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A parsed URL: `path` for a Unix socket, otherwise host and port."""

    url: str
    path: str | None
    host: str
    port: int
    is_secure: bool

    @property
    def web_socket_url(self) -> str:
        """The URL of the streaming protocol, as the handshake wants it."""
        if self.path is not None:
            return f"ws://localhost{STREAM_PATH}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'wss' if self.is_secure else 'ws'}://{host}:{self.port}{STREAM_PATH}"

    def connect(self, timeout_s: float, tls: ClientTls = SYSTEMS_TLS) -> socket.socket:
        """A connected blocking socket within `timeout_s`, with TLS for https.

        Raises SidecarUnreachable saying what is wrong, InvalidRequest for files of TLS that are.
        """
        context = tls.context() if self.is_secure else None
        try:
            return self._connect(timeout_s, context)
        except ssl.SSLError as error:
            reason = tls.reason(error, self.host) or str(error)
            raise SidecarUnreachable(self.url, reason) from error
        except OSError as error:
            raise SidecarUnreachable(self.url, self._reason(error)) from error

    def _connect(self, timeout_s: float, context: ssl.SSLContext | None) -> socket.socket:
        if self.path is not None:
            return _connected_unix(self.path, timeout_s)
        deadline_s = time.monotonic() + timeout_s
        plain = socket.create_connection((self.host, self.port), timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return plain
        try:
            limit_wait(plain, deadline_s)  # TLS takes it for all of its handshake
            return context.wrap_socket(plain, server_hostname=self.host)
        except OSError:
            plain.close()
            raise

    def _reason(self, error: OSError) -> str:
        match error:
            case FileNotFoundError():
                return "no such socket; is the sidecar running, and its volume mounted here?"
            case PermissionError():
                return f"uid {os.getuid()}, gid {os.getgid()} may not open it ({error.strerror})"
            case ConnectionRefusedError():
                return "nothing listens there; is the sidecar running?"
            case TimeoutError():
                return "it did not answer in time"
        return str(error)


def endpoint_of(url: str) -> Endpoint:
    """Parse `unix:///path`, `http://host:port` or `https://host:port`; ValueError otherwise."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return Endpoint(url, parts.path, "localhost", 0, is_secure=False)
    if parts.scheme in _DEFAULT_PORTS and parts.hostname and parts.path in {"", "/"}:
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        return Endpoint(url, None, parts.hostname, port, is_secure=parts.scheme == "https")
    raise ValueError(f"{url!r} is neither unix:///path nor http://host:port nor https://host:port")


def limit_wait(connected: socket.socket, deadline_s: float) -> None:
    """Let the next wait of `connected` end at that time of the monotonic clock.

    Raises TimeoutError if it has passed.
    """
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    connected.settimeout(left_s)


def _connected_unix(path: str, timeout_s: float) -> socket.socket:
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connecting.settimeout(timeout_s)
        connecting.connect(path)
    except OSError:
        connecting.close()
        raise
    return connecting
