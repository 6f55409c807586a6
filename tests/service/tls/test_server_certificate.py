"""What is wrong with a certificate is told before anybody connects."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from service.tls.server_certificate import CertificateFiles, server_certificate
from tests.service.tls.certificates import Authority, authority, tomorrow, written, yesterday


@pytest.fixture
def signer(tmp_path: Path) -> Authority:
    """Signs what the tests need."""
    return authority(tmp_path)


def fault(files: CertificateFiles) -> str:
    """What is said of these files."""
    with pytest.raises(ValueError, match=r".") as caught:
        server_certificate(files)
    return str(caught.value)


def test_certificate_tells_names_and_end(signer: Authority) -> None:
    """Names and addresses of the certificate, as callers may ask for them, and its last moment."""
    end = tomorrow().replace(microsecond=0)

    certificate = server_certificate(signer.issue("A.example", "*.b.example", "::1", not_after=end))

    assert certificate.names == {"a.example", "*.b.example", "::1"}
    assert certificate.expires_s == end.timestamp()
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert certificate.context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("host", "is_for"),
    [
        ("a.example", True),
        ("x.b.example", True),
        ("b.example", False),
        ("x.y.b.example", False),
        ("evil.example", False),
        ("b", False),
    ],
)
def test_wildcard_stands_for_one_label(signer: Authority, host: str, is_for: bool) -> None:  # noqa: FBT001
    """As those who verify certificates take it."""
    certificate = server_certificate(signer.issue("a.example", "*.b.example"))

    assert certificate.is_for(host) is is_for


def test_client_authorities_make_certificates_necessary(signer: Authority) -> None:
    """With authorities of clients, nobody connects without a certificate."""
    files = replace(signer.issue(), client_ca_file=signer.file)

    assert server_certificate(files).context.verify_mode is ssl.CERT_REQUIRED


def test_expired_certificate_is_refused(signer: Authority) -> None:
    """No caller would accept it."""
    files = signer.issue(not_after=yesterday())

    assert fault(files) == (
        f"{files.cert_file}: certificate has expired; callers would refuse it: renew it, "
        "for use by a server, and look at this machine's clock"
    )


def test_certificate_of_the_future_is_refused(signer: Authority) -> None:
    """Nor one whose time has not come, which may be the clock's fault."""
    files = signer.issue(not_before=tomorrow())

    assert fault(files).startswith(f"{files.cert_file}: certificate is not yet valid; ")


def test_certificate_without_names_is_refused(signer: Authority) -> None:
    """Callers no longer look at the common name."""
    issued = signer.signer.issue_cert(common_name="old.example")
    files = written(issued, signer.folder, "old")

    assert fault(files) == (
        f"{files.cert_file} names no host, so that no caller accepts it; "
        "give one with a subjectAltName"
    )


def test_key_of_another_certificate_is_refused(signer: Authority) -> None:
    """Both are named, since either may be the wrong one."""
    mine, other = signer.issue(), signer.issue(name="other")

    assert fault(replace(mine, key_file=other.key_file)) == (
        f"{other.key_file} is not the key of {mine.cert_file}; give the two that were made together"
    )


@pytest.mark.parametrize("content", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA"])
def test_garbage_is_no_certificate(signer: Authority, content: str) -> None:
    """The file is named, and what belongs there."""
    files = signer.issue()
    files.cert_file.write_text(content)

    assert fault(files) == (
        f"{files.cert_file} holds no certificate; "
        "give a chain in PEM, the server's own certificate first"
    )


def test_garbage_is_no_key(signer: Authority) -> None:
    """Nor is it quoted: it may be a secret in the wrong place."""
    files = signer.issue()
    files.key_file.write_text("s3cret")

    told = fault(files)

    assert "s3cret" not in told
    assert told.startswith(f"{files.key_file} holds no key that can be used with {files.cert_file}")
    assert told.endswith("give its key in PEM, without a password, of at least 2048 bits")


def test_key_with_a_password_is_refused(signer: Authority) -> None:
    """Nobody is at the terminal to type it."""
    files = signer.issue()
    files.key_file.write_bytes(_encrypted(files.key_file.read_bytes()))

    told = fault(files)

    assert told.startswith(f"{files.key_file} holds no key that can be used with {files.cert_file}")
    assert told.endswith("give its key in PEM, without a password, of at least 2048 bits")


@pytest.mark.parametrize("part", ["cert_file", "key_file", "client_ca_file"])
def test_missing_file_is_named(signer: Authority, part: str) -> None:
    """Whichever it is."""
    missing = signer.folder / "missing"
    files = replace(signer.issue(), **{part: missing})

    assert fault(files) == f"cannot read {missing}: No such file or directory"


def test_client_authority_must_be_one(signer: Authority) -> None:
    """A client's own certificate cannot say who else may come."""
    files = signer.issue()

    assert fault(replace(files, client_ca_file=_leaf_only(files))) == (
        f"{signer.folder}/leaf.crt holds no certificate of an authority, that may sign others"
    )


def test_comments_may_be_in_any_language(signer: Authority) -> None:
    """Bundles of authorities often tell their names between the certificates."""
    files = replace(signer.issue("a.example"), client_ca_file=signer.file)
    for path in (files.cert_file, signer.file):
        path.write_bytes("# Müller, Öffentliche Zertifikate\n".encode() + path.read_bytes())

    assert server_certificate(files).names == {"a.example"}


@pytest.mark.parametrize("content", ["", "nonsense"])
def test_garbage_is_no_client_authority(signer: Authority, content: str) -> None:
    """Without one nobody could connect."""
    nonsense = signer.folder / "nonsense"
    nonsense.write_text(content)

    assert fault(replace(signer.issue(), client_ca_file=nonsense)) == (
        f"{nonsense} holds no certificate; give those of authorities"
    )


def _leaf_only(files: CertificateFiles) -> Path:
    end = "-----END CERTIFICATE-----\n"
    path = files.cert_file.with_name("leaf.crt")
    path.write_text(files.cert_file.read_text().partition(end)[0] + end)
    return path


def _encrypted(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )


def test_issued_chain_may_have_intermediates(tmp_path: Path) -> None:
    """What signed the certificate comes after it in the file."""
    root = trustme.CA()
    files = written(root.create_child_ca().issue_cert("a.example"), tmp_path, "chain")

    assert server_certificate(files).names == {"a.example"}
