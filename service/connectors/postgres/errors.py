"""Mapping of errors of PostgreSQL, asyncpg and the network to BackendError.

Messages are fixed texts: a server's message and DETAIL may hold values of rows and keys. They stay
in the chained exception, for debug logs only.
"""

import errno
import os
import re
import shlex
import socket
import ssl
import traceback
from collections.abc import Iterator
from configparser import Error as ConfigParserError
from contextlib import contextmanager

import asyncpg

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.column_values import INVALID_TEXT

ISOLATION = "default_transaction_isolation"

# A parameter of this name does not exist: the error of the server names it.
HIDDEN_ROWS = "sidelook.row_security_hides_rows"

_POOLER = "behind PgBouncer, set pgbouncer: true"
_SEE_LOG = "see the log of the server"
_MALFORMED = (
    "the DSN, its service or password file, or a variable such as PGHOST is malformed; write "
    "postgresql://user@host:port/database"
)
_FILE = "a file of the DSN, or of ~/.postgresql,"
_FILE_FAULTS: dict[type, str] = {
    FileNotFoundError: "does not exist",
    IsADirectoryError: "is a folder",  # as container runtimes mount a file that does not exist
    PermissionError: "may not be read",
}
_FILE_REMEDY = "grant this user the file, or name others by sslcert, sslkey and sslrootcert"
_ROW_FAULT = "its SQL failed for a row of this batch of keys"
_ROW_REMEDY = "correct the SQL of its view, source.query or source.where"


_ENDED = "the server ended the session at its {0}; run ALTER ROLE … SET {0} = 0"

# {SQLSTATE, or its class (the first two digits): code and reason}; PostgreSQL manual, Appendix A
_STATES: dict[str, tuple[ErrorCode, str]] = {
    "08": (ErrorCode.BACKEND_UNAVAILABLE, "the connection was lost"),
    "08P01": (ErrorCode.BACKEND_UNAVAILABLE, "the server or its pooler broke the protocol"),
    "0A": (ErrorCode.SCHEMA_CHANGED, "the table changed since its schema was read"),
    "21": (ErrorCode.KEY_REJECTED, _ROW_FAULT),  # several rows of a scalar subquery
    "22": (ErrorCode.KEY_REJECTED, "the server refused a value of this batch of keys"),
    # Never a key: its texts are UTF-8 without NUL.
    "22021": (ErrorCode.VALUE_REJECTED, INVALID_TEXT),
    "25006": (
        ErrorCode.BACKEND_REJECTED,
        "its SQL writes, and sessions are read-only; remove FOR UPDATE and functions that write",
    ),
    "25P03": (ErrorCode.CONNECTION_LOST, _ENDED.format("idle_in_transaction_session_timeout")),
    "25P04": (ErrorCode.CONNECTION_LOST, _ENDED.format("transaction_timeout")),
    "26": (ErrorCode.BACKEND_REJECTED, f"a prepared statement is missing; {_POOLER}"),
    "28": (ErrorCode.BACKEND_AUTH, "the server refused the role of the DSN"),
    "28P01": (ErrorCode.BACKEND_AUTH, "the server refused the password of the DSN, or it has none"),
    "3F": (ErrorCode.SCHEMA_CHANGED, "the schema of the table does not exist; correct its name"),
    "40": (ErrorCode.BACKEND_UNAVAILABLE, "the server aborted the query in favor of others"),
    "42": (ErrorCode.SCHEMA_CHANGED, "the table or a column changed since its schema was read"),
    "42501": (ErrorCode.FORBIDDEN, "the role of the DSN may not read the table"),
    "42P05": (ErrorCode.BACKEND_REJECTED, f"a prepared statement exists already; {_POOLER}"),
    "53": (ErrorCode.BACKEND_UNAVAILABLE, f"the server lacks memory or disk; {_SEE_LOG}"),
    "53300": (
        ErrorCode.BACKEND_UNAVAILABLE,
        (
            "the server has too many connections; lower limits.database_connections, or raise the "
            "limit of the server, role or database"
        ),
    ),
    "53400": (
        ErrorCode.BACKEND_UNAVAILABLE,
        "a limit of the role or server is exceeded, such as temp_file_limit; raise it",
    ),
    # A value has at most 1 GB; a refused batch of keys is split, and each half has fewer rows.
    "54": (ErrorCode.KEY_REJECTED, "the rows of this batch of keys are too large for one answer"),
    "55": (ErrorCode.BACKEND_UNAVAILABLE, "the table is locked or not ready; see pg_locks"),
    "55000": (
        ErrorCode.BACKEND_UNAVAILABLE,
        (
            "the table is not ready; refresh a materialized view without data, or run "
            "ALTER ROLE … RESET restrict_nonsystem_relation_kind if the role may read no views"
        ),
    ),
    "55P03": (
        ErrorCode.BACKEND_UNAVAILABLE,
        (
            "the table is locked for longer than lock_timeout; see pg_locks, or run "
            "ALTER ROLE … SET lock_timeout = 0"
        ),
    ),
    "57": (ErrorCode.BACKEND_UNAVAILABLE, "the server is starting or stopping; wait for it"),
    "57014": (ErrorCode.TIMEOUT, "the server ended the query at its statement timeout"),
    "57P05": (ErrorCode.CONNECTION_LOST, _ENDED.format("idle_session_timeout")),
    "58": (ErrorCode.BACKEND_UNAVAILABLE, f"the server has a system error; {_SEE_LOG}"),
    "HV": (
        ErrorCode.BACKEND_UNAVAILABLE,
        "the server of a foreign table failed; check it, and its user mapping",
    ),
    "P0": (ErrorCode.KEY_REJECTED, _ROW_FAULT),  # RAISE of a function
    "XX": (ErrorCode.BACKEND_UNAVAILABLE, f"the server has an internal error; {_SEE_LOG}"),
}
_OTHER_STATE = (ErrorCode.BACKEND_REJECTED, f"the server refused the query; {_SEE_LOG}")

