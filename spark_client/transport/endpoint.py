"""Endpoint of a sidecar, a Unix socket or an HTTP address, and the client's TLS files.

Opens sockets; `handshake` does the WebSocket handshake.
"""

import os
import socket
import ssl
import time
from dataclasses import dataclass

from lookup_core.endpoint import EndpointUrl, TlsHint, unusable_files
from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable

_STREAM_PATH = "/v1/stream"


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Paths of PEM files; without `ca_file` the system's authorities. Travels with a task."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """The TLS context, from the files as they are now; InvalidRequest names an unusable one."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            detail = unusable_files("ca_file", self.ca_file, error)
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail) from error
        if self.cert_file is not None:
            try:
                # Without a password the library would prompt for it at the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                files = f"{self.cert_file}, {self.key_file}"
                detail = unusable_files("cert_file, key_file", files, error)
                raise InvalidRequest(ErrorCode.BAD_REQUEST, detail) from error
        return context

    def reason(self, error: OSError, host: str) -> str | None:
        """The reason of a failed handshake; None if it is not TLS."""
        refusal = TlsHint(host, self.ca_file, self.cert_file)
        match error:
            case ssl.SSLCertVerificationError():
                return refusal.of_certificate(error.verify_code, error.verify_message)
            case ssl.SSLError():
                return refusal.of_alert(error.reason or str(error))
            case ConnectionError():
                return f"{error}; {refusal.of_silence()}"
        return None


SYSTEMS_TLS = ClientTls()


@dataclass(frozen=True, slots=True)
class StreamEndpoint(EndpointUrl):
    """An endpoint that the client connects to."""

    @property
    def web_socket_url(self) -> str:
        """The URL of the streaming protocol."""
        if self.path is not None:
            return f"ws://localhost{_STREAM_PATH}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'wss' if self.is_secure else 'ws'}://{host}:{self.port}{_STREAM_PATH}"

    def connect(self, timeout_s: float, tls: ClientTls = SYSTEMS_TLS) -> socket.socket:
        """A connected blocking socket within `timeout_s`, with TLS for https.

        Raises SidecarUnreachable with the reason, InvalidRequest for unusable TLS files.
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
        deadline_s = time.monotonic() + timeout_s
        if self.path is not None:
            connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connecting.settimeout(timeout_s)
                connecting.connect(self.path)
            except OSError:
                connecting.close()
                raise
            return connecting
        plain = socket.create_connection((self.host, self.port), timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return plain
        try:
            limit_wait(plain, deadline_s)  # it bounds the whole TLS handshake
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


def endpoint_of(url: str) -> StreamEndpoint:
    """The endpoint of a URL; raises ValueError for a malformed URL or a relative path."""
    endpoint = StreamEndpoint.parse(url)
    if endpoint.path is not None and not endpoint.path.startswith("/"):
        raise ValueError(f"{url!r} needs an absolute path: unix:///path")
    return endpoint


def limit_wait(connected: socket.socket, deadline_s: float) -> None:
    """Bound the next operation of a socket by a monotonic time; TimeoutError if it has passed."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    connected.settimeout(left_s)
