"""The files of TLS that commands are given."""

import ssl
from pathlib import Path

import pytest
import typer

from service.commands.endpoint import ClientFiles
from tests.service.tls.certificates import authority


def fault(files: ClientFiles) -> str:
    """What is wrong with these files."""
    with pytest.raises(typer.BadParameter) as caught:
        files.context()
    return caught.value.message


def test_hosts_are_always_checked(tmp_path: Path) -> None:
    """No option leaves the check out."""
    signer = authority(tmp_path)
    files = signer.issue()

    context = ClientFiles(str(signer.file), str(files.cert_file), str(files.key_file)).context()

    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_certificate_needs_its_key() -> None:
    """One without the other is a slip."""
    assert fault(ClientFiles(cert_file="tls.crt")) == (
        "give both or none of --cert-file and --key-file"
    )


def test_unusable_files_are_named(tmp_path: Path) -> None:
    """With the option that named them."""
    signer, none = authority(tmp_path), str(tmp_path / "none")
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nonsense")

    assert fault(ClientFiles(ca_file=none)) == (
        f"--ca-file {none} cannot be used: no such file or directory"
    )
    assert fault(ClientFiles(None, str(signer.file), str(nonsense))) == (
        f"--cert-file, --key-file {signer.file}, {nonsense} cannot be used: not pem"
    )
