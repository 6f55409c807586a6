"""Server certificate of a listener: its files, checked before anything connects."""

import ipaddress
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_Version = tuple[int, int, int]  # inode, modification time, size: a swapped symlink changes it


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A chain, its key and, if callers show certificates, the authorities of those; all PEM."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def versions(self) -> tuple[_Version | None, ...]:
        """Another value whenever a file has changed; None stands for one that is not there."""
        files = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(_version(each) for each in files if each is not None)


def _version(path: Path) -> _Version | None:
    try:
        status = path.stat()
    except OSError:
        return None  # told by whoever reads it
    return status.st_ino, status.st_mtime_ns, status.st_size


_WANTED = "give a chain in PEM, the server's own certificate first"


@dataclass(frozen=True, slots=True, eq=False)
class ServerCertificate:
    """A context for a listener's sockets, and what its certificate says."""

    context: ssl.SSLContext
    names: frozenset[str]  # and addresses, in lower case; some begin with `*.`
    expires_s: float  # since the epoch

    def is_for(self, host: str) -> bool:
        """Whether callers who ask for this host would accept it; `*` stands for one label."""
        _, dot, domain = host.partition(".")
        return host in self.names or (bool(dot) and f"*.{domain}" in self.names)


def server_certificate(files: CertificateFiles) -> ServerCertificate:
    """What the files hold now; raises ValueError that names the file, and the remedy."""
    chain = _text(files.cert_file)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)  # TLS 1.2 or newer
    caller = _caller(chain, files.cert_file)
    _load(context, files)
    told = _told(context, caller, files.cert_file)
    names = frozenset(_names(told))
    if not names:
        raise ValueError(
            f"{files.cert_file} names no host, so that no caller accepts it; "
            "give one with a subjectAltName"
        )
    if files.client_ca_file is not None:
        _ask_for_certificates(context, files.client_ca_file)
    return ServerCertificate(context, names, ssl.cert_time_to_seconds(told["notAfter"]))


def _text(path: Path) -> str:
    try:
        # What is not ASCII can only stand in comments between the certificates.
        return path.read_text(encoding="ascii", errors="ignore")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


def _caller(chain: str, path: Path) -> ssl.SSLContext:
    """A caller who trusts this very certificate, and so judges its dates and purpose alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=chain)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{path} holds no certificate; {_WANTED}") from error
    return context


def _load(context: ssl.SSLContext, files: CertificateFiles) -> None:
    try:
        context.load_cert_chain(files.cert_file, files.key_file, password=_refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(
                f"{files.key_file} is not the key of {files.cert_file}; give the two that were "
                "made together"
            ) from error
        raise ValueError(
            f"{files.key_file} holds no key that can be used with {files.cert_file} "
            f"({_reason(error)}); give its key in PEM, without a password, of at least 2048 bits"
        ) from error
    except OSError as error:
        raise ValueError(f"cannot read {files.key_file}: {error.strerror}") from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unreadable").replace("_", " ").lower()


def _refuse_password() -> str:
    return ""  # otherwise the library would ask for it at the terminal


def _told(server: ssl.SSLContext, caller: ssl.SSLContext, path: Path) -> Mapping[str, Any]:
    """What the certificate says, in a handshake in memory that finds what callers would."""
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        caller.wrap_bio(to_caller, to_server),
        server.wrap_bio(to_server, to_caller, server_side=True),
    )
    try:
        while not all([_has_shaken(end) for end in ends]):  # noqa: C419  # both go on each time
            pass
    except ssl.SSLCertVerificationError as error:
        raise ValueError(
            f"{path}: {error.verify_message}; callers would refuse it: renew it, "
            "for use by a server, and look at this machine's clock"
        ) from error
    except ssl.SSLError as error:
        raise ValueError(f"{path} is of no use to callers: {error.reason}") from error
    return ends[0].getpeercert() or {}


def _has_shaken(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _names(told: Mapping[str, Any]) -> Iterator[str]:
    for kind, name in told.get("subjectAltName", ()):
        if kind == "DNS":
            yield name.lower()
        elif kind == "IP Address":
            yield str(ipaddress.ip_address(name))  # the library writes ::1 in full


def _ask_for_certificates(context: ssl.SSLContext, path: Path) -> None:
    authorities = _text(path)
    try:
        context.load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{path} holds no certificate; give those of authorities") from error
    ends_s = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in context.get_ca_certs()]
    if not ends_s:
        raise ValueError(f"{path} holds no certificate of an authority, that may sign others")
    if max(ends_s) < time.time():
        raise ValueError(f"{path}: every certificate has expired; give the authority's newer one")
    context.verify_mode = ssl.CERT_REQUIRED
