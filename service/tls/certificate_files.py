"""The files that TLS of a listener is made of, and whether they are still those of before.

What stands in them is the business of `server_certificate`.
"""

from dataclasses import dataclass
from pathlib import Path

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
