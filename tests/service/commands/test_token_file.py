"""Tokens of the caller."""

from pathlib import Path

import pytest
import typer

from service.commands.endpoint import ShownToken, read_token, shown_token
from service.config.settings import Settings

DIMENSIONS = {"a": {"source": {"kind": "parquet", "path": "/x"}, "key": ["k"]}}


def settings(file: Path | None) -> Settings:
    """A configuration with this file as its token's, readable by its owner alone."""
    if file is not None:
        file.chmod(0o600)
    return Settings({"auth": {"token_file": file}, "dimensions": DIMENSIONS})


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


def test_given_token_comes_first(tmp_path: Path) -> None:
    """The option beats the configuration, whose own token counts otherwise."""
    path = tmp_path / "token"
    path.write_text("own\n")
    configured = settings(path)

    assert shown_token("given", configured) == ShownToken("given", "--token-file")
    assert shown_token(None, configured) == ShownToken("own", "auth.token_file")


def test_without_a_token_none_is_shown(tmp_path: Path) -> None:
    """Neither where none is configured, nor where the file is not fit, or has gone."""
    path = tmp_path / "token"
    path.write_text("two\nlines")
    unfit = settings(path)
    found = [shown_token(None, each) for each in (None, settings(None), unfit)]
    path.unlink()

    assert [*found, shown_token(None, unfit)] == [None] * 4
