"""Errors: the tree, its codes, and the hints in error messages."""

import pickle

import pytest

from lookup_core.endpoint import TlsHint, plain_refusal
from lookup_core.error_texts import ERROR_TEXTS
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
    named_dimension,
    nearest_name,
)

CASES: list[tuple[SidelookError, str, dict[str, object]]] = [
    (InvalidRequest(ErrorCode.FORBIDDEN, "no right"), "forbidden: no right", {}),
    (
        Overloaded(ErrorCode.DRAINING, "it stops", retry_after_s=1.5),
        "draining: it stops",
        {"retry_after_s": 1.5, "is_retryable": True},
    ),
    (BackendError(ErrorCode.TIMEOUT, "late"), "timeout: late", {"is_retryable": True}),
    (
        ProtocolViolation(ErrorCode.BAD_FRAME, "truncated", offset=16),
        "bad_frame: truncated (at byte 16)",
        {"offset": 16, "is_retryable": False},
    ),
    (
        ProtocolViolation(ErrorCode.SEQUENCE_GAP, "7 after 5"),
        "seq_gap: 7 after 5",
        {"offset": None},
    ),
    (
        ConfigurationError(["listen.http: no port", "limits: unknown key"]),
        "bad_request: listen.http: no port\nlimits: unknown key",
        {"faults": ("listen.http: no port", "limits: unknown key")},
    ),
    (LookupFailed(ErrorCode.INTERNAL, "three keys"), "internal: three keys", {}),
    (
        SidecarUnreachable("unix:///run/s.sock", "no such file"),
        "sidecar_unreachable: no sidecar at unix:///run/s.sock: no such file",
        {"endpoint": "unix:///run/s.sock", "reason": "no such file", "is_retryable": True},
    ),
]


