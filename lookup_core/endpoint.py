"""Endpoint of a sidecar: its URL, and hints for a failed TLS handshake.

The forms are `unix:///path`, `http://host:port` and `https://host:port`.
"""

from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

_Url = TypeVar("_Url", bound="EndpointUrl")

_UNIX = "unix://"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNTRUSTED = frozenset({2, 18, 19, 20, 21})  # unknown issuer, or untrusted root
_OTHER_HOST = frozenset({62, 64})  # name, address
_PLAIN, _SECURE = "http://", "https://"


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


@dataclass(frozen=True, slots=True)
class TlsHint:
    """The host and files of a connection, and the names of the client's options."""

    host: str
    ca_file: str | None
    cert_file: str | None
    ca_option: str = "ca_file"
    cert_options: str = "cert_file and key_file"

    def of_certificate(self, code: int, message: str) -> str:
        """The reason for a refused certificate, by OpenSSL's X509_V_ERR number."""
        if code == _EXPIRED:
            return "its certificate has expired; renew listen.tls.cert_file there"
        if code == _NOT_YET_VALID:
            return "its certificate is not valid yet; compare the clocks of both machines"
        if code in _OTHER_HOST:
            remedy = "use a host of the certificate, or issue one for this host"
            return f"its certificate is not for {self.host}; {remedy}"
        if code in _UNTRUSTED:
            trusted = self.ca_file or "the system's trust store"
            remedy = f"give the authority with {self.ca_option}"
            return f"its certificate is not signed by an authority in {trusted}; {remedy}"
        return f"its certificate was refused: {message}"

    def of_alert(self, reason: str) -> str:
        """The reason for a failed handshake, by the reason name of OpenSSL."""
        if "CERTIFICATE_REQUIRED" in reason or (
            self.cert_file is None and "HANDSHAKE_FAILURE" in reason
        ):
            return f"it requires a client certificate; give {self.cert_options}"
        if "UNKNOWN_CA" in reason:
            remedy = "see listen.tls.client_ca_file there"
            return f"it does not trust the authority that signed {self.cert_file}; {remedy}"
        if "ALERT" in reason and "CERTIFICATE" in reason:
            return f"it refused {self.cert_file} ({words(reason)})"
        if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
            return "the port does not speak TLS; is the address http://?"
        return f"TLS failed: {words(reason)}"

    def of_silence(self) -> str:
        """The hint for a connection closed after the handshake, usually for its certificate."""
        if self.cert_file is None:
            return f"if it requires client certificates, give {self.cert_options}"
        return f"if it does not accept {self.cert_file}, its log says why"


def words(reason: str) -> str:
    """A reason name of OpenSSL in lower case, without underscores."""
    return reason.lower().replace("_", " ")


def unusable_files(options: str, files: str | None, error: OSError) -> str:
    """The text for files that do not fit these options; an SSLError is a fault of the content."""
    has_reason = hasattr(error, "reason")  # perhaps an empty one
    reason = (getattr(error, "reason", None) or "not PEM") if has_reason else error.strerror
    return f"{options} {files} cannot be used: {words(str(reason))}"


def plain_refusal(url: str) -> str | None:
    """The hint for a plain HTTP address; None for any other endpoint."""
    if not url.startswith(_PLAIN):
        return None
    return f"if it listens with TLS, its address is {_SECURE}{url.removeprefix(_PLAIN)}"
