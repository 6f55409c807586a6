"""Texts of the error codes: where each occurs, its meaning, and its remedy.

Meaning and remedy are clauses of error messages, without a final stop.
"""

from dataclasses import dataclass

from lookup_core.compatibility import TextEnum

_REPORT = "update client and sidecar; if the error persists, report a defect"


class ErrorScope(TextEnum):
    """Where an error code occurs."""

    KEY = "a key"  # the other keys of the request have their answers
    BACKEND = "a query"  # for one or more keys, or for a dimension
    REQUEST = "a request"  # or a channel, which is refused
    STREAM = "a stream"  # whose connection is closed
    CLIENT = "the client"


@dataclass(frozen=True, slots=True)
class ErrorText:
    """Texts of one code."""

    scope: ErrorScope
    meaning: str
    remedy: str


_KEY, _BACKEND, _REQUEST = ErrorScope.KEY, ErrorScope.BACKEND, ErrorScope.REQUEST
_STREAM = ErrorScope.STREAM
ERROR_TEXTS = {  # {value of ErrorCode: texts}, in the order of its members
    "type": ErrorText(
        _KEY,
        "a key has another type than the dimension's key, or is out of range",
        "convert the key to the type of the dimension's key",
    ),
    "invalid_text": ErrorText(
        _KEY,
        "a key has a character that the database cannot store",
        "remove the character U+0000 from the key, and bytes that are not UTF-8",
    ),
    "key_too_large": ErrorText(
        _KEY,
        "a key exceeds the bytes that a channel may send at once",
        "shorten the key, or raise limits.memory",
    ),
    "key_rejected": ErrorText(
        _KEY,
        "the database refuses the value of a key",
        "correct the key; the dimension's recent_errors have the reason",
    ),
    "value_rejected": ErrorText(
        _KEY,
        "a value does not fit its column's type, or its encoding",
        "correct the value or the type; the dimension's recent_errors name the column",
    ),
    "row_too_large": ErrorText(
        _KEY,
        "the row of a key has more than limits.row_bytes",
        "raise limits.row_bytes (default 8 MiB, at most an eighth of limits.memory), or remove"
        " large columns from the dimension's columns",
    ),
    "ambiguous": ErrorText(
        _KEY,
        "a key has several rows",
        "remove duplicates and add a unique index, or set match: first or all, or versions",
    ),
    "timeout": ErrorText(
        _BACKEND,
        "no answer before the deadline",
        "check the database for overload and locks, or raise the timeout",
    ),
    "backend_unavailable": ErrorText(
        _BACKEND,
        "the database cannot be reached",
        "check that it runs; check its address, TLS and firewalls",
    ),
    "connection_lost": ErrorText(
        _BACKEND,
        "the connection to the database was lost",
        "check that it runs, and that no proxy or firewall cuts connections",
    ),
    "backend_auth": ErrorText(
        _BACKEND,
        "the database refused the sidecar's login",
        "correct user and password in the secret, or the server's access rules",
    ),
    "backend_rejected": ErrorText(
        _BACKEND, "the database refused the query", "see the log of the backend"
    ),
    "table_unavailable": ErrorText(
        _BACKEND,
        "the table is missing, or unsuitable for lookups",
        "create or correct the table, or correct the configuration",
    ),
    "schema_changed": ErrorText(
        _BACKEND,
        "the schema of the table changed during the lookup",
        "restart the job if a column was removed, renamed or retyped, or send a new request; an"
        " added column needs nothing",
    ),
    "forbidden": ErrorText(
        _BACKEND,
        "the sidecar's role may not read the table",
        "grant SELECT on the table to the sidecar's role",
    ),
    "bad_json": ErrorText(
        _REQUEST, "the body is not JSON", "correct the body at the position in the detail"
    ),
    "bad_request": ErrorText(
        _REQUEST,
        "a member, parameter or option has an invalid value",
        "correct the value that the detail names",
    ),
    "bad_arrow": ErrorText(
        _REQUEST,
        "the body is not an Arrow stream of plain record batches",
        "send one complete stream with the columns of the key",
    ),
    "unknown_dimension": ErrorText(
        _REQUEST,
        "the configuration has no dimension of this name",
        "correct the name, or add the dimension to the configuration",
    ),
    "unknown_column": ErrorText(
        _REQUEST,
        "the dimension or the DataFrame has no column of this name",
        "correct the name; the detail has the nearest one",
    ),
    "key_type": ErrorText(
        _REQUEST,
        "a key column has a type that the dimension's key does not take",
        "cast the column to the type in the detail",
    ),
    "too_many_keys": ErrorText(
        _REQUEST,
        "a request has more keys than limits.request_keys",
        "send fewer keys in a request, or raise the limit",
    ),
    "answer_too_large": ErrorText(
        _REQUEST,
        "the answer has too many bytes",
        "look up fewer keys or fewer columns at once",
    ),
    "unauthorized": ErrorText(
        _REQUEST,
        "the token is missing or invalid",
        "send the token of auth.token_file, or for changes that of auth.admin_token_file",
    ),
    "overloaded": ErrorText(
        _REQUEST,
        "the sidecar is at a limit of keys, requests, channels or memory",
        "try again later; if the error persists, raise the limit in the detail",
    ),
    "draining": ErrorText(_REQUEST, "the sidecar shuts down", "connect again later"),
    "internal": ErrorText(
        _REQUEST, "a defect of the sidecar or the client", "see the log of the sidecar"
    ),
    "bad_frame": ErrorText(_STREAM, "a frame is malformed", _REPORT),
    "unsupported_version": ErrorText(
        _STREAM,
        "client and sidecar have no version of the protocol in common",
        "update the older one",
    ),
    "credit_violation": ErrorText(_STREAM, "the client sent more than its credit", _REPORT),
    "seq_gap": ErrorText(_STREAM, "the sequence numbers of a channel have a gap", _REPORT),
    "unknown_channel": ErrorText(_STREAM, "a frame names a channel that is not open", _REPORT),
    "sidecar_unreachable": ErrorText(
        ErrorScope.CLIENT,
        "no sidecar responds at the endpoint",
        "start the sidecar, or correct the endpoint",
    ),
}
