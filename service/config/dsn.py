"""PostgreSQL addresses, which may hold a password.

Checked without being shown: no message of this module holds a part of the address.
"""

from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, SecretStr

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
