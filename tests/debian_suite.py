"""The packages of another suite of Debian than the machine's, from the same mirror.

Only to look into and to unpack: the machine's own sources stay as they are.
"""

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FIELDS = ("$(CREATED_BY)", "$(RELEASE)", "$(COMPONENT)", "$(REPO_URI)")
CONFIGURATION = """Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "{folder}/no-others";
Dir::State::lists "{folder}/lists";
Dir::Cache "{folder}/cache";
Acquire::Languages "none";
"""


class MirrorUnknown(Exception):
    """The machine names no mirror of Debian, so no other suite of it can be had."""


def environ_of_suite(
    suite: str, folder: Path, *, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What apt-get runs with to see that suite alone; its lists are kept in the folder.

    Raises MirrorUnknown.
    """
    for part in ("no-others", "lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    source = f"deb [signed-by={KEYRING}] {_mirror(environ)} {suite} main\n"
    (folder / "sources.list").write_text(source)
    (folder / "apt.conf").write_text(CONFIGURATION.format(folder=folder))
    return {**environ, "APT_CONFIG": str(folder / "apt.conf")}


def _mirror(environ: Mapping[str, str]) -> str:
    command = ["apt-get", "indextargets", "--format", " ".join(FIELDS)]
    told = subprocess.run(
        command, env=dict(environ), check=True, capture_output=True, text=True, timeout=60
    ).stdout
    machines = ["Packages", platform.freedesktop_os_release()["VERSION_CODENAME"], "main"]
    found = [line.split() for line in told.splitlines()]
    mirrors = [fields[3] for fields in found if fields[:3] == machines]
    if not mirrors:
        raise MirrorUnknown(f"apt-get has no source of {machines[1]} main; add one")
    return mirrors[0]
