"""A kustomization, built as `kubectl apply -k` would; nothing is applied."""

import subprocess
from functools import cache
from pathlib import Path

from tests.debian_tool import debian_tool
from tests.k8s.manifests import Manifest, parse_manifests

TIMEOUT_S = 60


class KustomizationRefused(Exception):
    """Kustomize cannot build the folder; the text is what it says."""


def build_kustomization(folder: Path) -> list[Manifest]:
    """The manifests of a kustomization; raises KustomizationRefused, and ToolUnavailable."""
    built = subprocess.run(
        [_kustomize(), "build", str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if built.returncode:
        raise KustomizationRefused(built.stderr.strip())
    return parse_manifests(built.stdout)


@cache
def _kustomize() -> Path:
    # Debian has it from trixie on; it runs on older ones, too.
    return debian_tool("kustomize", "kustomize", suite="trixie")
