"""The rehearsal's network: one namespace for each machine, on one bridge.

Lies in a network namespace of the rehearsal's own: nothing of it is seen on the machine, and all
of it goes with the rehearsal's process, however that ends.
"""

import subprocess
from dataclasses import replace
from pathlib import Path

from tests.debian_tool import debian_tool
from tests.image.container import Container

NODE = "10.244.0.1"
POD = "10.244.0.10"
DATABASE = "10.244.0.20"
MONITORING = "10.244.0.30"
EVERYBODY = "10.244.0.0/24"
MACHINES = {"pod": POD, "database": DATABASE, "monitoring": MONITORING}  # {name: address}
NAMESPACES = Path("/run/netns")


def make_network() -> None:
    """The bridge, and each machine's namespace with its address; raises CalledProcessError."""
    NAMESPACES.mkdir(exist_ok=True)
    # Our mount namespace alone sees the names that are given in here.
    subprocess.run(["/bin/mount", "-t", "tmpfs", "tmpfs", NAMESPACES], check=True)
    _ip("link set lo up")
    _ip("link add pods type bridge")
    _ip(f"addr add {NODE}/24 dev pods")
    _ip("link set pods up")
    for name, address in MACHINES.items():
        _ip(f"netns add {name}")
        _ip(f"link add {name} type veth peer name eth0 netns {name}")
        _ip(f"link set {name} master pods up")
        _ip(f"-n {name} addr add {address}/24 dev eth0")
        _ip(f"-n {name} link set eth0 up")
        _ip(f"-n {name} link set lo up")


def remove_network() -> None:
    """All namespaces and the bridge."""
    for name in MACHINES:
        _ip(f"netns delete {name}")
    _ip("link delete pods")


def joined(container: Container, machine: str) -> Container:
    """The container with that machine's network."""
    return replace(container, network=NAMESPACES / machine)


def namespaces() -> list[str]:
    """The machines that there are."""
    return sorted(each.name for each in NAMESPACES.iterdir())


def _ip(arguments: str) -> None:
    program = debian_tool("iproute2", "ip")
    done = subprocess.run(
        [program, *arguments.split()], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")
