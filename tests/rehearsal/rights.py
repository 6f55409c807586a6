"""What a process in a container may do, asked of the kernel in there.

Held against what the container was given; whether that is little enough is a rule of `tests/k8s`.
"""

from tests.image.container import Container
from tests.image.container_runtime import RunningContainer
from tests.rehearsal.steps import demand

PROBE = """
for flag in u g G; do echo "$flag $(id -$flag)"; done
grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
touch /usr/touched 2>&1
"""
FILTERED = 2  # a seccomp filter, as the kernel numbers it


def demand_rights(running: RunningContainer, container: Container) -> None:
    """User, groups, capabilities, system calls, memory and root are as given, or StepFailed."""
    told = running.execute(["sh", "-c", PROBE]).stdout
    groups = dict.fromkeys([container.group, *container.groups])
    expected = [
        f"u {container.user}",
        f"g {container.group}",
        f"G {' '.join(map(str, groups))}",
        f"NoNewPrivs:\t{0 if container.may_gain_privileges else 1}",
    ]
    if not container.capabilities:
        expected.append(f"CapBnd:\t{'0' * 16}")
    if container.seccomp:
        expected.append(f"Seccomp:\t{FILTERED}")
    if container.memory_bytes is not None:
        expected.append(str(container.memory_bytes))
    if container.is_root_read_only:
        expected.append("touch: cannot touch '/usr/touched': Read-only file system")
    missing = [line for line in expected if line not in told.splitlines()]
    demand(not missing, f"not so: {', '.join(missing)}, but\n{told}")
