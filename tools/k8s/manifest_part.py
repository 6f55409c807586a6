"""Parts of Kubernetes manifests as plain values, and their quantities.

Does not validate: a missing value, or one of another type, is empty. The API server refuses it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([numkKMGTPE]?i?)")
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0} | {
    f"{letter}{binary}": (1024.0 if binary else 1000.0) ** power
    for power, letter in enumerate("KMGTPE", 1)
    for binary in ("", "i")
}


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """A mapping at any depth of a manifest."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def below(self, *names: str) -> "ManifestPart":
        """Return the mapping at this path; empty if there is none."""
        value: object = self.values
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return ManifestPart(value if isinstance(value, Mapping) else {})

    def items(self, name: str) -> "Sequence[ManifestPart]":
        """Return the mappings of a list."""
        value = self.values.get(name)
        items = value if isinstance(value, list) else []
        return [ManifestPart(each) for each in items if isinstance(each, Mapping)]

    def get(self, name: str) -> Any:  # noqa: ANN401  # any YAML value
        """Return a value of any type; None if there is none."""
        return self.values.get(name)

    def text(self, name: str) -> str:
        """Return a value as text; empty if there is none."""
        value = self.values.get(name)
        return "" if value is None else str(value)

    def number(self, name: str, default: int) -> int:
        """Return a whole number; the default for any other value."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def mount_at(self, folder: PurePath) -> "ManifestPart":
        """Return the volume mount of a container at a folder; empty if there is none."""
        mounts = self.items("volumeMounts")
        found = (each for each in mounts if PurePath(each.text("mountPath")) == folder)
        return next(found, ManifestPart())


def quantity(text: str) -> float | None:
    """Return a Kubernetes quantity, such as `500m`, `768Mi` or `1`; None for other texts."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    unit = "K" if match[2] == "k" else match[2]
    return float(match[1]) * _UNITS[unit] if unit in _UNITS else None
