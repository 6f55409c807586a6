"""Secrets: files of one line, and PostgreSQL addresses with passwords."""

import stat
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, SecretStr
from pydantic_core import PydanticCustomError

MISSING = "missing_file"  # error type of a missing file


def check_secret_file(path: Path) -> Path:
    """Return the path; raises ValueError unless the file is a protected, non-empty text."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} is not a file")
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            raise ValueError(
                f"{path} is readable or writable for all users; chmod o-rw it "
                "(a Kubernetes secret: defaultMode 0440)"
            )
        if not read_secret(path):
            raise ValueError(f"{path} is empty")
    except FileNotFoundError as error:
        context = {"path": str(path), "reason": error.strerror}
        raise PydanticCustomError(MISSING, "cannot read {path}: {reason}", context) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ValueError(f"cannot read {path}: {reason}") from error
    return path


def read_secret(path: Path) -> str:
    """Read a secret without the surrounding white space; raises OSError."""
    return path.read_text(encoding="utf-8").strip()


SecretFile = Annotated[Path, AfterValidator(check_secret_file)]


FORM = "not a PostgreSQL address, such as postgresql://user@host:5432/database"


def check_dsn(dsn: SecretStr) -> SecretStr:
    """Return the address; raises ValueError, without the address, for another form."""
    try:
        parts = urlsplit(dsn.get_secret_value())
    except ValueError:
        raise ValueError(FORM) from None  # the cause contains the address
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ValueError(FORM)
    return dsn


def holds_password(dsn: str) -> bool:
    """Return whether an address contains a password that is not empty."""
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return False  # a fault of its own
    return bool(parts.password or parse_qs(parts.query).get("password"))


Dsn = Annotated[SecretStr, AfterValidator(check_dsn)]
