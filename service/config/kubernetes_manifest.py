"""Tells a Kubernetes manifest from a configuration, which is easily given in its place.

Reads nothing out of it: who checks a file wants to know of that file.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SUFFIXES = (".yaml", ".yml")
_USUAL = "sidelook.yaml"


def manifest_fault(path: Path, values: Mapping[str, Any]) -> str | None:
    """What is said of a manifest, with the command that takes the configuration out of it."""
    kind = values.get("kind")
    if "apiVersion" not in values or not isinstance(kind, str):
        return None
    if kind != "ConfigMap":
        return f"{path}: is a Kubernetes {kind}, not a configuration"
    name = _configuration_of(values.get("data"))
    escaped = name.replace(".", r"\.")
    # Not the manifest's own name, which the shell would empty before it is read.
    command = ("kubectl", "patch", "--local", "-f", str(path), "-p", "{}", "-o")
    written = shlex.join([*command, f"jsonpath={{.data.{escaped}}}"])
    target = shlex.quote(f"{path.stem}.plain.yaml")
    return (
        f"{path}: is a Kubernetes ConfigMap; check what stands below its data.{name}: "
        f"{written} > {target}"
    )


def _configuration_of(data: object) -> str:
    """The key that looks most like a file of ours."""
    names = [str(name) for name in data] if isinstance(data, Mapping) else []
    files = [name for name in names if name.endswith(_SUFFIXES)]
    return _USUAL if _USUAL in files else (files or [_USUAL])[0]
