"""The error tree: one root, a code and a detail each, and whether another try may help."""

import pickle

import pytest

from lookup_core.errors import (
    BackendError,
    ConfigurationError,
    ErrorCode,
    InvalidRequest,
    LookupFailed,
    Overloaded,
    ProtocolViolation,
    SidecarUnreachable,
    SidelookError,
)


@pytest.mark.parametrize("kind", [InvalidRequest, BackendError, LookupFailed])
def test_error_keeps_code_and_detail(kind: type[SidelookError]) -> None:
    """An error has its fields; the message is made of them."""
    error = kind(ErrorCode.FORBIDDEN, "no right to read customers")

    assert (error.code, error.detail) == (ErrorCode.FORBIDDEN, "no right to read customers")
    assert str(error) == "forbidden: no right to read customers"


def test_whole_tree_has_one_root() -> None:
    """Whoever catches the root catches every error of ours, and there are few classes of them."""
    classes = SidelookError.__subclasses__()

    assert {kind.__name__ for kind in classes} == {
        "BackendError",
        "ConfigurationError",
        "InvalidRequest",
        "LookupFailed",
        "Overloaded",
        "ProtocolViolation",
        "SidecarUnreachable",
    }
    assert all(not kind.__subclasses__() for kind in classes)


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest(ErrorCode.FORBIDDEN, "no right"),
        Overloaded(ErrorCode.OVERLOADED, "full", retry_after_s=2.5),
        BackendError(ErrorCode.TIMEOUT, "late"),
        ProtocolViolation(ErrorCode.BAD_FRAME, "odd", offset=4),
        ConfigurationError(["listen: missing", "limits: odd"]),
        LookupFailed(ErrorCode.INTERNAL, "three keys"),
        SidecarUnreachable("unix:///run/sidelook.sock", "nobody listens"),
    ],
)
def test_errors_cross_processes(error: SidelookError) -> None:
    """Spark's worker pickles what ends a task: type, message and fields are the same behind it."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own bytes

    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_only_passing_troubles_are_retryable() -> None:
    """Another try may help where time heals, and only there."""
    retryable = {code for code in ErrorCode if code.is_retryable}

    assert retryable == {
        ErrorCode.TIMEOUT,
        ErrorCode.BACKEND_UNAVAILABLE,
        ErrorCode.CONNECTION_LOST,
        ErrorCode.BACKEND_AUTH,
        ErrorCode.TABLE_UNAVAILABLE,
        ErrorCode.OVERLOADED,
        ErrorCode.DRAINING,
    }


@pytest.mark.parametrize("code", [ErrorCode.TIMEOUT, ErrorCode.TYPE])
def test_error_is_retryable_as_its_code(code: ErrorCode) -> None:
    """The code alone decides whether an error may be tried again."""
    assert BackendError(code, "…").is_retryable is code.is_retryable


def test_codes_are_words_of_the_wire() -> None:
    """A code is its word in JSON, in logs and in Arrow; no word is used for two codes."""
    words = [str(code) for code in ErrorCode]

    assert all(word == word.lower() and word.replace("_", "").isalpha() for word in words)
    assert len(set(words)) == len(ErrorCode.__members__)


def test_overload_says_when_to_return() -> None:
    """A refusal for want of room tells after how many seconds to come again."""
    error = Overloaded(ErrorCode.DRAINING, "the sidecar stops", retry_after_s=1.5)

    assert (error.retry_after_s, error.is_retryable) == (1.5, True)


def test_violation_names_the_byte() -> None:
    """A broken frame is named with the byte where it breaks, if that is known."""
    known = ProtocolViolation(ErrorCode.BAD_FRAME, "truncated", offset=16)
    unknown = ProtocolViolation(ErrorCode.SEQUENCE_GAP, "7 after 5")

    assert (str(known), known.offset) == ("bad_frame: truncated (at byte 16)", 16)
    assert (str(unknown), unknown.offset) == ("seq_gap: 7 after 5", None)


def test_configuration_error_lists_all_faults() -> None:
    """All faults are kept apart for a list, and stand together in the message."""
    error = ConfigurationError(["listen.http: no port", "limits: unknown key"])

    assert error.faults == ("listen.http: no port", "limits: unknown key")
    assert str(error) == "bad_request: listen.http: no port; limits: unknown key"


def test_unreachable_sidecar_is_named() -> None:
    """The message has the endpoint and the reason; another try may help."""
    error = SidecarUnreachable("unix:///run/s.sock", "no such file")

    assert (error.endpoint, error.reason) == ("unix:///run/s.sock", "no such file")
    assert error.detail == "no sidecar at unix:///run/s.sock: no such file"
    assert error.is_retryable


def test_codes_of_keys_have_a_meaning() -> None:
    """What a Spark task fails with is said in words; other codes point to the log."""
    assert ErrorCode.AMBIGUOUS.meaning == (
        "a key has several rows; set match: first or all, or versions"
    )
    assert ErrorCode.INTERNAL.meaning == "see the log of the sidecar"
