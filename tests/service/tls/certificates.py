"""Certificates for tests, in files as a configuration names them.

Made by trustme in every run; nothing here is a secret.
"""

import ssl
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from service.tls.server_certificate import CertificateFiles

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates, and puts them into a folder."""

    folder: Path
    signer: trustme.CA

    @property
    def file(self) -> Path:
        """Its own certificate."""
        path = self.folder / "ca.crt"
        if not path.exists():
            self.signer.cert_pem.write_to_path(path)
        return path

    def issue(
        self,
        *names: str,
        name: str = "tls",
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> CertificateFiles:
        """A certificate for these hosts, and its key, in files of this name."""
        issued = self.signer.issue_cert(
            *(names or ("localhost", "127.0.0.1")), not_before=not_before, not_after=not_after
        )
        return written(issued, self.folder, name)

    def server_context(self) -> ssl.SSLContext:
        """A certificate for a server on this machine."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.signer.issue_cert("localhost", "127.0.0.1").configure_cert(context)
        return context


def authority(folder: Path) -> Authority:
    """A new authority."""
    folder.mkdir(parents=True, exist_ok=True)
    return Authority(folder, trustme.CA())


def written(issued: trustme.LeafCert, folder: Path, name: str) -> CertificateFiles:
    """The certificate and its key as files; the key is its owner's alone."""
    files = CertificateFiles(folder / f"{name}.crt", folder / f"{name}.key")
    files.cert_file.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    files.key_file.unlink(missing_ok=True)
    files.key_file.touch(0o600)
    files.key_file.write_bytes(issued.private_key_pem.bytes())
    return files


def section(files: CertificateFiles) -> dict[str, str]:
    """The section `listen.tls` of a configuration with these files."""
    return {key: str(path) for key, path in asdict(files).items() if path is not None}


def yesterday() -> datetime:
    """When an expired certificate ended."""
    return datetime.now(UTC) - DAY


def tomorrow() -> datetime:
    """The start of a certificate that is not valid yet."""
    return datetime.now(UTC) + DAY
