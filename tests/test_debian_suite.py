"""Another suite of Debian is looked for on the machine's mirror; apt-get is a script."""

import platform
from pathlib import Path

import pytest

from tests.debian_suite import MirrorUnknown, environ_of_suite

CODENAME = platform.freedesktop_os_release()["VERSION_CODENAME"]
OTHERS = f"DEP-11 {CODENAME} main http://pictures\nPackages {CODENAME} stable http://editor"


def environ_where(folder: Path, told: str) -> dict[str, str]:
    """The environment of a machine whose apt-get names these sources."""
    program = folder / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntest $1 = indextargets && echo '{told}'\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}"}


def test_suite_is_on_the_machines_mirror(tmp_path: Path) -> None:
    """The only source is that suite, where the machine's own packages come from."""
    environ = environ_where(tmp_path, f"{OTHERS}\nPackages {CODENAME} main http://mirror/debian/")

    environ_of_suite("later", tmp_path / "apt", environ=environ)

    (source,) = (tmp_path / "apt" / "sources.list").read_text().splitlines()
    assert source.endswith("] http://mirror/debian/ later main")
    assert list((tmp_path / "apt" / "no-others").iterdir()) == []


def test_machines_sources_stay(tmp_path: Path) -> None:
    """apt-get is told of the suite by its environment alone, which keeps what was there."""
    environ = environ_where(tmp_path, f"Packages {CODENAME} main http://mirror/debian/")

    told = environ_of_suite("later", tmp_path / "apt", environ=environ)

    assert told == {**environ, "APT_CONFIG": str(tmp_path / "apt" / "apt.conf")}


def test_machine_without_mirror_is_told(tmp_path: Path) -> None:
    """A machine with sources of others only cannot have it, and hears what is missing."""
    with pytest.raises(MirrorUnknown, match=rf"no source of {CODENAME} main; add one"):
        environ_of_suite("later", tmp_path / "apt", environ=environ_where(tmp_path, OTHERS))
