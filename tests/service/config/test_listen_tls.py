"""The section `listen.tls`."""

from pathlib import Path

import pytest

from service.config.listen import ListenTls
from service.tls.server_certificate import CertificateFiles
from tests.service.config.configuration import faults
from tests.service.tls.certificates import Authority, authority, yesterday

HTTP = "127.0.0.1:1"


@pytest.fixture
def signer(tmp_path: Path) -> Authority:
    """Signs what the tests need."""
    return authority(tmp_path)


def section(files: CertificateFiles, **others: object) -> dict[str, object]:
    """The section with these files."""
    return {"cert_file": str(files.cert_file), "key_file": str(files.key_file), **others}


def tls_faults(values: object) -> list[str]:
    """What is wrong with the section."""
    return faults({"listen": {"http": HTTP, "tls": values}})


def test_files_go_to_whoever_listens(signer: Authority) -> None:
    """As they are written; callers need no certificate unless an authority is named."""
    files = signer.issue()

    assert ListenTls.model_validate(section(files)).files() == files


def test_callers_may_have_to_show_certificates(signer: Authority) -> None:
    """Then the authority's file goes with the others."""
    values = section(signer.issue(), client_ca_file=str(signer.file))

    assert ListenTls.model_validate(values).files().client_ca_file == signer.file


def test_unfit_certificate_is_told_with_its_file(signer: Authority) -> None:
    """All that is wrong with a certificate is a fault of the section."""
    files = signer.issue(not_after=yesterday())

    (fault,) = tls_faults(section(files))

    assert fault.startswith(f"listen.tls: {files.cert_file}: certificate has expired; ")


def test_key_is_not_for_everybody(signer: Authority) -> None:
    """A key that others may read is no secret any more."""
    files = signer.issue()
    files.key_file.chmod(0o644)

    assert tls_faults(section(files)) == [
        (
            f"listen.tls.key_file: {files.key_file} may be read or written by everybody; "
            "chmod o-rw it (a Kubernetes secret: defaultMode 0440)"
        )
    ]


def test_section_is_strict() -> None:
    """What is missing or unknown is told all at once."""
    assert tls_faults({"cert_fil": "a", "key_file": None}) == [
        "listen.tls.cert_file: missing, and required",
        "listen.tls.key_file: must be a path",
        "listen.tls.cert_fil: unknown key; did you mean 'cert_file'?",
    ]
