"""Files of secrets, such as tokens of one line."""

import stat
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from lookup_core.bearer_token import FORM as TOKEN_FORM
from lookup_core.bearer_token import parse_token
from service.config.section import FilePath
from service.file_identity import read_regular_file, read_secret

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


def check_token_file(path: Path) -> Path:
    """Return the path; raises ValueError unless the file is a token that a header can carry."""
    try:
        parse_token(read_regular_file(path))
    except ValueError as error:
        raise ValueError(f"{path} {error}; {TOKEN_FORM}") from error
    return path


SecretFile = Annotated[FilePath, AfterValidator(check_secret_file)]
OneLineSecret = Annotated[SecretFile, AfterValidator(check_token_file)]
