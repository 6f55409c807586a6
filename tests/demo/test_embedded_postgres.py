"""The embedded PostgreSQL server: its files, its programs, and the folders above them."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from demo.embedded_postgres import (
    installed_programs,
    is_open_to_all,
    open_copy,
    run_program,
    temporary_server,
)

PROGRAMS = installed_programs()


def modes(folders: Iterable[Path]) -> dict[Path, int]:
    """The permissions of each folder."""
    return {folder: folder.stat().st_mode for folder in folders}


def test_copied_programs_are_open(tmp_path: Path) -> None:
    """The copy has the programs and their libraries, and every user may use what the owner may."""
    closed = tmp_path / "lib" / "wheel" / "pginstall" / "bin"
    libraries = tmp_path / "lib" / "wheel.libs"
    for file in (closed / "postgres", closed.parent / "include" / "c.h", libraries / "libpq.so"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o700)

    copied = open_copy(closed, tmp_path / "copy")

    files = [each for each in (tmp_path / "copy").rglob("*") if each.is_file()]
    assert {each.name: each.stat().st_mode & 0o777 for each in files} == {
        "postgres": 0o755,
        "libpq.so": 0o755,
    }
    assert copied == tmp_path / "copy" / "wheel" / "pginstall" / "bin"
    assert not is_open_to_all(closed)


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_server_opens_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, the server needs no right to the checkout, the wheel or the present folder."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o700)
    watched = [tmp_path, *tmp_path.parents, *PROGRAMS.parents, *Path(__file__).parents]
    before = modes(watched)

    with temporary_server() as server:
        server.start()
        copied = open_copy(PROGRAMS, server.pgdata / "copy")
        version = run_program("initdb", ["-V"], copied, user=server.system_user)

    assert (modes(watched), "PostgreSQL" in version) == (before, True)
    assert not server.pgdata.exists()
