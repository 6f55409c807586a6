"""A token is compared in constant time, and follows its file."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.http.security import TokenFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the token `secret`, as an editor leaves it."""
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


@pytest.mark.parametrize("presented", ["secre", "secret ", "SECRET", "", "a" * 8000, "\udcff"])
def test_only_the_token_matches(path: Path, presented: str) -> None:
    """Nothing but the token itself is accepted, whatever a header may hold."""
    token = TokenFile(path)

    assert token.matches("secret")
    assert not token.matches(presented)


def test_changed_files_count_at_once(path: Path) -> None:
    """After a rotation the new token is accepted and the old one is not."""
    token = TokenFile(path)
    assert token.matches("secret")

    path.write_text("rotated")

    assert (token.matches("secret"), token.matches("rotated")) == (False, True)


def test_swapped_symlinks_count_at_once(tmp_path: Path, path: Path) -> None:
    """Kubernetes rotates by swapping a symbolic link; that is a change, too."""
    link = tmp_path / "link"
    link.symlink_to(path)
    token = TokenFile(link)
    assert token.matches("secret")

    (tmp_path / "other").write_text("newer!\n")
    os.utime(tmp_path / "other", ns=(0, path.stat().st_mtime_ns))
    (tmp_path / "next").symlink_to(tmp_path / "other")
    (tmp_path / "next").rename(link)

    assert (token.matches("secret"), token.matches("newer!")) == (False, True)


def test_absent_files_keep_the_last_token(path: Path) -> None:
    """A file that is away for a moment locks nobody out, and lets nobody in; it is logged."""
    token = TokenFile(path)
    assert token.matches("secret")
    path.unlink()

    with capture_logs() as logs:
        matches = (token.matches("secret"), token.matches("other"))

    assert matches == (True, False)
    assert {event["event"] for event in logs} == {"http.token_file_unreadable"}


@pytest.mark.parametrize("content", ["", "\n", None])
def test_without_a_token_nothing_matches(tmp_path: Path, content: str | None) -> None:
    """An empty or absent file is not an open door."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)

    assert not TokenFile(path).matches("")
