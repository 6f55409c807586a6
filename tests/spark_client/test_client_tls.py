"""The client's files of TLS: those that cannot be used are named, at once."""

import ssl
from pathlib import Path

import pytest

from lookup_core.errors import InvalidRequest
from spark_client.transport.endpoint import SYSTEMS_TLS, ClientTls
from tests.service.tls.certificates import authority


def test_hosts_are_always_checked(tmp_path: Path) -> None:
    """With files or without, a certificate is needed, and it has to name the host."""
    signer = authority(tmp_path)
    files = signer.issue()
    tls = ClientTls(str(signer.file), str(files.cert_file), str(files.key_file))

    for context in (SYSTEMS_TLS.context(), tls.context()):
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED


def test_authorities_take_the_systems_place(tmp_path: Path) -> None:
    """Whoever names one trusts no other."""
    signer = authority(tmp_path)

    assert len(ClientTls(str(signer.file)).context().get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("ca_content", "reason"),
    [(None, "no such file or directory"), ("nonsense", "no certificate or crl found")],
)
def test_unusable_authority_is_named(tmp_path: Path, ca_content: str | None, reason: str) -> None:
    """An error at once, not a sidecar that is waited for."""
    file = tmp_path / "ca"
    if ca_content is not None:
        file.write_text(ca_content)

    with pytest.raises(InvalidRequest) as caught:
        ClientTls(str(file)).context()

    assert caught.value.detail == f"ca_file {file} cannot be used: {reason}"


def test_unusable_certificate_is_named(tmp_path: Path) -> None:
    """Both files are, since either may be the wrong one."""
    signer = authority(tmp_path)
    mine, other = signer.issue(), signer.issue(name="other")

    with pytest.raises(InvalidRequest) as caught:
        ClientTls(None, str(mine.cert_file), str(other.key_file)).context()

    assert caught.value.detail == (
        f"cert_file, key_file {mine.cert_file}, {other.key_file} cannot be used: "
        "key values mismatch"
    )


def test_other_errors_are_not_of_tls() -> None:
    """A timeout has no remedy here."""
    assert SYSTEMS_TLS.reason(TimeoutError(), "host") is None
