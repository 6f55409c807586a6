"""Kubernetes manifests as plain values, and the quantities in them.

Not a validator: what is missing or of another kind reads as empty, and the API server refuses it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lookup_core.errors import ConfigurationError

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([numkKMGTPE]?i?)")
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0} | {
    f"{letter}{binary}": (1024.0 if binary else 1000.0) ** power
    for power, letter in enumerate("KMGTPE", 1)
    for binary in ("", "i")
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A mapping of a manifest, at any depth."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def below(self, *names: str) -> "Manifest":
        """The mapping at the end of these steps; an empty one if there is none."""
        value: object = self.values
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return Manifest(value if isinstance(value, Mapping) else {})

    def items(self, name: str) -> "Sequence[Manifest]":
        """The mappings in a list."""
        value = self.values.get(name)
        items = value if isinstance(value, list) else []
        return [Manifest(each) for each in items if isinstance(each, Mapping)]

    def get(self, name: str) -> Any:  # noqa: ANN401  as the file has it
        """A value; None if there is none."""
        return self.values.get(name)

    def text(self, name: str) -> str:
        """A value as text; empty if there is none."""
        value = self.values.get(name)
        return "" if value is None else str(value)

    def number(self, name: str, default: int) -> int:
        """A whole number; the default for anything else."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


def read_manifests(path: Path) -> Sequence[Manifest]:
    """The documents in a file; raises ConfigurationError that says why it cannot be read."""
    try:
        documents = list(YAML(typ="safe", pure=True).load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"]) from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(["is not YAML; of a Helm chart, give what it renders"]) from error
    return [Manifest(each) for each in documents if isinstance(each, Mapping)]


def quantity(text: str) -> float | None:
    """An amount as Kubernetes writes it: `500m`, `768Mi`, `1`; None if it is none."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    unit = "K" if match[2] == "k" else match[2]
    return float(match[1]) * _UNITS[unit] if unit in _UNITS else None