# Classes of SQLSTATE: not supported, invalid value, not in a read-only transaction, wrong syntax or
# name.
_OF_STATEMENTS = frozenset({"0A", "22", "25", "42"})
_NO_RIGHT = "42501"
_UNGIVEN_PARAMETER = "0 were passed"  # by asyncpg, before it sends anything

# Functions of the server whose messages have the names of objects only, as "permission denied for
# table a".
_REFUSING = frozenset({"aclcheck_error", "aclcheck_error_col"})
_HIDING = "check_enable_rls"
_HIDDEN = "row-level security hides rows from the role of the DSN, in it or in a table below it"
# The function of the server that refuses a serializable transaction on a standby.
_SERIALIZING = "GetSerializableTransactionSnapshot"
_SERIALIZABLE = (
    f"a standby refuses serializable transactions; run ALTER ROLE … SET {ISOLATION} = "
    "'read committed'"
)
# Errors of the parser of names, for a text that is no name of a table; SQLSTATE and function.
_INVALID_NAMES = frozenset({"42601", "42602"})
_OF_OTHER_DATABASE = "RangeVarGetRelidExtended"

# The function of postgres_fdw that repeats errors of its server, and what they mean: another schema
# there is not that of the table here. Messages of these classes have the names of objects.
_OF_FOREIGN = "pgfdw_report"
_FOREIGN = {
    ErrorCode.SCHEMA_CHANGED: (
        ErrorCode.BACKEND_REJECTED,
        "the table of the foreign server does not fit the foreign table; alter one of them",
    ),
    ErrorCode.FORBIDDEN: (
        ErrorCode.FORBIDDEN,
        "the role of the user mapping may not read the table of the foreign server",
    ),
}

# {class: reason}; the nearest base class applies, and the code is `backend_unavailable`
_CONNECT_REASONS: dict[type[BaseException], str] = {
    socket.gaierror: "the host name of the DSN does not resolve; correct it, or the name server",
    ConnectionRefusedError: "nothing listens at the address of the DSN",
    FileNotFoundError: "the Unix socket of the DSN does not exist",
    PermissionError: "the Unix socket of the DSN may not be opened; allow it to the sidecar's user",
    ssl.SSLError: "TLS failed",
    ConnectionResetError: "the connection was lost",
    ConnectionError: "the server does not offer TLS, or closed the connection",
    TimeoutError: "the connection attempt timed out",
    OSError: "the address of the DSN cannot be reached",
    asyncpg.TargetServerAttributeNotMatched: (
        "no server has the session attributes of the DSN; correct target_session_attrs or the hosts"
    ),
    asyncpg.ProtocolError: (
        "the server at the address of the DSN does not speak PostgreSQL; correct host and port"
    ),
    asyncpg.InternalClientError: "the state of the connection is invalid",
    asyncpg.ClientConfigurationError: _MALFORMED,
    asyncpg.InterfaceError: "the connection was lost",
    ValueError: _MALFORMED,
}
_MAPPED = (
    *(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError),
    *(OSError, ValueError),
)


