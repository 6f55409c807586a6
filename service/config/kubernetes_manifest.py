"""Tells a Kubernetes manifest from a configuration, which is easily given in its place.

Reads nothing out of it: who checks a file wants to know of that file.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SUFFIXES = (".yaml", ".yml")


def manifest_fault(path: Path, values: Mapping[str, Any]) -> str | None:
    """What is said of a manifest, with the command that takes the configuration out of it."""
    kind = values.get("kind")
    if "apiVersion" not in values or not isinstance(kind, str):
        return None
    if kind != "ConfigMap":
        return f"{path}: is a Kubernetes {kind}, not a configuration"
    name = _configuration_of(values.get("data"))
    escaped = name.replace(".", r"\.")
    source = shlex.quote(str(path))
    return (
        f"{path}: is a Kubernetes ConfigMap; check what stands below its data.{name}: "
        f"kubectl patch --local -f {source} -p '{{}}' -o jsonpath='{{.data.{escaped}}}' > {name}"
    )


def _configuration_of(data: object) -> str:
    """The key that looks most like a file of ours."""
    names = [str(name) for name in data] if isinstance(data, Mapping) else []
    files = [name for name in names if name.endswith(_SUFFIXES)]
    return (files or ["sidelook.yaml"])[0]
