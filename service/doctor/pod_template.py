"""The executor pod's template as far as the sidecar in it is concerned.

Finds the parts; what they mean is decided in `pod_findings` and `container_findings`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.doctor.manifest import Manifest, read_manifests

NAME = "sidelook"


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod, and the container in it that is the sidecar."""

    pod: Manifest
    sidecar: Manifest | None  # None: there is none
    is_init_container: bool = False

    @classmethod
    def of(cls, pod: Manifest) -> "PodTemplate":
        """Find the sidecar: by its name, or by its image."""
        for place in ("initContainers", "containers"):
            for container in pod.below("spec").items(place):
                image = container.text("image").rpartition("/")[2]
                if container.text("name") == NAME or image.partition(":")[0] == NAME:
                    return cls(pod, container, is_init_container=place == "initContainers")
        return cls(pod, None)

    @property
    def spec(self) -> Manifest:
        """The pod's specification."""
        return self.pod.below("spec")

    @property
    def executors(self) -> Sequence[Manifest]:
        """The ordinary containers besides the sidecar."""
        return [each for each in self.spec.items("containers") if each != self.sidecar]

    @property
    def is_native(self) -> bool:
        """Whether Kubernetes starts the sidecar first, ends it last and restarts it alone."""
        return (
            self.sidecar is not None
            and self.is_init_container
            and self.sidecar.get("restartPolicy") == "Always"
        )


def read_pod_template(path: Path) -> PodTemplate:
    """The pod in a file; raises ConfigurationError if there is none."""
    pods = [each for each in read_manifests(path) if each.get("kind") == "Pod"]
    if not pods:
        raise ConfigurationError(["holds no Pod; give the file that Spark gets as its template"])
    return PodTemplate.of(pods[0])
