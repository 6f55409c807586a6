"""How pip is set up on this machine, for a pip that runs in another root.

Says nothing about which packages there are; the lock file does.
"""

import ast
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.image.container import Mount

FOLDER = "/mnt"  # in the other root; empty there
PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """Variables and files that let the other pip find what this machine's pip finds."""

    environ: dict[str, str]
    mounts: tuple[Mount, ...]


def package_index() -> PackageIndex:
    """As pip itself says; files that it names are mounted, and named as they lie there."""
    environ = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    mounts = [Mount(FOLDER), Mount("/etc/resolv.conf", Path("/etc/resolv.conf"))]
    for name, text in _settings().items():
        file = Path(text)
        if file.is_absolute() and file.exists():
            mounts.append(Mount(f"{FOLDER}/{name}", file))
            environ[name] = f"{FOLDER}/{name}"
        else:
            environ[name] = text
    return PackageIndex(environ, tuple(mounts))


def _settings() -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    settings = {}
    for line in listed.splitlines():
        name, _, text = line.partition("=")
        variable = name.rpartition(".")[2].replace("-", "_").upper()
        settings[f"PIP_{variable}"] = str(ast.literal_eval(text))
    if bundle := os.environ.get("REQUESTS_CA_BUNDLE"):
        settings.setdefault("PIP_CERT", bundle)
    return settings
