"""Files with secrets: what makes one fit for use."""

from pathlib import Path

import pytest

from service.config.secrets import check_secret_file, read_secret


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file as it should be."""
    path = tmp_path / "token"
    path.write_text("t0ken\n")
    path.chmod(0o440)
    return path


def test_secret_is_the_stripped_text(secret: Path) -> None:
    """The line end that editors add is not part of the secret."""
    assert (check_secret_file(secret), read_secret(secret)) == (secret, "t0ken")


@pytest.mark.parametrize("mode", [0o444, 0o404, 0o602, 0o777])
def test_secret_is_not_for_everybody(secret: Path, mode: int) -> None:
    """A file that everybody may read or write holds no secret; the fault tells the remedy."""
    secret.chmod(mode)

    with pytest.raises(ValueError, match=r"by everybody; chmod o-rw it \(a Kubernetes secret"):
        check_secret_file(secret)


def test_empty_file_is_no_secret(secret: Path) -> None:
    """A secret that was not filled in must not pass for one."""
    secret.chmod(0o600)
    secret.write_text(" \n")

    with pytest.raises(ValueError, match="is empty"):
        check_secret_file(secret)


def test_binary_file_is_no_secret(secret: Path) -> None:
    """A key store or the like in the wrong place is named as such."""
    secret.chmod(0o600)
    secret.write_bytes(b"\xff\xfe")

    with pytest.raises(ValueError, match="not UTF-8 text"):
        check_secret_file(secret)


@pytest.mark.parametrize(("name", "reason"), [("nope", "No such file"), (".", "is not a file")])
def test_secret_must_be_a_file(tmp_path: Path, name: str, reason: str) -> None:
    """A missing file or a folder stops the start."""
    with pytest.raises(ValueError, match=reason):
        check_secret_file(tmp_path / name)
