"""The client's side of TLS: whom it trusts, and what it shows; files by name, read anew each time.

Opens no connection. Host names are always checked; there is no way to leave that out.
"""

import ssl
from dataclasses import dataclass

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.tls_refusal import TlsRefusal, words


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Names of files, so that it travels with a task; without any, the system's authorities."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """What the files hold now, because they are rotated; raises InvalidRequest naming one."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise _unreadable("ca_file", self.ca_file, error) from error
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file, password=_refuse_password)
            except OSError as error:
                files = f"{self.cert_file}, {self.key_file}"
                raise _unreadable("cert_file, key_file", files, error) from error
        return context

    def reason(self, error: OSError, host: str) -> str | None:
        """What a handshake that failed means; None if it is nothing of TLS."""
        refusal = TlsRefusal(host, self.ca_file, self.cert_file)
        match error:
            case ssl.SSLCertVerificationError():
                return refusal.of_certificate(error.verify_code, error.verify_message)
            case ssl.SSLError():
                return refusal.of_alert(error.reason or str(error))
            case ConnectionError():
                return f"{error}; {refusal.of_silence()}"
        return None


SYSTEMS_TLS = ClientTls()


def _refuse_password() -> str:
    return ""  # otherwise the library would ask for it at a terminal that nobody looks at


def _unreadable(options: str, files: str | None, error: OSError) -> InvalidRequest:
    # Of a key that does not fit the library knows no more than a short name.
    is_of_content = isinstance(error, ssl.SSLError)
    reason = (getattr(error, "reason", None) or "not PEM") if is_of_content else error.strerror
    return InvalidRequest(
        ErrorCode.BAD_REQUEST, f"{options} {files} cannot be used: {words(str(reason))}"
    )
