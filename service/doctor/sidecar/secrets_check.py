"""Secret file check: permissions, mounts, and the expiry of the certificate.

A configuration with unreadable, unprotected or malformed secrets is not loaded at all.
"""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from service.config.listen import ListenTls
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.doctor.finding import Finding, Subject
from service.resources.shared_place import mount_point

_DAY_S = 86_400.0
_WARNING_S = 7 * _DAY_S  # as the alert SidelookCertificateExpiring
_REMEDY = (
    "renew it, and replace cert_file and key_file; no restart is needed "
    "(docs/how-to/tls-and-tokens.md, Rotation)"
)


def check_secrets(
    subject: Subject, settings: Settings, root: Path = Path("/")
) -> Iterator[Finding]:
    """Yield at least one finding for each secret file; `root` contains /proc."""
    mounts = root / "proc/self/mountinfo"
    lines = mounts.read_bytes().splitlines() if mounts.is_file() else []
    mounted = {mount_point(line.split()[4]) for line in lines if line.strip()}
    for path in secret_files(settings):
        of_file = Subject(subject.check, str(path))
        try:
            mode = path.stat().st_mode & 0o777
        except OSError as error:  # it has vanished since the configuration was loaded
            yield of_file.error(
                f"cannot be read: {os.strerror(error.errno or 0)}",
                "mount the secret, and make it readable for the sidecar's user or group (0440)",
            )
        else:
            yield from secret_findings(of_file, mode, is_mount=path in mounted)


def secret_files(settings: Settings) -> list[Path]:
    """Return the files, each once."""
    auth, tls = settings.auth, settings.listen.tls
    files = [auth.token_file, auth.admin_token_file, settings.tracing.headers_file]
    if tls is not None:
        files.append(tls.key_file)
    for config in settings.dimensions.values():
        if isinstance(config.source, PostgresSource):
            files.append(config.source.dsn_file)
        if config.refresh.changelog is not None:
            files.append(config.refresh.changelog.security.password_file)
    return list(dict.fromkeys(file for file in files if file is not None))


def secret_findings(subject: Subject, mode: int, *, is_mount: bool) -> Iterator[Finding]:
    """Yield the faults of a secret file, or one finding without a fault."""
    if mode & 0o020:
        yield subject.warning(
            f"is writable for its group (mode {mode:04o})", "chmod g-w, so 0440 or 0400"
        )
    if is_mount:
        yield subject.warning(
            "is a mount of its own (subPath): a rotated secret never arrives",
            "mount the whole secret as a folder",
        )
    if not (mode & 0o020 or is_mount):
        yield subject.ok(f"is readable, and protected (mode {mode:04o})")


def check_certificate(subject: Subject, tls: ListenTls) -> Iterator[Finding]:
    """Yield the expiry of a certificate, or its fault if it has changed since it was loaded."""
    try:
        certificate = tls.certificate()
    except ValueError as error:
        yield subject.error(str(error), _REMEDY)
    else:
        yield expiry_finding(subject, certificate.expires_s, now_s=time.time())


def expiry_finding(subject: Subject, expires_s: float, *, now_s: float) -> Finding:
    """Return whether a valid certificate expires soon; both times are epoch seconds."""
    left_s = expires_s - now_s
    end = f"{datetime.fromtimestamp(expires_s, UTC):%Y-%m-%d %H:%M} UTC"
    if left_s <= _DAY_S:
        return subject.error(f"expires within a day, on {end}", _REMEDY)
    if left_s <= _WARNING_S:
        return subject.warning(f"expires within a week, on {end}", _REMEDY)
    return subject.ok(f"is valid until {end}")