@pytest.mark.parametrize(("error", "text", "fields"), CASES)
def test_errors_cross_processes(error: SidelookError, text: str, fields: dict[str, object]) -> None:
    """An error has its message and fields, also after Spark's worker has pickled it."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own bytes

    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))
    assert str(error) == text == f"{error.code}: {error.detail}"
    assert {name: getattr(copy, name) for name in fields} == fields


def test_remedies_extend_the_detail() -> None:
    """A remedy that only the caller knows is part of the text, also in another process."""
    error = SidecarUnreachable("unix:///s.sock", "no such socket")

    error.add_remedy("give schema=")

    text = "sidecar_unreachable: no sidecar at unix:///s.sock: no such socket; give schema="
    assert str(error) == text
    assert str(pickle.loads(pickle.dumps(error))) == text  # noqa: S301 -- our own bytes
    assert error.detail in text


def test_codes_are_distinct_words() -> None:
    """Each code has one meaning; it is retryable if the cause may pass with time."""
    words = [str(code) for code in ErrorCode]

    assert all(word == word.lower() and word.replace("_", "").isalpha() for word in words)
    assert len(set(words)) == len(ErrorCode.__members__)
    assert {code for code in ErrorCode if code.is_retryable} == {
        *(ErrorCode.TIMEOUT, ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.CONNECTION_LOST),
        *(ErrorCode.BACKEND_AUTH, ErrorCode.TABLE_UNAVAILABLE),
        *(ErrorCode.OVERLOADED, ErrorCode.DRAINING, ErrorCode.SIDECAR_UNREACHABLE),
    }
    assert {code for code in ErrorCode if code.is_retryable and not code.heals_by_itself} == {
        *(ErrorCode.BACKEND_AUTH, ErrorCode.TABLE_UNAVAILABLE),
    }


def test_each_code_has_meaning_and_remedy() -> None:
    """Both are clauses of messages: without a final stop, and not the same for both."""
    clauses = [text for code in ErrorCode for text in (code.meaning, code.remedy)]

    assert list(ERROR_TEXTS) == [code.value for code in ErrorCode]
    assert [text for text in clauses if not text or text.endswith(".") or "\n" in text] == []
    assert ErrorCode.TIMEOUT.meaning == "no answer before the deadline"
    assert ErrorCode.AMBIGUOUS.explanation == (
        "a key has several rows; "
        "remove duplicates and add a unique index, or set match: first or all, or versions"
    )


@pytest.mark.parametrize(
    ("name", "offered", "hint"),
    [
        ("custmer", ["orders", "Customer"], "; did you mean Customer?"),
        ("ID", ["id"], "; did you mean id?"),
        ("zzz", ["id", "name"], "; available: id, name"),
        ("zzz", [*map(str, range(20))], f"; available: {', '.join(map(str, range(20)))}"),
        ("zzz", [*map(str, range(500))], f"; available: {', '.join(map(str, range(20)))}, …"),
        ("zzz", [], ""),
    ],
)
def test_hint_is_nearest_name_or_list(name: str, offered: list[str], hint: str) -> None:
    """A hint is the nearest name in any case, otherwise the first twenty names."""
    assert nearest_name(name, offered) == hint


@pytest.mark.parametrize(
    ("name", "configured", "detail"),
    [
        ("n\u00e9", {"b", "a"}, r"no dimension 'n\xe9'; configured: a, b"),
        ("Aa", {"aab", "b"}, "no dimension 'Aa'; did you mean aab? configured: aab, b"),
        ("x" * 5_000, (), f"no dimension '{'x' * 100}'; configured: none"),
    ],
)
def test_unknown_dimension_lists_known_ones(name: str, configured: set[str], detail: str) -> None:
    """The error has at most 100 characters of the name, the nearest one, and all configured."""
    with pytest.raises(InvalidRequest) as caught:
        named_dimension(dict.fromkeys(configured), name)
    error = caught.value

    assert (error.code, error.detail) == (ErrorCode.UNKNOWN_DIMENSION, detail)
    assert named_dimension({"a": 1}, "a") == 1


def test_plain_address_may_need_tls() -> None:
    """Only an address of plain HTTP has a hint, the same address with TLS."""
    urls = ["http://h:8815", "https://h:8815", "unix:///run/s.sock"]

    hint = "if it listens with TLS, its address is https://h:8815"
    assert [*map(plain_refusal, urls)] == [hint, None, None]


REFUSAL = TlsHint("sidecar.example", "/ca.crt", "/tls.crt")
NAMELESS = TlsHint("sidecar.example", None, None, "--ca-file", "--cert-file and --key-file")
OTHER_HOST = "its certificate is not for sidecar.example; use a host of the certificate, "
UNTRUSTED = "its certificate is not signed by an authority in"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (10, "its certificate has expired; renew listen.tls.cert_file there"),
        (9, "its certificate is not valid yet; compare the clocks of both machines"),
        *((code, f"{OTHER_HOST}or issue one for this host") for code in (62, 64)),
        *(
            (code, f"{UNTRUSTED} /ca.crt; give the authority with ca_file")
            for code in (2, 18, 19, 20, 21)
        ),
        (26, "its certificate was refused: unsuitable certificate purpose"),
    ],
)
def test_refused_certificates_have_remedies(code: int, text: str) -> None:
    """Dates, host names and signers have their own remedies; other reasons are quoted."""
    assert REFUSAL.of_certificate(code, "unsuitable certificate purpose") == text


GIVE_A_CERTIFICATE = "it requires a client certificate; give cert_file and key_file"
UNKNOWN_CA = (
    "it does not trust the authority that signed /tls.crt; see listen.tls.client_ca_file there"
)
NO_TLS = "the port does not speak TLS; is the address http://?"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", GIVE_A_CERTIFICATE),
        ("TLSV1_ALERT_UNKNOWN_CA", UNKNOWN_CA),
        (
            "SSLV3_ALERT_CERTIFICATE_EXPIRED",
            "it refused /tls.crt (sslv3 alert certificate expired)",
        ),
        *((reason, NO_TLS) for reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")),
        ("UNSUPPORTED_PROTOCOL", "TLS failed: unsupported protocol"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "TLS failed: sslv3 alert handshake failure"),
    ],
)
def test_alerts_have_remedies(reason: str, text: str) -> None:
    """An alert of OpenSSL becomes a remedy, or its words."""
    assert REFUSAL.of_alert(reason) == text


def test_remedies_name_options_of_client() -> None:
    """Without files the remedies name the client's options, also where TLS 1.2 gives no reason."""
    assert [
        NAMELESS.of_certificate(20, ""),
        NAMELESS.of_alert("SSLV3_ALERT_HANDSHAKE_FAILURE"),
        NAMELESS.of_silence(),
        REFUSAL.of_silence(),
    ] == [
        f"{UNTRUSTED} the system's trust store; give the authority with --ca-file",
        "it requires a client certificate; give --cert-file and --key-file",
        "if it requires client certificates, give --cert-file and --key-file",
        "if it does not accept /tls.crt, its log says why",
    ]
