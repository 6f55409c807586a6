"""A probe of a container as its manifest has it: an HTTP request to the pod's address.

When it is asked, and what follows from its answers, is the kubelet's part.
"""

import http.client
from dataclasses import dataclass

from tests.k8s.manifests import Manifest
from tests.rehearsal.steps import StepFailed


@dataclass(frozen=True, slots=True)
class Probe:
    """Where it asks, how often, and how many failures count."""

    name: str
    address: str
    port: int
    path: str
    period_s: float
    timeout_s: float
    failure_threshold: int

    @classmethod
    def of(cls, container: Manifest, name: str, *, address: str) -> "Probe":
        """The container's probe of that name, with Kubernetes' defaults."""
        manifest = container[name]
        return cls(
            name=name,
            address=address,
            port=named_port(container, manifest["httpGet"]["port"]),
            path=manifest["httpGet"].get("path", "/"),
            period_s=manifest.get("periodSeconds", 10),
            timeout_s=manifest.get("timeoutSeconds", 1),
            failure_threshold=manifest.get("failureThreshold", 3),
        )

    def failure(self) -> str | None:
        """Ask once: what went wrong, or None."""
        asked = f"{self.name}: GET http://{self.address}:{self.port}{self.path}"
        connection = http.client.HTTPConnection(self.address, self.port, timeout=self.timeout_s)
        try:
            connection.request("GET", self.path)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"{asked}: {error}"
        finally:
            connection.close()
        is_success = 200 <= status < 400
        return None if is_success else f"{asked}: {status}"


def named_port(container: Manifest, port: str | int) -> int:
    """The number of a port that is given by name or number; raises StepFailed if there is none."""
    if isinstance(port, int):
        return port
    ports: dict[str, int] = {
        each["name"]: each["containerPort"] for each in container.get("ports", [])
    }
    if port not in ports:
        raise StepFailed(f"{container['name']} has no port called {port!r}")
    return ports[port]
