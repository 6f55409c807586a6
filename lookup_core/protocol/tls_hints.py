"""Hints for a failed TLS handshake, and for plain HTTP that meets a TLS port."""

from dataclasses import dataclass

_NOT_YET_VALID, _EXPIRED = 9, 10
_UNTRUSTED = frozenset({2, 18, 19, 20, 21})  # no issuer is known, or the last one is not trusted
_FOR_ANOTHER_HOST = frozenset({62, 64})  # by name, by address


@dataclass(frozen=True, slots=True)
class TlsHint:
    """Who was asked for, with which files, and what the client's options are called."""

    host: str
    ca_file: str | None
    cert_file: str | None
    ca_option: str = "ca_file"
    cert_options: str = "cert_file and key_file"

    def of_certificate(self, code: int, message: str) -> str:
        """The peer's certificate was refused with this number of OpenSSL's X509_V_ERR."""
        if code == _EXPIRED:
            return "its certificate has expired; renew listen.tls.cert_file there"
        if code == _NOT_YET_VALID:
            return "its certificate is not valid yet; compare the clocks of both machines"
        if code in _FOR_ANOTHER_HOST:
            return (
                f"its certificate is not for {self.host}; ask for a name that it has, "
                "or let it have this one"
            )
        if code in _UNTRUSTED:
            trusted = self.ca_file or "the system's authorities"
            return f"nobody in {trusted} signed its certificate; name who did with {self.ca_option}"
        return f"its certificate was refused: {message}"

    def of_alert(self, reason: str) -> str:
        """The peer, or the library, gave up with this name of OpenSSL's."""
        if "CERTIFICATE_REQUIRED" in reason or (
            self.cert_file is None and "HANDSHAKE_FAILURE" in reason
        ):
            return f"it asks for a certificate; give {self.cert_options}"
        if "UNKNOWN_CA" in reason:
            return (
                f"it does not trust who signed {self.cert_file}; "
                "see listen.tls.client_ca_file there"
            )
        if "ALERT" in reason and "CERTIFICATE" in reason:
            return f"it refused {self.cert_file} ({words(reason)})"
        if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
            return "what listens there does not speak TLS; is its address http://?"
        return f"TLS failed: {words(reason)}"

    def of_silence(self) -> str:
        """The peer hung up after the handshake, as most do about certificates, without a reason."""
        if self.cert_file is None:
            return f"if it asks for certificates, give {self.cert_options}"
        return f"if it does not accept {self.cert_file}, its log says why"


def words(reason: str) -> str:
    """A name of OpenSSL's, as people write it."""
    return reason.lower().replace("_", " ")


_PLAIN, _SECURE = "http://", "https://"


def plain_refusal(url: str) -> str | None:
    """The remedy for an address of plain HTTP; None for any other, such as a socket's."""
    if not url.startswith(_PLAIN):
        return None
    return f"if it listens with TLS, its address is {_SECURE}{url.removeprefix(_PLAIN)}"
