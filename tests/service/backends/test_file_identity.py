"""Which file has a name."""

import os
from pathlib import Path

import pytest

from service.connectors.parquet.file import FileIdentity


def test_replaced_file_is_another_one(tmp_path: Path) -> None:
    """A file that was written to, or that stands in another's place, has another identity."""
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("one")
    other.write_text("two")
    first = FileIdentity.of(path)
    assert FileIdentity.of(path) == first

    os.utime(path, ns=(0, 1))
    assert FileIdentity.of(path) != first

    other.replace(path)
    assert FileIdentity.of(path) != first


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    """There is no identity of what is not there."""
    with pytest.raises(FileNotFoundError):
        FileIdentity.of(tmp_path / "none")
