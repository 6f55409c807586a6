"""Certificates of a listener: validation before any connection, and rotation."""

import os
import re
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from service.tls.server_certificate import (
    CertificateFiles,
    CertificateRotation,
    server_certificate,
)
from tests.service.tls.certificates import Authority, authority, tomorrow, written, yesterday

NO_KEY = "{0}.key contains no usable key for {0}.crt (.*); provide a PEM key of at least 2048 b"


@pytest.fixture
def signer(tmp_path: Path) -> Authority:
    """Signs certificates."""
    return authority(tmp_path)


# One certificate


def test_certificate_has_names_and_an_end(signer: Authority) -> None:
    """Names and addresses are in lower case; certificates of signers may follow."""
    end = tomorrow().replace(microsecond=0)
    chain = written(trustme.CA().create_child_ca().issue_cert("c"), signer.folder, "chain")

    certificate = server_certificate(signer.issue("A.example", "*.b.example", "::1", not_after=end))

    assert server_certificate(chain).names == {"c"}
    assert certificate.names == {"a.example", "*.b.example", "::1"}
    assert certificate.expires_s == end.timestamp()
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert certificate.context.verify_mode is ssl.CERT_NONE


def test_wildcard_is_one_label(signer: Authority) -> None:
    """A wildcard stands for exactly one label."""
    certificate = server_certificate(signer.issue("a.example", "*.b.example"))

    hosts = ["a.example", "x.b.example", "b.example", "x.y.b.example", "evil.example", "b"]
    assert [each for each in hosts if certificate.is_for(each)] == ["a.example", "x.b.example"]


def test_client_authority_requires_certificates(signer: Authority) -> None:
    """With a client authority each client needs a certificate; comments are ignored."""
    files = replace(signer.issue("a.example"), client_ca_file=signer.file)
    for path in (files.cert_file, signer.file):
        path.write_bytes("# Müller, Öffentliche Zertifikate\n".encode() + path.read_bytes())

    certificate = server_certificate(files)

    assert certificate.context.verify_mode is ssl.CERT_REQUIRED
    assert certificate.names == {"a.example"}


def expired(signer: Authority) -> CertificateFiles:
    """A certificate of yesterday."""
    return signer.issue(not_after=yesterday())


def nameless(signer: Authority) -> CertificateFiles:
    """A certificate with a common name only."""
    return written(signer.signer.issue_cert(common_name="old.example"), signer.folder, "tls")


def other_key(signer: Authority) -> CertificateFiles:
    """A certificate and the key of another."""
    return replace(signer.issue(), key_file=signer.issue(name="other").key_file)


def password(signer: Authority) -> CertificateFiles:
    """A key that is encrypted."""
    files = signer.issue()
    key = serialization.load_pem_private_key(files.key_file.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"password")
    form = serialization.PrivateFormat.PKCS8
    files.key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
    return files


def no_authority(signer: Authority) -> CertificateFiles:
    """The certificate of a client in place of an authority's."""
    files, end = signer.issue(), "-----END CERTIFICATE-----\n"
    leaf = files.cert_file.with_name("leaf.crt")
    leaf.write_text(files.cert_file.read_text().partition(end)[0] + end)
    return replace(files, client_ca_file=leaf)


def text(part: str, content: str) -> Callable[[Authority], CertificateFiles]:
    """A file with other content."""

    def made(signer: Authority) -> CertificateFiles:
        files = replace(signer.issue(), **({part: signer.file} if "ca" in part else {}))
        getattr(files, part).write_text(content)
        return files

    return made


def missing(part: str) -> Callable[[Authority], CertificateFiles]:
    """A missing file."""
    return lambda signer: replace(signer.issue(), **{part: signer.folder / "missing"})


def fifo(part: str) -> Callable[[Authority], CertificateFiles]:
    """A FIFO that nothing writes."""

    def made(signer: Authority) -> CertificateFiles:
        os.mkfifo(signer.folder / "pipe")
        return replace(signer.issue(), **{part: signer.folder / "pipe"})

    return made


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (expired, "{0}.crt: certificate has expired; clients would reject it: renew it "),
        (
            lambda signer: signer.issue(not_before=tomorrow()),
            "{0}.crt: certificate is not yet valid; ",
        ),
        (nameless, "{0}.crt names no host, .*; provide one with a subjectAltName"),
        (other_key, "{1}/other.key is not the key of {0}.crt; "),
        (password, NO_KEY),
        (text("key_file", "s3cret"), NO_KEY),
        (text("cert_file", ""), "{0}.crt contains no certificate; provide a PEM chain"),
        (
            text("cert_file", "-----BEGIN CERTIFICATE-----\nAAAA"),
            "{0}.crt contains no certificate; ",
        ),
        (text("client_ca_file", ""), "{1}/ca.crt contains no certificate; provide those of the a"),
        (no_authority, "{1}/leaf.crt contains no CA certificate"),
        (fifo("key_file"), "cannot read {1}/pipe: not a regular file"),
        *[
            (missing(part), "cannot read {1}/missing: No such file or directory")
            for part in ("cert_file", "key_file", "client_ca_file")
        ],
    ],
)
def test_unusable_file_is_named(
    signer: Authority, make: Callable[[Authority], CertificateFiles], fault: str
) -> None:
    """A fault names the file and the remedy, and never quotes a key."""
    with pytest.raises(ValueError, match=r".") as caught:
        server_certificate(make(signer))

    pattern = fault.replace("(", r"\(").replace(")", r"\)")
    assert re.match(pattern.format(signer.folder / "tls", signer.folder), str(caught.value))
    assert "s3cret" not in str(caught.value)


# Rotation


def test_new_certificate_takes_over(signer: Authority) -> None:
    """Unchanged files are left alone; a new certificate takes over with its names and end."""
    rotation = CertificateRotation(signer.issue("old.example"))
    before = rotation.current
    unchanged = (rotation.check(), rotation.current is before)
    end = tomorrow().replace(microsecond=0)
    signer.issue("new.example", not_after=end)

    assert (unchanged, rotation.check()) == ((False, True), True)
    assert ("old.example" in rotation, "new.example" in rotation) == (False, True)
    assert (rotation.statistics().expires_s, rotation.taken_total) == (end.timestamp(), 1)


def test_unfit_certificate_is_refused_once(signer: Authority) -> None:
    """The old certificate stays, the refusal is logged once; at the start it is raised."""
    rotation = CertificateRotation(signer.issue())
    before = rotation.current
    files = expired(signer)

    with capture_logs() as logs:
        looks = [rotation.check() for _ in range(3)]

    assert (looks, rotation.current is before) == ([False] * 3, True)
    assert (rotation.taken_total, rotation.refused_total) == (0, 1)
    (event,) = logs
    assert event["event"] == "tls.certificate_rejected"
    assert event["detail"].startswith(f"{files.cert_file}: certificate has expired")
    with pytest.raises(ValueError, match="expired"):
        CertificateRotation(files)


def test_late_key_is_no_lasting_fault(signer: Authority) -> None:
    """A certificate is loaded once its key matches, and kept while files are missing."""
    rotation = CertificateRotation(signer.issue())
    late, new = signer.issue(), signer.issue(name="new")
    late.cert_file.write_bytes(new.cert_file.read_bytes())
    assert rotation.check() is False
    late.key_file.write_bytes(new.key_file.read_bytes())
    assert rotation.check() is True
    late.cert_file.unlink()
    assert rotation.check() is False

    assert (rotation.taken_total, rotation.refused_total) == (1, 2)
