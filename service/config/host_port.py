"""Where to listen by TCP: a host and a port, as in `127.0.0.1:8815` or `[::1]:8815`.

Resolves no names: what a name means is known when the address is bound.
"""

import ipaddress
import re
from dataclasses import dataclass

FORM = r"(?:\[([0-9a-fA-F.]*:[0-9a-fA-F:.]*)\]|([A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}))):(\d{1,5})"
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104  # recognised, not bound


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host (an IP address or a name) and a port; port 0 takes any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine (in Kubernetes: this pod) reaches it, for certain."""
        address = ip_address(self.host)
        return self.host.lower() == "localhost" if address is None else address.is_loopback

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address, and no name."""
        return ip_address(self.host) is not None

    def collides_with(self, other: "HostPort") -> bool:
        """Whether both cannot be bound at the same time."""
        is_same_host = self.host == other.host or not WILDCARDS.isdisjoint({self.host, other.host})
        return self.port == other.port != 0 and is_same_host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_host_port(text: object) -> HostPort:
    """The address that a text names; raises ValueError naming the accepted form."""
    match = re.fullmatch(FORM, text, re.ASCII) if isinstance(text, str) else None
    if match is None or int(match[3]) > 65535 or (match[1] and ip_address(match[1]) is None):
        raise ValueError(
            f"{repr(text)[:60]} is not host:port, such as 127.0.0.1:8815 or [::1]:8815, "
            "with a port from 0 to 65535"
        )
    return HostPort(match[1] or match[2], int(match[3]))


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a text is; None for a name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
