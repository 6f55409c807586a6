"""PostgreSQL addresses, with their passwords, and texts for SQL."""

import os
import re
import stat
from collections.abc import Collection, Mapping
from configparser import ConfigParser
from configparser import Error as ParsingFault
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from pydantic import AfterValidator, SecretStr

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
HOST_TWICE = (
    "has host or port also as a parameter; write them once, as host:port before the database"
)
LOGIN_TWICE = (
    "has user, password or database before the ? and as a parameter; write each once (a / before "
    "the ? is a database)"
)
TWICE = "has {} twice; write it once"
PORTS = "has another number of ports than of hosts; write one port for each host"
PASSFILE = (
    "has a passfile that is no file, or that other users may use: it would be ignored; chmod 0600 "
    "it, or use dsn_file"
)
PARAMETERS = "has parameters in another form than ?name=value&name=value"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]|%00")
_HOST = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(?::(.*))?")
_TLS_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_CHOICES = {  # {parameter: its values}
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "gsslib": ("gssapi",),
    "client_encoding": ("utf8", "utf-8", "UTF-8", "UTF8"),
    "ssl_min_protocol_version": _TLS_VERSIONS,
    "ssl_max_protocol_version": _TLS_VERSIONS,
    "target_session_attrs": (
        *("any", "primary", "standby", "read-write", "read-only", "prefer-standby"),
    ),
}
_LIBPQ_ONLY = {  # {remedy: parameters of libpq that asyncpg would send to the server as settings}
    "remove it: the timeout of a dimension ends a query on a dead connection": (
        *("keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval"),
        "tcp_user_timeout",
    ),
    "remove it; sslmode=verify-full authenticates the server": (
        *("channel_binding", "gssdelegation", "gssencmode", "requirepeer", "require_auth"),
    ),
    "remove it; a password is read from dsn_file or passfile": (
        *("scram_client_key", "scram_server_key", "oauth_issuer", "oauth_client_id"),
        *("oauth_client_secret", "oauth_scope"),
    ),
    "set sslmode=require": ("requiressl", "ssl"),
    "set sslcrl, the file of all lists": ("sslcrldir",),
    "set sslcert": ("sslcertmode",),
    "set the environment variable SSLKEYLOGFILE": ("sslkeylogfile",),
    "set the environment variable PGSERVICEFILE": ("servicefile",),
    "write the address in place of the host": ("hostaddr",),
    "remove it: hosts are tried in the order of the address": ("load_balance_hosts",),
    "remove it: sessions are named sidelook": ("fallback_application_name",),
    "remove it: it has no effect here": (
        *("authtype", "max_protocol_version", "min_protocol_version", "replication"),
        *("sslcompression", "sslsni", "tty"),
    ),
}
_REMEDIES = {name: remedy for remedy, names in _LIBPQ_ONLY.items() for name in names}
_CONNECT_TIMEOUT = "connect_timeout"
_PASSWORDS = {"password", "sslpassword"}  # parameters
_MAX_CONNECT_TIMEOUT_S = 600
# They change where a session goes, or what it reads.
_IGNORED_OF_SERVICES = frozenset({"hostaddr", "options", "require_auth"})
_IGNORED_VARIABLES = {  # {variable: the parameter}
    "PGHOSTADDR": "a host",
    "PGOPTIONS": "options",
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
    fault = _hosts_fault(hosts) or _parameters_fault(parts, has_hosts=bool(hosts))
    if fault is not None:
        raise ValueError(fault)
    return dsn


def _variables_fault() -> str | None:
    for name, parameter in _IGNORED_VARIABLES.items():
        if os.environ.get(name):
            return f"would ignore {name}, which only libpq reads; unset it, and write {parameter}"
    return None


def _hosts_fault(hosts: str) -> str | None:
    found = [_HOST.fullmatch(host) for host in hosts.split(",")] if hosts else []
    read = [host for host in found if host is not None]
    if len(read) < len(found) or not all(_is_name(unquote(host[1])) for host in read):
        return HOST
    if len(read) > 1 and any(host[1].isdecimal() for host in read):  # ports, as in a,b:1,2
        return HOST
    return None if all(_is_port(host[2]) for host in read if host[2]) else PORT


def _is_name(host: str) -> bool:
    """Whether a host name has no empty label, nor one of over 63 characters."""
    if host.startswith(("/", "[")):  # the folder of a socket, or an IPv6 address
        return True
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _parameters_fault(address: SplitResult, *, has_hosts: bool) -> str | None:
    try:
        parsed = parse_qs(address.query, strict_parsing=True) if address.query else {}
    except ValueError:
        return PARAMETERS
    for name, values in parsed.items():
        if len(values) > 1:
            return TWICE.format(name)
    parameters = {name: value for name, (value,) in parsed.items()}
    if _names_twice(address, parameters.keys()):
        return LOGIN_TWICE
    return _places_fault(parameters, has_hosts=has_hosts) or _settings_fault(parameters)


def _names_twice(address: SplitResult, parameters: Collection[str]) -> bool:
    """Whether asyncpg would ignore one of two users, passwords or databases."""
    has_database = bool(address.path)  # asyncpg takes "/" for a database without a name
    databases = [has_database, "dbname" in parameters, "database" in parameters]
    has_user = bool(address.username) and "user" in parameters
    has_password = bool(address.password) and "password" in parameters
    return databases.count(True) > 1 or has_user or has_password


def _places_fault(parameters: Mapping[str, str], *, has_hosts: bool) -> str | None:
    ports = parameters.get("port", "1").split(",")
    if not all(map(_is_port, ports)):
        return PORT
    if has_hosts and not parameters.keys().isdisjoint({"host", "port"}):
        return HOST_TWICE  # asyncpg would ignore the parameters
    hosts = parameters.get("host", "").split(",")
    if 1 != len(ports) != len(hosts):
        return PORTS
    names = [host for host in hosts if not host.startswith("/")]  # others are folders
    return _hosts_fault(",".join(names) if len(hosts) > 1 else "".join(names))


def _settings_fault(parameters: Mapping[str, str]) -> str | None:
    for name in parameters:
        if remedy := _REMEDIES.get(name.lower()):
            return f"has {name.lower()}, which only libpq supports; {remedy}"
    for name, values in _CHOICES.items():
        if parameters.get(name, values[-1]) not in values:
            choices = " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))
            return f"has an unknown {name}; set {choices}"
    fault = _tls_fault(parameters) or _timeout_fault(parameters) or _files_fault(parameters)
    return fault or _variables_fault()


def _tls_fault(parameters: Mapping[str, str]) -> str | None:
    if parameters.get("sslrootcert") == "system":
        return "has sslrootcert=system, which only libpq supports; name the file of the authorities"
    is_encrypted = parameters.get("sslmode") in {"require", "verify-ca", "verify-full"}
    if parameters.get("sslnegotiation") == "direct" and not is_encrypted:
        return "has sslnegotiation=direct, which needs sslmode require, verify-ca or verify-full"
    return None


def _timeout_fault(parameters: Mapping[str, str]) -> str | None:
    text = parameters.get(_CONNECT_TIMEOUT, "1")
    if re.fullmatch("[1-9][0-9]{0,2}", text) and int(text) <= _MAX_CONNECT_TIMEOUT_S:
        return None
    return (
        f"has an unknown {_CONNECT_TIMEOUT}; set whole seconds from 1 to {_MAX_CONNECT_TIMEOUT_S}"
    )


def _files_fault(parameters: Mapping[str, str]) -> str | None:
    """The fault of a file that asyncpg would ignore, and then use another server or password."""
    passfile = parameters.get("passfile")
    if passfile is not None and not _is_private(Path(passfile)):
        return PASSFILE
    service = parameters.get("service")
    return None if service is None else _service_fault(service)


def _is_private(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and not mode & (stat.S_IRWXG | stat.S_IRWXO)


def _service_fault(name: str) -> str | None:
    file = os.environ.get("PGSERVICEFILE") or os.path.expanduser("~/.pg_service.conf")  # noqa: PTH111  without a home it stays as it is
    services = ConfigParser()
    try:
        found = services.read(file)
        is_known = bool(found) and services.has_section(name) and bool(dict(services[name]))
    except (OSError, ValueError, ParsingFault) as error:
        return f"has a service, but {file} is malformed ({type(error).__name__}); write %% for %"
    if is_known:
        return _ignored_fault(services[name].keys())
    gap = "" if found else " (no such file, or it may not be read)"
    return f"has a service that {file} does not have{gap}; correct its name, or set PGSERVICEFILE"


def _ignored_fault(parameters: Collection[str]) -> str | None:
    """The fault of parameters of a service that asyncpg ignores."""
    if ignored := ", ".join(sorted(_IGNORED_OF_SERVICES.intersection(parameters))):
        return f"has a service with {ignored}, which only libpq reads there; write it into the DSN"
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
    parameters = {name.lower() for name in parse_qs(parts.query)}  # also misspelt, it is a secret
    return bool(parts.password) or not parameters.isdisjoint(_PASSWORDS)


Dsn = Annotated[SecretStr, AfterValidator(check_dsn)]
SqlText = Annotated[str, AfterValidator(check_no_nul)]
