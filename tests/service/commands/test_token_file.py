"""Tokens of the caller."""

from pathlib import Path

import pytest
import typer

from service.commands.token_file import read_token


def test_token_is_the_stripped_line(tmp_path: Path) -> None:
    """The line end that editors add is not part of the token."""
    path = tmp_path / "token"
    path.write_text(" t0ken\n")

    assert read_token(str(path)) == "t0ken"


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff", b"a\x00b"])
def test_other_contents_are_refused(tmp_path: Path, content: bytes) -> None:
    """What could not stand in a header is no token, and is not shown."""
    path = tmp_path / "token"
    path.write_bytes(content)

    with pytest.raises(typer.BadParameter, match="token"):
        read_token(str(path))


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A file that cannot be read is told with the reason."""
    with pytest.raises(typer.BadParameter, match=r"cannot read .*nope: No such file"):
        read_token(str(tmp_path / "nope"))
