"""The system calls that a container may make: the profile that Debian's container engines use.

What a node means by `seccompProfile: RuntimeDefault`, for a container without capabilities.
"""

import json
from typing import Any

from tests.debian_tool import debian_package

PACKAGE = "golang-github-containers-common"  # the engines of Debian have it from there
ARCHITECTURE = "amd64"

Profile = dict[str, Any]


def runtime_default() -> Profile:
    """The profile in the form that runtimes read; raises ToolUnavailable."""
    folder = debian_package(PACKAGE)
    shipped = json.loads((folder / "usr/share/containers/seccomp.json").read_text())
    return profile_without_capabilities(shipped)


def profile_without_capabilities(shipped: Profile) -> Profile:
    """An engine's profile, with those rules alone that hold here for a container without any."""
    return {
        "defaultAction": shipped["defaultAction"],
        "defaultErrnoRet": shipped["defaultErrnoRet"],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [_rule(rule) for rule in shipped["syscalls"] if _holds(rule)],
    }


def _holds(rule: Profile) -> bool:
    # What excludes a capability holds for who has not got it.
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    is_for_here = ARCHITECTURE in includes.get("arches", [ARCHITECTURE])
    return (
        is_for_here and not includes.get("caps") and ARCHITECTURE not in excludes.get("arches", [])
    )


def _rule(rule: Profile) -> Profile:
    taken = {name: rule[name] for name in ("names", "action", "args") if rule.get(name)}
    return taken if "errnoRet" not in rule else {**taken, "errnoRet": rule["errnoRet"]}
