"""Refusals, as one of our errors."""

import pytest

from lookup_core.errors import BackendError, ErrorCode, InvalidRequest, SidelookError
from service.commands.sidecar_client import GIVE_ANOTHER, GIVE_IT, USE_SOCKET, problem


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (404, InvalidRequest, ErrorCode.UNKNOWN_DIMENSION),
        (422, InvalidRequest, ErrorCode.UNKNOWN_COLUMN),
        (503, BackendError, ErrorCode.DRAINING),
        (500, BackendError, ErrorCode.INTERNAL),
    ],
)
def test_code_of_the_problem_counts(
    status: int, kind: type[SidelookError], code: ErrorCode
) -> None:
    """The sidecar's code and words are taken over."""
    error = problem(status, {"code": code.value, "detail": "because"})

    assert (type(error), error.code, error.detail) == (kind, code, "because")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ErrorCode.BAD_REQUEST),
        (401, ErrorCode.UNAUTHORIZED),
        (404, ErrorCode.UNKNOWN_DIMENSION),
        (502, ErrorCode.INTERNAL),
        (503, ErrorCode.OVERLOADED),
    ],
)
@pytest.mark.parametrize("body", [None, [], {}, {"code": "of_a_later_version"}, {"code": []}])
def test_status_counts_without_a_code(status: int, code: ErrorCode, body: object) -> None:
    """A refusal in another form is understood by its status."""
    error = problem(status, body)

    assert error.code is code
    assert error.detail.startswith(f"the sidecar answered with status {status}")


@pytest.mark.parametrize(
    ("detail", "has_token", "remedy"),
    [
        ("needs a token", False, GIVE_IT),
        ("needs a token", True, GIVE_ANOTHER),
        ("or set auth.admin_token_file", False, USE_SOCKET),
        ("or set auth.admin_token_file", True, USE_SOCKET),
    ],
)
def test_refusal_has_its_remedy(detail: str, *, has_token: bool, remedy: str) -> None:
    """A token, another token, or the socket where no token would help."""
    error = problem(401, {"detail": detail}, has_token=has_token)

    assert error.detail == f"{detail}; {remedy}"
