"""The files of a certificate, and that they have changed."""

from pathlib import Path

from service.tls.server_certificate import CertificateFiles


def test_changed_file_has_another_version(tmp_path: Path) -> None:
    """Nothing has to be read to see that a file is another one."""
    files = CertificateFiles(tmp_path / "crt", tmp_path / "key")
    nothing = files.versions()
    files.cert_file.write_text("one")
    first = files.versions()
    files.cert_file.write_text("other")

    assert nothing == (None, None)
    assert len({nothing, first, files.versions()}) == 3


def test_swapped_folder_is_seen(tmp_path: Path) -> None:
    """Kubernetes renews a secret by pointing a symbolic link at another folder."""
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca").write_text("same size")
    link = tmp_path / "data"
    link.symlink_to("1")
    files = CertificateFiles(tmp_path / "crt", tmp_path / "key", link / "ca")
    first = files.versions()
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").rename(link)

    assert files.versions() != first
