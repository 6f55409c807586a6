"""A container as data, and the OCI configuration that a runtime is given for it.

Runs nothing; see `container_runtime`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.image.seccomp_profile import Profile

# What engines leave a process of root that builds an image.
BUILD_CAPABILITIES = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"),
    *("CAP_SETGID", "CAP_SETUID", "CAP_SYS_CHROOT"),
)
_CAPABILITY_SETS = ("bounding", "effective", "permitted")
_MOUNTS = (
    ("/proc", "proc", ("nosuid", "noexec", "nodev")),
    ("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    ("/dev/pts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
    ("/dev/shm", "tmpfs", ("nosuid", "noexec", "nodev", "mode=1777", "size=65536k")),
    ("/sys", "sysfs", ("nosuid", "noexec", "nodev", "ro")),
    ("/sys/fs/cgroup", "cgroup", ("nosuid", "noexec", "nodev", "relatime", "ro")),
)
_NAMESPACES = ("pid", "ipc", "uts", "mount")


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the machine in the container; without a source, memory."""

    target: str
    source: Path | None = None
    is_read_only: bool = True

    def settings(self) -> dict[str, Any]:
        """As the runtime reads it."""
        if self.source is None:
            options = ["nosuid", "nodev", "mode=1777"]
            return _mount(self.target, "tmpfs", options)
        access = "ro" if self.is_read_only else "rw"
        return _mount(self.target, "bind", ["rbind", "nosuid", access], source=str(self.source))


@dataclass(frozen=True, slots=True)
class Container:
    """What is to run, where, and with which rights."""

    root: Path
    arguments: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"  # the working directory
    user: int = 0
    group: int = 0
    groups: Sequence[int] = ()  # beside that one
    capabilities: Sequence[str] = ()
    is_root_read_only: bool = False
    may_gain_privileges: bool = False
    memory_bytes: int | None = None
    seccomp: Profile | None = None
    network: Path | None = None  # a namespace; without one, the machine's network
    mounts: Sequence[Mount] = ()

    def settings(self, *, control_group: str) -> dict[str, Any]:
        """The `config.json` of its bundle."""
        return {
            "ociVersion": "1.0.2",
            "root": {"path": str(self.root), "readonly": self.is_root_read_only},
            "hostname": control_group.strip("/"),
            "process": self._process(),
            "mounts": [
                *(_mount(target, kind, options) for target, kind, options in _MOUNTS),
                *(mount.settings() for mount in self.mounts),
            ],
            "linux": self._kernel_settings(control_group),
        }

    def _process(self) -> dict[str, Any]:
        granted = list(self.capabilities)
        return {
            "args": list(self.arguments),
            "cwd": self.folder,
            "env": [f"{name}={text}" for name, text in self.environ.items()],
            "user": {"uid": self.user, "gid": self.group, "additionalGids": list(self.groups)},
            "capabilities": dict.fromkeys(_CAPABILITY_SETS, granted),
            "noNewPrivileges": not self.may_gain_privileges,
        }

    def _kernel_settings(self, control_group: str) -> dict[str, Any]:
        namespaces = [{"type": kind} for kind in _NAMESPACES]
        if self.network:
            namespaces.append({"type": "network", "path": str(self.network)})
        settings: dict[str, Any] = {"namespaces": namespaces, "cgroupsPath": control_group}
        if self.memory_bytes is not None:
            # Swap would let it have more.
            limit = {"limit": self.memory_bytes, "swap": self.memory_bytes}
            settings["resources"] = {"memory": limit}
        if self.seccomp:
            settings["seccomp"] = self.seccomp
        return settings


def _mount(target: str, kind: str, options: Sequence[str], *, source: str = "") -> dict[str, Any]:
    return {
        "destination": target,
        "type": kind,
        "source": source or kind,
        "options": list(options),
    }
