"""The pod's volumes, made as a kubelet makes them: contents, modes, group and size.

Only of the kinds that the manifests use.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.manifests import Manifest
from tests.rehearsal.steps import StepFailed

MEBIBYTES = {"Mi": 1, "Gi": 1024}
DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Where the volumes lie, and what the cluster holds for them."""

    folder: Path
    group: int | None  # the pod's fsGroup
    config_maps: Mapping[str, Mapping[str, str]]  # {name: {file: text}}
    secrets: Mapping[str, Mapping[str, str]]

    def make(self, volumes: list[Manifest]) -> None:
        """All of them; raises StepFailed for what the cluster does not hold."""
        self.folder.mkdir()
        for volume in volumes:
            folder = self.path(volume["name"])
            folder.mkdir()
            if "emptyDir" in volume:
                self._make_empty(folder, volume["emptyDir"])
            elif "configMap" in volume:
                source = volume["configMap"]
                self._project(folder, source, _held(self.config_maps, source["name"]))
            elif "secret" in volume:
                source = volume["secret"]
                self._project(folder, source, _held(self.secrets, source["secretName"]))
            else:
                raise StepFailed(f"volume {volume['name']} is of a kind that is not rehearsed")

    def path(self, name: str) -> Path:
        """Where the volume of that name lies."""
        return self.folder / name

    def remove(self, volumes: list[Manifest]) -> None:
        """Unmount what was mounted."""
        for volume in volumes:
            if "emptyDir" in volume:
                subprocess.run(["/bin/umount", self.path(volume["name"])], check=True)

    def _make_empty(self, folder: Path, source: Manifest) -> None:
        options = f"size={byte_count(source['sizeLimit'])}"
        subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
        folder.chmod(0o777)
        if self.group is not None:
            os.chown(folder, 0, self.group)
            folder.chmod(0o2777)

    def _project(self, folder: Path, source: Manifest, files: Mapping[str, str]) -> None:
        # Behind a link, so that all files of a new version arrive at once.
        version = folder / "..version"
        version.mkdir()
        (folder / "..data").symlink_to(version.name)
        for name, text in files.items():
            file = version / name
            file.write_text(text)
            mode = source.get("defaultMode", DEFAULT_MODE)
            file.chmod(mode)
            if self.group is not None:
                os.chown(file, 0, self.group)
                file.chmod(mode | 0o440)  # the fsGroup may read
            (folder / name).symlink_to(f"..data/{name}")


def byte_count(quantity: str | int) -> int:
    """A Kubernetes quantity of memory in bytes."""
    text = str(quantity)
    unit = text.lstrip("0123456789")
    if not unit:
        return int(text)
    if unit not in MEBIBYTES:
        raise StepFailed(f"the quantity {text} has a unit that is not rehearsed")
    return int(text.removesuffix(unit)) * MEBIBYTES[unit] << 20


def _held(held: Mapping[str, Mapping[str, str]], name: str) -> Mapping[str, str]:
    if name not in held:
        raise StepFailed(f"the cluster holds no {name!r}, only {', '.join(held)}")
    return held[name]
