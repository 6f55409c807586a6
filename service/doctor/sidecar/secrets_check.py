"""Secret file check: permissions, content, mounts, and the expiry of the certificate."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lookup_core.bearer_token import parse_token
from service.config.listen import ListenTls
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.doctor.finding import Finding, Subject
from service.file_identity import read_regular_file
from service.resources.shared_place import mount_point

_DAY_S = 86_400.0
_WARNING_S = 7 * _DAY_S  # as the alert SidelookCertificateExpiring
_ERROR_S = _DAY_S
_REMEDY = (
    "renew it, and replace cert_file and key_file; no restart is needed "
    "(docs/how-to/tls-and-tokens.md, Rotation)"
)


@dataclass(frozen=True, slots=True)
class SecretFacts:
    """Properties of a secret file, without its content."""

    mode: int | None = None  # None: not readable, see `refusal`
    refusal: str = ""
    is_plain_line: bool = True  # one line of printable ASCII, as HTTP headers need
    is_mount: bool = False  # a mount of its own, as with subPath


def check_secrets(
    subject: Subject, settings: Settings, root: Path = Path("/")
) -> Iterator[Finding]:
    """Yield at least one finding for each secret file; `root` contains /proc."""
    for path, is_token in secret_files(settings).items():
        facts = read_secret_facts(path, root)
        yield from secret_findings(Subject(subject.check, str(path)), facts, is_token=is_token)


def secret_files(settings: Settings) -> dict[Path, bool]:
    """Return the files, and for each whether it holds a token."""
    auth = settings.auth
    tokens = [path for path in (auth.token_file, auth.admin_token_file) if path is not None]
    others = [settings.tracing.headers_file]
    if settings.listen.tls is not None:
        others.append(settings.listen.tls.key_file)
    for config in settings.dimensions.values():
        if isinstance(config.source, PostgresSource):
            others.append(config.source.dsn_file)
        if config.refresh.changelog is not None:
            others.append(config.refresh.changelog.security.password_file)
    files = {path: False for path in others if path is not None}
    return files | dict.fromkeys(tokens, True)


def secret_findings(subject: Subject, facts: SecretFacts, *, is_token: bool) -> Iterator[Finding]:
    """Yield the faults of a secret file, or one finding without a fault."""
    if facts.mode is None:
        yield subject.error(
            f"cannot be read: {facts.refusal}",
            "mount the secret, and make it readable for the sidecar's user or group (0440)",
        )
        return
    mode = f"mode {facts.mode:04o}"
    is_open, is_shared = facts.mode & 0o006, facts.mode & 0o020
    if is_open:
        remedy = "chmod o-rw; of a Kubernetes secret: defaultMode: 0440"
        yield subject.error(f"is readable or writable for all users ({mode})", remedy)
    elif is_shared:
        yield subject.warning(f"is writable for its group ({mode})", "chmod g-w, so 0440 or 0400")
    is_unfit = is_token and not facts.is_plain_line
    if is_unfit:
        yield subject.error(
            "holds no token that an HTTP header can carry",
            "write one line of printable ASCII into it, such as the output of "
            "`openssl rand -hex 32`",
        )
    if facts.is_mount:
        yield subject.warning(
            "is a mount of its own (subPath): a rotated secret never arrives",
            "mount the whole secret as a folder",
        )
    if not (is_open or is_shared or is_unfit or facts.is_mount):
        yield subject.ok(f"is readable, and protected ({mode})")


def read_secret_facts(path: Path, root: Path = Path("/")) -> SecretFacts:
    """Read the properties of a file; an unreadable file is no error."""
    try:
        mode = path.stat().st_mode & 0o777
        content = read_regular_file(path)
        content.decode()
    except OSError as error:
        return SecretFacts(refusal=os.strerror(error.errno) if error.errno else "unknown")
    except UnicodeDecodeError:
        return SecretFacts(refusal="not UTF-8 text")
    try:
        parse_token(content)
    except ValueError:
        is_plain = False
    else:
        is_plain = True
    return SecretFacts(mode, is_plain_line=is_plain, is_mount=_is_mount(path, root))


def _is_mount(path: Path, root: Path) -> bool:
    mounts = root / "proc/self/mountinfo"
    lines = mounts.read_bytes().splitlines() if mounts.is_file() else []
    return path in {mount_point(line.split()[4]) for line in lines if line.strip()}


def check_certificate(subject: Subject, tls: ListenTls) -> Iterator[Finding]:
    """Yield the expiry of a certificate, or its fault if it has changed since it was loaded."""
    try:
        certificate = tls.certificate()
    except ValueError as error:
        yield subject.error(str(error), _REMEDY)
    else:
        yield expiry_finding(subject, certificate.expires_s, now_s=time.time())


def expiry_finding(subject: Subject, expires_s: float, *, now_s: float) -> Finding:
    """Return whether a certificate expires soon; both times are epoch seconds."""
    left_s = expires_s - now_s
    end = f"{datetime.fromtimestamp(expires_s, UTC):%Y-%m-%d %H:%M} UTC"
    if left_s <= 0:
        return subject.error(f"expired on {end}: HTTPS clients refuse it", _REMEDY)
    if left_s <= _ERROR_S:
        return subject.error(f"expires within a day, on {end}", _REMEDY)
    if left_s <= _WARNING_S:
        return subject.warning(f"expires within a week, on {end}", _REMEDY)
    return subject.ok(f"is valid until {end}")
