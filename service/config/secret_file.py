"""Files that hold one secret each: tokens and addresses with a password.

A file is read each time that its secret is needed, so that a mounted secret may be rotated.
"""

import stat
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
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
