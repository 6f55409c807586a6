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


GIVE_IT = "give --token-file FILE"
GIVE_ANOTHER = (
    "the token of --token-file is not the one of its auth.token_file, or, where something is to "
    "change, of its auth.admin_token_file"
)
ADMIN_SETTING = "auth.admin_token_file"  # where a refusal names it, no token would help
USE_SOCKET = "the socket is chosen by --endpoint unix:///path"


def problem(status: int, body: object, *, has_token: bool = False) -> SidelookError:
    """The error for an answer that is none; `body` is its JSON value, whatever that is.

    A refusal has its remedy, which depends on whether a token was shown.
    """
    told = body if isinstance(body, dict) else {}
    code = _code(status, told.get("code"))
    detail = str(told.get("detail") or f"the sidecar answered with status {status}")
    if code is ErrorCode.UNAUTHORIZED:
        detail = f"{detail}; {_remedy(detail, has_token=has_token)}"
    return (InvalidRequest if status < 500 else BackendError)(code, detail)


def _remedy(detail: str, *, has_token: bool) -> str:
    if ADMIN_SETTING in detail:
        return USE_SOCKET
    return GIVE_ANOTHER if has_token else GIVE_IT


def _code(status: int, name: object) -> ErrorCode:
    plain = ErrorCode.BAD_REQUEST if status < 500 else ErrorCode.INTERNAL
    known = {code.value: code for code in ErrorCode}
    return known.get(str(name), PLAIN_CODES.get(status, plain))
