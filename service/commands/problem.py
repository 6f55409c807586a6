"""What a sidecar refuses with (RFC 9457), as one of our errors.

Not for failures of single keys: those are outcomes of an answer.
"""

from lookup_core.errors import BackendError, ErrorCode, InvalidRequest, SidelookError

# {status: what it means without a code of ours}
PLAIN_CODES = {
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.UNAUTHORIZED,
    404: ErrorCode.UNKNOWN_DIMENSION,
    503: ErrorCode.OVERLOADED,
}


def problem(status: int, body: object) -> SidelookError:
    """The error for an answer that is none; `body` is its JSON value, whatever that is."""
    told = body if isinstance(body, dict) else {}
    code = _code(status, told.get("code"))
    detail = str(told.get("detail") or f"the sidecar answered with status {status}")
    return (InvalidRequest if status < 500 else BackendError)(code, detail)


def _code(status: int, name: object) -> ErrorCode:
    plain = ErrorCode.BAD_REQUEST if status < 500 else ErrorCode.INTERNAL
    known = {code.value: code for code in ErrorCode}
    return known.get(str(name), PLAIN_CODES.get(status, plain))
