"""Containers as data: OCI configuration, and the seccomp profile of Debian's engines.

`runtime` runs them.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.debian import debian_package

Profile = dict[str, Any]

# The capabilities that engines grant to root in a build.
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
_PROFILE_PACKAGE = "golang-github-containers-common"  # of Debian's engines
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
_SECCOMP_ARCHITECTURES = {
    "amd64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "arm64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the machine in the container; without `source`, a tmpfs."""

    target: str
    source: Path | None = None
    is_read_only: bool = True

    def settings(self) -> dict[str, Any]:
        """The entry in `config.json`."""
        if self.source is None:
            options = ["nosuid", "nodev", "mode=1777"]
            return _mount(self.target, "tmpfs", options)
        access = "ro" if self.is_read_only else "rw"
        return _mount(self.target, "bind", ["rbind", "nosuid", access], source=str(self.source))


@dataclass(frozen=True, slots=True)
class Container:
    """A process with its root, rights and limits."""

    root: Path
    arguments: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"  # the working directory
    user: int = 0
    group: int = 0
    groups: Sequence[int] = ()  # supplementary
    capabilities: Sequence[str] = ()
    is_root_read_only: bool = False
    may_gain_privileges: bool = False
    memory_bytes: int | None = None
    seccomp: Profile | None = None
    network: Path | None = None  # a namespace; None: the machine's network
    mounts: Sequence[Mount] = ()

    def settings(self, *, control_group: str) -> dict[str, Any]:
        """The `config.json` of the OCI bundle."""
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
            # Swap would raise the limit.
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


def runtime_default() -> Profile:
    """Return the seccomp profile `RuntimeDefault` without capabilities; raises ToolUnavailable."""
    folder = debian_package(_PROFILE_PACKAGE)
    shipped = json.loads((folder / "usr/share/containers/seccomp.json").read_text())
    return _without_capabilities(shipped)


def _without_capabilities(shipped: Profile) -> Profile:
    """The rules of an engine's profile for this architecture and no capabilities."""
    return {
        "defaultAction": shipped["defaultAction"],
        "defaultErrnoRet": shipped["defaultErrnoRet"],
        "architectures": _SECCOMP_ARCHITECTURES[ARCHITECTURE],
        "syscalls": [_rule(rule) for rule in shipped["syscalls"] if _holds(rule)],
    }


def _holds(rule: Profile) -> bool:
    # A rule that excludes a capability applies to containers without it.
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    is_for_here = ARCHITECTURE in includes.get("arches", [ARCHITECTURE])
    return (
        is_for_here and not includes.get("caps") and ARCHITECTURE not in excludes.get("arches", [])
    )


def _rule(rule: Profile) -> Profile:
    taken = {name: rule[name] for name in ("names", "action", "args") if rule.get(name)}
    return taken if "errnoRet" not in rule else {**taken, "errnoRet": rule["errnoRet"]}
