"""Secrets: files of one line, and PostgreSQL addresses with passwords."""

import stat
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, SecretStr
from pydantic_core import PydanticCustomError

MISSING = "missing_file"  # the type of the error for a file that is not there


def check_secret_file(path: Path) -> Path:
    """The same path; raises ValueError unless it holds a secret that is not for everybody."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} is not a file")
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            raise ValueError(
                f"{path} may be read or written by everybody; chmod o-rw it "
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
    """What the file holds now, without the white space around it; raises OSError."""
    return path.read_text(encoding="utf-8").strip()


SecretFile = Annotated[Path, AfterValidator(check_secret_file)]


FORM = "not a PostgreSQL address, such as postgresql://user@host:5432/database"


def check_dsn(dsn: SecretStr) -> SecretStr:
    """The same address; raises ValueError, without showing it, if it is none."""
    try:
        parts = urlsplit(dsn.get_secret_value())
    except ValueError:
        raise ValueError(FORM) from None  # the cause would show the address
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ValueError(FORM)
    return dsn


def holds_password(dsn: str) -> bool:
    """Whether the address holds a password; an empty one is none."""
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return False  # no address at all, which is a fault of its own
    return bool(parts.password or parse_qs(parts.query).get("password"))


Dsn = Annotated[SecretStr, AfterValidator(check_dsn)]
