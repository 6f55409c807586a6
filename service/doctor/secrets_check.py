"""The files that hold tokens, passwords and addresses: who may read them, how they are mounted.

What a file holds is looked at only to see that it is there; nothing of it is told.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path

from service.config.secret_file import read_secret
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.doctor.finding import Finding, Matter


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
    def matter(self) -> Matter:
        """All of them."""
        return Matter("secrets", "files")

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One for each file, or more."""
        for path, is_token in secret_files(self.settings).items():
            # In a thread: a volume of the network may hang.
            facts = await asyncio.to_thread(read_secret_facts, path, self.root)
            matter = Matter(self.matter.check, str(path))
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


def secret_findings(matter: Matter, facts: SecretFacts, *, is_token: bool) -> Iterator[Finding]:
    """What the facts mean."""
    if facts.mode is None:
        yield matter.error(
            f"cannot be read: {facts.refusal}",
            "mount the secret, and let the sidecar's user or group read it (0440)",
        )
        return
    troubles = list(_troubles(matter, facts, is_token=is_token))
    yield from troubles or [matter.ok(f"can be read, and not by everybody ({facts.mode:04o})")]


def _troubles(matter: Matter, facts: SecretFacts, *, is_token: bool) -> Iterator[Finding]:
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
