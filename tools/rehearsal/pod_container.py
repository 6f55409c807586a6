"""Containers and volumes of a pod, as a kubelet makes them from the manifests.

Settings of a container take precedence over those of the pod, as in Kubernetes.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from service.doctor.deployment.manifest import quantity
from tools.image.container import Container, Mount, Profile, runtime_default
from tools.image.runtime import RunningContainer
from tools.k8s.manifests import Manifest
from tools.processes.steps import StepFailed, demand

DEFAULT_MODE = 0o644
# The image has no shell.
RIGHTS_PROGRAM = """
import os, re
from pathlib import Path
print("user", os.getuid())
print("groups", *dict.fromkeys([os.getgid(), *os.getgroups()]))
status = Path("/proc/self/status").read_text()
print(*re.findall("^(?:CapBnd|NoNewPrivs|Seccomp):.*", status, re.MULTILINE), sep="\\n")
for limit in "memory.max", "memory/memory.limit_in_bytes":
    file = Path("/sys/fs/cgroup", limit)
    print(file.read_text() if file.exists() else "")
try:
    Path("/usr/touched").touch()
except OSError as error:
    print(error.strerror)
"""
FILTERED = 2  # the kernel's number for a seccomp filter


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The volumes of a pod, and the ConfigMaps and secrets of the cluster."""

    folder: Path
    group: int | None  # the pod's fsGroup
    config_maps: Mapping[str, Mapping[str, str]]  # {name: {file: text}}
    secrets: Mapping[str, Mapping[str, str]]

    def make(self, volumes: list[Manifest]) -> None:
        """Create all volumes; raises StepFailed for an unknown kind, ConfigMap or secret."""
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
        """The folder of a volume."""
        return self.folder / name

    def remove(self, volumes: list[Manifest]) -> None:
        """Unmount the volumes in memory."""
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
        # Behind a link, as in Kubernetes: all files of a new version arrive at once.
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


def pod_container(
    container: Container, manifest: Manifest, *, pod: Manifest, volumes: PodVolumes
) -> Container:
    """The container of the image with the settings of its manifest."""
    security = {**pod["spec"].get("securityContext", {}), **manifest.get("securityContext", {})}
    variables = {each["name"]: each["value"] for each in manifest.get("env", [])}
    limit = manifest.get("resources", {}).get("limits", {}).get("memory")
    user = security.get("runAsUser", container.user)
    if security.get("runAsNonRoot") and user == 0:
        raise StepFailed(f"{manifest['name']} would run as root, which runAsNonRoot forbids")
    mounts = [_mount(each, volumes) for each in manifest.get("volumeMounts", [])]
    return replace(
        container,
        environ={**container.environ, **variables},
        user=user,
        group=security.get("runAsGroup", container.group),
        groups=[security["fsGroup"]] if "fsGroup" in security else [],
        capabilities=_capabilities(security),
        is_root_read_only=security.get("readOnlyRootFilesystem", False),
        may_gain_privileges=security.get("allowPrivilegeEscalation", True),
        memory_bytes=None if limit is None else byte_count(limit),
        seccomp=_seccomp(security),
        mounts=[*container.mounts, *mounts],
    )


def demand_rights(running: RunningContainer, container: Container) -> None:
    """Raises StepFailed unless the process has the user, rights and limits of the container."""
    output = running.execute(["python", "-c", RIGHTS_PROGRAM]).stdout
    groups = dict.fromkeys([container.group, *container.groups])
    expected = [
        f"user {container.user}",
        f"groups {' '.join(map(str, groups))}",
        f"NoNewPrivs:\t{0 if container.may_gain_privileges else 1}",
    ]
    if not container.capabilities:
        expected.append(f"CapBnd:\t{'0' * 16}")
    if container.seccomp:
        expected.append(f"Seccomp:\t{FILTERED}")
    if container.memory_bytes is not None:
        expected.append(str(container.memory_bytes))
    if container.is_root_read_only:
        expected.append("Read-only file system")
    missing = [line for line in expected if line not in output.splitlines()]
    demand(not missing, f"missing: {', '.join(missing)} in\n{output}")


def byte_count(size: str | int) -> int:
    """A Kubernetes quantity of memory in bytes; raises StepFailed if it is none."""
    count = quantity(str(size))
    if count is None:
        raise StepFailed(f"{size} is no quantity of memory")
    return int(count)


def _mount(manifest: Manifest, volumes: PodVolumes) -> Mount:
    folder = volumes.path(manifest["name"])
    if not folder.exists():
        raise StepFailed(f"the pod has no volume {manifest['name']}")
    is_read_only = manifest.get("readOnly", False)
    return Mount(manifest["mountPath"], folder, is_read_only=is_read_only)


def _capabilities(security: Manifest) -> tuple[str, ...]:
    # The pods of this project keep none.
    capabilities = security.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"]:
        raise StepFailed("capabilities are rehearsed only with drop: [ALL]")
    return tuple(f"CAP_{name}" for name in capabilities.get("add", []))


def _seccomp(security: Manifest) -> Profile | None:
    kind = security.get("seccompProfile", {}).get("type", "Unconfined")
    return runtime_default() if kind == "RuntimeDefault" else None


def _held(held: Mapping[str, Mapping[str, str]], name: str) -> Mapping[str, str]:
    if name not in held:
        raise StepFailed(f"the cluster has no {name!r}, only {', '.join(held)}")
    return held[name]
