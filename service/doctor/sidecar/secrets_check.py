"""Secret file check: permissions, mounts, and the end of the certificate."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from service.config.listen import ListenTls
from service.config.secrets import read_secret
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.doctor.finding import Finding, Subject


@dataclass(frozen=True, slots=True)
class SecretFacts:
    """What the system says of a file with a secret."""

    mode: int | None = None  # None: it cannot be looked at, see `refusal`
    refusal: str = ""
    is_plain_line: bool = True  # one line of printable ASCII, as a header can hold
    is_mount: bool = False  # mounted by itself, as a subPath is


@dataclass(frozen=True, slots=True)
class SecretsCheck:
    """All secret files that a configuration names; `root` is where /proc is."""

    settings: Settings
    root: Path = Path("/")

    @property
    def matter(self) -> Subject:
        """All of them."""
        return Subject("secrets", "files")

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One for each file, or more."""
        for path, is_token in secret_files(self.settings).items():
            # In a thread: a volume of the network may hang.
            facts = await asyncio.to_thread(read_secret_facts, path, self.root)
            matter = Subject(self.matter.check, str(path))
            for finding in secret_findings(matter, facts, is_token=is_token):
                yield finding


def secret_files(settings: Settings) -> dict[Path, bool]:
    """The files, and whether each holds a token."""
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


def secret_findings(matter: Subject, facts: SecretFacts, *, is_token: bool) -> Iterator[Finding]:
    """What the facts mean."""
    if facts.mode is None:
        yield matter.error(
            f"cannot be read: {facts.refusal}",
            "mount the secret, and let the sidecar's user or group read it (0440)",
        )
        return
    troubles = list(_troubles(matter, facts, is_token=is_token))
    yield from troubles or [matter.ok(f"can be read, and not by everybody ({facts.mode:04o})")]


def _troubles(matter: Subject, facts: SecretFacts, *, is_token: bool) -> Iterator[Finding]:
    assert facts.mode is not None
    if facts.mode & 0o006:
        yield matter.error(
            f"may be read or written by everybody (mode {facts.mode:04o})",
            "chmod o-rw; of a Kubernetes secret: defaultMode: 0440",
        )
    elif facts.mode & 0o020:
        yield matter.warning(
            f"may be written by its group (mode {facts.mode:04o})", "chmod g-w, so 0440 or 0400"
        )
    if is_token and not facts.is_plain_line:
        yield matter.error(
            "holds no token that a header can carry",
            "write one line of printable ASCII into it, such as `openssl rand -hex 32` prints",
        )
    if facts.is_mount:
        yield matter.warning(
            "is mounted by itself (subPath): a secret that is rotated never arrives",
            "mount the whole secret as a folder",
        )


def read_secret_facts(path: Path, root: Path = Path("/")) -> SecretFacts:
    """The facts; nothing is changed by it."""
    try:
        mode = path.stat().st_mode & 0o777
        text = read_secret(path)
    except OSError as error:
        return SecretFacts(refusal=os.strerror(error.errno) if error.errno else "unknown")
    except UnicodeDecodeError:
        return SecretFacts(refusal="not UTF-8 text")
    is_plain = bool(text) and text.isascii() and text.isprintable()
    return SecretFacts(mode, is_plain_line=is_plain, is_mount=_is_mount(path, root))


def _is_mount(path: Path, root: Path) -> bool:
    mounts = root / "proc/self/mountinfo"
    lines = mounts.read_text().splitlines() if mounts.is_file() else []
    # The fifth field is the place; spaces in it are written as \040.
    places = {line.split()[4].replace("\\040", " ") for line in lines if line.strip()}
    return str(path) in places


_DAY_S = 86_400.0
WARNING_S = 7 * _DAY_S  # as the alert SidelookCertificateExpiring
ERROR_S = _DAY_S
_REMEDY = (
    "renew it, and replace cert_file and key_file: the sidecar takes them without a restart "
    "(docs/tls.md, Rotation)"
)


@dataclass(frozen=True, slots=True)
class CertificateCheck:
    """The certificate of the TCP listener."""

    tls: ListenTls

    @property
    def matter(self) -> Subject:
        """Its file."""
        return Subject("tls", str(self.tls.cert_file))

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """When it ends; or why it is of no use, where it changed since it was read."""
        try:
            # In a thread: a volume of the network may hang.
            certificate = await asyncio.to_thread(self.tls.certificate)
        except ValueError as error:
            yield self.matter.error(str(error), _REMEDY)
            return
        yield end_finding(self.matter, certificate.expires_s, now_s=time.time())


def end_finding(matter: Subject, expires_s: float, *, now_s: float) -> Finding:
    """What is left of it; both in seconds since the epoch."""
    left_s = expires_s - now_s
    end = f"{datetime.fromtimestamp(expires_s, UTC):%Y-%m-%d %H:%M} UTC"
    if left_s <= 0:
        return matter.error(f"ended on {end}: callers by https refuse it", _REMEDY)
    if left_s <= ERROR_S:
        return matter.error(f"ends within a day, on {end}", _REMEDY)
    if left_s <= WARNING_S:
        return matter.warning(f"ends within a week, on {end}", _REMEDY)
    return matter.ok(f"is valid until {end}")
