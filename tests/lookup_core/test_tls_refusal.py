"""Whoever is refused by TLS is told what to do about it."""

import pytest

from lookup_core.protocol.tls_hints import TlsHint

REFUSAL = TlsHint("sidecar.example", "/ca.crt", "/tls.crt")
NAMELESS = TlsHint("sidecar.example", None, None, "--ca-file", "--cert-file and --key-file")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (10, "its certificate has expired; renew listen.tls.cert_file there"),
        (9, "its certificate is not valid yet; compare the clocks of both machines"),
        (
            62,
            (
                "its certificate is not for sidecar.example; ask for a name that it has, "
                "or let it have this one"
            ),
        ),
        (20, "nobody in /ca.crt signed its certificate; name who did with ca_file"),
        (26, "its certificate was refused: unsuitable certificate purpose"),
    ],
)
def test_refused_certificates_have_remedies(code: int, text: str) -> None:
    """Dates, names and signers are told apart; what is rare is quoted."""
    assert REFUSAL.of_certificate(code, "unsuitable certificate purpose") == text


def test_options_have_the_clients_names() -> None:
    """A command names its own options, and the system's authorities where it has no others."""
    assert NAMELESS.of_certificate(20, "") == (
        "nobody in the system's authorities signed its certificate; name who did with --ca-file"
    )


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            "TLSV13_ALERT_CERTIFICATE_REQUIRED",
            "it asks for a certificate; give cert_file and key_file",
        ),
        (
            "TLSV1_ALERT_UNKNOWN_CA",
            "it does not trust who signed /tls.crt; see listen.tls.client_ca_file there",
        ),
        (
            "SSLV3_ALERT_CERTIFICATE_EXPIRED",
            "it refused /tls.crt (sslv3 alert certificate expired)",
        ),
        ("WRONG_VERSION_NUMBER", "what listens there does not speak TLS; is its address http://?"),
        ("UNSUPPORTED_PROTOCOL", "TLS failed: unsupported protocol"),
    ],
)
def test_alerts_have_remedies(reason: str, text: str) -> None:
    """What the other end says of us, and what says that it speaks something else."""
    assert REFUSAL.of_alert(reason) == text


def test_failed_handshake_may_miss_a_certificate() -> None:
    """TLS 1.2 has no word of its own for a certificate that was not shown."""
    reason = "SSLV3_ALERT_HANDSHAKE_FAILURE"

    assert NAMELESS.of_alert(reason) == (
        "it asks for a certificate; give --cert-file and --key-file"
    )
    assert REFUSAL.of_alert(reason) == "TLS failed: sslv3 alert handshake failure"


def test_silence_may_be_about_certificates() -> None:
    """Who hangs up says nothing; what it may be is told, and where to look."""
    assert REFUSAL.of_silence() == "if it does not accept /tls.crt, its log says why"
    assert NAMELESS.of_silence() == ("if it asks for certificates, give --cert-file and --key-file")