# Of a parameter at the start of a session: its value, right, name, SQL of `options`, or time.
_OF_PARAMETERS = frozenset({"22023", "42501", "42601", "42704", "55P02"})
_CONNECT_RIGHT = "CheckMyDatabase"  # the function that reports its lack, also with 42501
_UNSUPPORTED = "unsupported startup parameter"  # PgBouncer's message, in one language
# The message quotes the name as the server's language does; PgBouncer puts it at the end.
_QUOTED_NAME = re.compile(r"""["«»„“]\s?([^"«»„“”]+?)\s?["«»“”]|: (\S+)$""")


class RefusedParameterError(asyncpg.InterfaceError):
    """The server refused a parameter of the session; the text names it."""


class PoolerParameterError(RefusedParameterError):
    """PgBouncer refused a parameter of the session, perhaps one of the sidecar's own."""


class MalformedAddressError(asyncpg.InterfaceError):
    """asyncpg cannot tell where to connect, or as whom; the text names what it read."""


@contextmanager
def mapped_parameters() -> Iterator[None]:
    """Raise the error above, chained, if an attempt to connect fails for a parameter or address."""
    try:
        yield
    except KeyError as error:  # the list of users lacks it
        text = f"the DSN has no user, and uid {os.getuid()} has no name; write a user into the DSN"
        raise MalformedAddressError(text) from error
    except (UnicodeError, LookupError, ConfigParserError) as error:
        raise MalformedAddressError(_MALFORMED) from error
    except asyncpg.PostgresError as error:
        message = str(error.args[0])
        name = _quoted_name(message)
        known = f"the parameter {name!r}" if name else "a parameter"
        if message.startswith(_UNSUPPORTED):
            remedy = "set pgbouncer: true, or remove it from the DSN"
            text = f"the pooler refuses {known} of the session; {remedy}"
            raise PoolerParameterError(text) from error
        if error.sqlstate in _OF_PARAMETERS and error.server_source_function != _CONNECT_RIGHT:
            text = f"the server refuses {known} of the session; correct or remove it in the DSN"
            raise RefusedParameterError(text) from error
        raise


@contextmanager
def mapped_errors(table: str, *, sends_keys: bool = True) -> Iterator[None]:
    """Raise BackendError, chained, for every error of a query or a connection attempt."""
    try:
        yield
    except _MAPPED as error:
        code, reason = explained(error)
        if code is ErrorCode.KEY_REJECTED and not sends_keys:
            kind = f"{type(error).__name__}, SQLSTATE {getattr(error, 'sqlstate', '')}"
            code, reason = (
                ErrorCode.BACKEND_REJECTED,
                f"a row cannot be read ({kind}); {_ROW_REMEDY}",
            )
        # They need another DSN, or a person who creates the database.
        is_permanent = isinstance(error, (asyncpg.InvalidCatalogNameError, RefusedParameterError))
        raise BackendError(code, f"{table}: {reason}", is_permanent=is_permanent) from error


def statement_fault(error: BackendError) -> str | None:
    """The server's message on SQL of the configuration that it refused; None for other errors.

    For statements that read no row: their messages quote only the statement.
    """
    cause = error.__cause__
    if isinstance(cause, asyncpg.PostgresError) and cause.sqlstate[:2] in _OF_STATEMENTS:
        return None if cause.sqlstate == _NO_RIGHT else str(cause.args[0])
    if isinstance(cause, asyncpg.InterfaceError) and _UNGIVEN_PARAMETER in str(cause):
        return "it has a parameter, such as $1, instead of a value"
    return None


def own_statement_fault(error: BackendError) -> BackendError:
    """The error of a statement of the sidecar's own on the catalog, which names its cause.

    The relation of the configuration is not at fault. Such statements read no row of it, so that
    the server's message has names of objects only.
    """
    cause = error.__cause__
    if not isinstance(cause, asyncpg.PostgresError) or cause.sqlstate[:2] not in _OF_STATEMENTS:
        return error
    if cause.server_source_function == _SERIALIZING:
        return error
    table = error.detail.partition(": ")[0]
    reason = f"the server refused a query of its catalog: {cause.args[0]} ({cause.sqlstate})"
    code = ErrorCode.FORBIDDEN if cause.sqlstate == _NO_RIGHT else ErrorCode.BACKEND_REJECTED
    return BackendError(code, f"{table}: {reason}")


