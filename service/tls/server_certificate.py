"""Server certificate of a listener: loading, validation and rotation of its PEM files."""

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from lookup_core.statistics import CertificateStatistics
from service.file_identity import FileIdentity, read_regular_file

CHECK_PERIOD_S = 10.0
_REMEDY = "provide a PEM chain that begins with the server's certificate"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A chain, its key and, for mutual TLS, the authorities of client certificates; all PEM."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def identities(self) -> tuple[FileIdentity, ...]:
        """The identities of the files, none if one is missing; they differ after a change."""
        files = (self.cert_file, self.key_file, self.client_ca_file)
        try:
            return tuple(FileIdentity.of(each) for each in files if each is not None)
        except OSError:
            return ()  # reading the file reports the error


@dataclass(frozen=True, slots=True, eq=False)
class ServerCertificate:
    """The TLS context of a listener, with names and expiry of its certificate."""

    context: ssl.SSLContext
    names: frozenset[str]  # and addresses, in lower case; wildcards begin with `*.`
    expires_s: float  # since the epoch

    def is_for(self, host: str) -> bool:
        """Whether clients accept the certificate for this host; `*` stands for one label."""
        _, dot, domain = host.partition(".")
        return host in self.names or (bool(dot) and f"*.{domain}" in self.names)


def server_certificate(files: CertificateFiles) -> ServerCertificate:
    """Load the files; raises ValueError with the file and the remedy."""
    chain = _text(files.cert_file)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)  # TLS 1.2 or newer
    client = _client_context(chain, files.cert_file)
    _load(context, files)
    certificate = _checked(context, client, files.cert_file)
    names = frozenset(_names(certificate))
    if not names:
        raise ValueError(
            f"{files.cert_file} names no host, so clients reject it; "
            "provide one with a subjectAltName"
        )
    if files.client_ca_file is not None:
        _require_client_certificates(context, files.client_ca_file)
    return ServerCertificate(context, names, ssl.cert_time_to_seconds(certificate["notAfter"]))


def _text(path: Path) -> str:
    try:
        # Only comments between the certificates may contain other characters.
        return read_regular_file(path).decode("ascii", "ignore")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


def _client_context(chain: str, path: Path) -> ssl.SSLContext:
    """A client that trusts this certificate itself, so it checks dates and purpose only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, chain, path, remedy=_REMEDY)
    return context


def _trust(context: ssl.SSLContext, pem: str, path: Path, *, remedy: str) -> None:
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{path} contains no certificate; {remedy}") from error


def _load(context: ssl.SSLContext, files: CertificateFiles) -> None:
    try:
        read_regular_file(files.key_file)  # the library would wait for a FIFO
        # Without a password the library would prompt for it at the terminal.
        context.load_cert_chain(files.cert_file, files.key_file, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(
                f"{files.key_file} is not the key of {files.cert_file}; provide a matching pair"
            ) from error
        raise ValueError(
            f"{files.key_file} contains no usable key for {files.cert_file} "
            f"({_reason(error)}); provide a PEM key of at least 2048 bits, without a password"
        ) from error
    except OSError as error:
        raise ValueError(f"cannot read {files.key_file}: {error.strerror}") from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unreadable").replace("_", " ").lower()


def _checked(server: ssl.SSLContext, client: ssl.SSLContext, path: Path) -> Mapping[str, Any]:
    """The fields of the certificate, validated by a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        while not all([_is_finished(end) for end in ends]):  # noqa: C419  # both ends must take a step
            pass
    except ssl.SSLCertVerificationError as error:
        raise ValueError(
            f"{path}: {error.verify_message}; clients would reject it: renew it with the purpose "
            "of a server, and check the clock of this machine"
        ) from error
    except ssl.SSLError as error:
        raise ValueError(f"{path}: clients would fail the handshake: {error.reason}") from error
    return ends[0].getpeercert() or {}


def _is_finished(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for kind, name in certificate.get("subjectAltName", ()):
        if kind == "DNS":
            yield name.lower()
        elif kind == "IP Address":
            yield str(ipaddress.ip_address(name))  # the library does not abbreviate IPv6 addresses


def _require_client_certificates(context: ssl.SSLContext, path: Path) -> None:
    _trust(context, _text(path), path, remedy="provide those of the authorities")
    ends_s = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in context.get_ca_certs()]
    if not ends_s:
        raise ValueError(f"{path} contains no CA certificate; provide one that may sign others")
    if max(ends_s) < time.time():
        raise ValueError(
            f"{path}: every certificate has expired; provide the new one of the authority"
        )
    context.verify_mode = ssl.CERT_REQUIRED


class CertificateRotation:
    """Holds the newest valid certificate; an invalid one never replaces it.

    The listener uses `current` for each new connection.
    """

    def __init__(self, files: CertificateFiles, *, check_period_s: float = CHECK_PERIOD_S) -> None:
        """Load the files; raises ValueError if they are invalid."""
        self._files = files
        self._check_period_s = check_period_s
        self._identities = files.identities()
        self._rejected_for = ""  # fault of the newest files, while the former certificate is used
        self.current = server_certificate(files)
        self.taken_total = 0
        self.refused_total = 0

    def __contains__(self, host: object) -> bool:
        """Whether the certificate names this host, so that clients may send it as Host."""
        return isinstance(host, str) and self.current.is_for(host)

    def statistics(self) -> CertificateStatistics:
        """The expiry of the current certificate, and the renewals."""
        return CertificateStatistics(self.current.expires_s, self.taken_total, self.refused_total)

    async def run(self) -> None:
        """Check the files periodically, until cancelled."""
        while True:
            await asyncio.sleep(self._check_period_s)
            self.check()

    def check(self) -> bool:
        """Load changed files; returns whether the certificate was replaced.

        An invalid certificate is logged once and checked again, as its validity may begin later.
        """
        identities = self._files.identities()
        if identities == self._identities:
            return False
        try:
            self.current = server_certificate(self._files)
        except ValueError as error:
            self._reject(str(error))
            return False
        except OSError as error:
            self._reject(f"{self._files.cert_file} cannot be loaded: {type(error).__name__}")
            return False
        self._identities, self._rejected_for = identities, ""
        self.taken_total += 1
        structlog.get_logger().info("tls.certificate_loaded", path=str(self._files.cert_file))
        return True

    def _reject(self, fault: str) -> None:
        if fault != self._rejected_for:
            self._rejected_for = fault
            self.refused_total += 1
            structlog.get_logger().error(
                "tls.certificate_rejected", code="invalid_certificate", detail=fault
            )
