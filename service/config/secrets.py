"""Secrets: files of one line, and PostgreSQL addresses with passwords."""

import re
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


ONE_LINE = (
    "has a line break, a control character, or white space at its ends; write one address in one "
    "line"
)
ESCAPED = (
    "has one of / ? # @ [ ] within the user, the password or the database; write %2F %3F %23 %40 "
    "%5B %5D instead"
)
HOST = "has an empty or faulty host; write host:5432, and several as host1:5432,host2:5432"
PORT = "has a port that is no number from 1 to 65535; write host:5432"
PARAMETERS = "has parameters in another form than ?name=value&name=value"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]|%00")
_HOST = re.compile(r"(?:\[[^\[\]]+\]|[^:\[\]]+)(?::(.*))?")
_TLS_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_CHOICES = {  # {parameter: its values}
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "ssl_min_protocol_version": _TLS_VERSIONS,
    "ssl_max_protocol_version": _TLS_VERSIONS,
    "target_session_attrs": (
        *("any", "primary", "standby", "read-write", "read-only", "prefer-standby"),
    ),
}


def check_dsn(dsn: SecretStr) -> SecretStr:
    """Return the address; raises ValueError, without any part of the address, for a fault."""
    text = dsn.get_secret_value()
    if text != text.strip() or _CONTROL.search(text):
        raise ValueError(ONE_LINE)  # `urlsplit` would join the lines
    try:
        parts = urlsplit(text)
    except ValueError:  # the cause contains the address
        raise ValueError(ESCAPED if re.search(r"[\[\]].*@", text) else FORM) from None
    if parts.scheme not in {"postgres", "postgresql"} or not text.partition(":")[2].startswith(
        "//"
    ):
        raise ValueError(FORM)
    login, _, hosts = parts.netloc.rpartition("@")
    is_cut = not login and "@" in parts.query and "user=" not in parts.query  # by a ?
    if "#" in text or "@" in login or "@" in parts.path or is_cut:
        raise ValueError(ESCAPED)
    fault = _hosts_fault(hosts) or _parameters_fault(parts.query)
    if fault is not None:
        raise ValueError(fault)
    return dsn


def _hosts_fault(hosts: str) -> str | None:
    found = [_HOST.fullmatch(host) for host in hosts.split(",")] if hosts else []
    if not all(found):
        return HOST
    ports = [host[1] for host in found if host is not None and host[1]]
    return None if all(map(_is_port, ports)) else PORT


def _parameters_fault(query: str) -> str | None:
    try:
        parameters = parse_qs(query, strict_parsing=True) if query else {}
    except ValueError:
        return PARAMETERS
    if "port" in parameters and not all(map(_is_port, parameters["port"][-1].split(","))):
        return PORT
    for name, values in _CHOICES.items():
        if parameters.get(name, values)[-1] not in values:
            return f"has an unknown {name}; set {', '.join(values[:-1])} or {values[-1]}"
    return None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text[:9]) < 65_536


def check_no_nul(text: str) -> str:
    """Return the text; raises ValueError if it has a NUL character."""
    if "\0" in text:
        raise ValueError("has a NUL character, which PostgreSQL does not accept; remove it")
    return text


def holds_password(dsn: str) -> bool:
    """Return whether an address contains a password that is not empty."""
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return False  # a fault of its own
    return bool(parts.password or parse_qs(parts.query).get("password"))


Dsn = Annotated[SecretStr, AfterValidator(check_dsn)]
SqlText = Annotated[str, AfterValidator(check_no_nul)]