@contextmanager
def own_statements() -> Iterator[None]:
    """Raise the errors of `own_statement_fault`."""
    try:
        yield
    except BackendError as error:
        raise own_statement_fault(error) from error.__cause__


def is_invalid_name(error: BackendError) -> bool:
    """Whether the server cannot read a text as the name of a table of this database."""
    cause = error.__cause__
    if not isinstance(cause, asyncpg.PostgresError):
        return False
    is_elsewhere = cause.server_source_function == _OF_OTHER_DATABASE
    return cause.sqlstate in _INVALID_NAMES or (cause.sqlstate == "0A000" and is_elsewhere)


def is_untranslatable(error: BackendError) -> bool:
    """Whether a text of a key or of a row lacks an equal in the encoding of the other side."""
    return isinstance(error.__cause__, asyncpg.UntranslatableCharacterError)


def explained(error: BaseException) -> tuple[ErrorCode, str]:
    """The code and the reason of an exception of asyncpg or the network."""
    match error:
        case asyncpg.InvalidCatalogNameError():
            return ErrorCode.BACKEND_UNAVAILABLE, _missing_database(str(error))
        case asyncpg.PostgresError(sqlstate=str(state)):
            code, reason = _STATES.get(state) or _STATES.get(state[:2], _OTHER_STATE)
            if code in _FOREIGN and (error.server_source_function or "").startswith(_OF_FOREIGN):
                return _FOREIGN[code][0], f"{_FOREIGN[code][1]}: {error.args[0]}"
            return _of_session(error) or (code, _missing_right(error) or reason)
        case asyncpg.OutdatedSchemaCacheError():
            return _STATES["0A"]
        case UnicodeError():
            return ErrorCode.VALUE_REJECTED, INVALID_TEXT
    is_refused = isinstance(error, RefusedParameterError)
    code = ErrorCode.BACKEND_REJECTED if is_refused else ErrorCode.BACKEND_UNAVAILABLE
    return code, _connect_reason(error)


def _connect_reason(error: BaseException) -> str:
    match error:
        case RefusedParameterError() | MalformedAddressError():
            return str(error)
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "this machine has no free port for the connection; close others"
        case OSError() if type(error) in _FILE_FAULTS and not _is_of_socket(error):
            return f"{error.filename or _FILE} {_FILE_FAULTS[type(error)]}; {_FILE_REMEDY}"
        case asyncpg.ClientConfigurationError() if "certificate file" in str(error):
            return f"{error}; {_FILE_REMEDY}"
    reasons = (_CONNECT_REASONS.get(kind) for kind in type(error).__mro__)
    return next((reason for reason in reasons if reason), "the connection failed")


def _is_of_socket(error: BaseException) -> bool:
    """Whether the error is of a Unix socket, and not of a file that asyncpg reads before."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code.co_name == "create_unix_connection" for frame, _ in frames)


def _of_session(error: asyncpg.PostgresError) -> tuple[ErrorCode, str] | None:
    """The code and the reason of an error by settings of the session; None for others."""
    if error.server_source_function == _SERIALIZING:
        return ErrorCode.BACKEND_REJECTED, _SERIALIZABLE
    if isinstance(error, asyncpg.UndefinedObjectError) and HIDDEN_ROWS in str(error.args[0]):
        return ErrorCode.FORBIDDEN, _HIDDEN
    return None


def _missing_right(error: asyncpg.PostgresError) -> str | None:
    """The reason with the object that may not be read; None if a message may have values."""
    function = error.server_source_function
    if function == _HIDING:
        return _HIDDEN
    if function in _REFUSING:
        return f"{_STATES[_NO_RIGHT][1]}: {error.args[0]}"
    return None


def _quoted_name(message: str) -> str:
    """The first name, for messages on the DSN: no value of a row; empty without a name."""
    found = _QUOTED_NAME.search(message)
    return "" if found is None else found[1] or found[2]


def _missing_database(message: str) -> str:
    name = _quoted_name(message)
    known = f"the database {name!r} of the DSN" if name else "the database of the DSN"
    create = f"createdb {shlex.quote(name)}" if name else "createdb"
    return f"{known} does not exist; create it ({create}), or correct the name in the DSN"
