"""Pod template check: kind of sidecar, socket, users, network and secrets."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.doctor.deployment.container_findings import (
    SidecarNeeds,
    container_findings,
    container_socket,
    override_findings,
)
from service.doctor.deployment.manifest import Manifest, read_manifests
from service.doctor.finding import Finding, Subject

NAME = "sidelook"
DEFAULT_NEEDS = SidecarNeeds()


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod and its sidecar container."""

    pod: Manifest
    sidecar: Manifest | None  # None: there is none
    is_init_container: bool = False

    @classmethod
    def of(cls, pod: Manifest) -> "PodTemplate":
        """Return the pod with its sidecar, which is found by its name or its image."""
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
        """Ordinary containers, except the sidecar."""
        return [each for each in self.spec.items("containers") if each != self.sidecar]

    @property
    def is_native(self) -> bool:
        """Whether Kubernetes starts the sidecar first, ends it last, and restarts it alone."""
        return (
            self.sidecar is not None
            and self.is_init_container
            and self.sidecar.get("restartPolicy") == "Always"
        )


def read_pod_template(path: Path) -> PodTemplate:
    """Read the pod of a file; raises ConfigurationError if there is none."""
    pods = [each for each in read_manifests(path) if each.get("kind") == "Pod"]
    if not pods:
        raise ConfigurationError(["holds no Pod; name the file of podTemplateFile"])
    return PodTemplate.of(pods[0])


_TEMPLATE = "as k8s/base/executor-pod/executor-pod-template.yaml has it"


def pod_findings(
    subject: Subject, template: PodTemplate, *, socket: Path | None, checks_all: bool
) -> Iterator[Finding]:
    """Yield the faults of a pod, or one finding without a fault.

    `socket` is listen.unix of the configuration; `checks_all` is Spark's checkAllContainers.
    """
    if template.sidecar is None:
        yield subject.error(
            "there is no container sidelook", f"add it to initContainers, {_TEMPLATE}"
        )
        return
    yield _kind_finding(subject, template, checks_all=checks_all)
    shared = container_socket(template.sidecar)
    faults = [
        *_network_findings(subject, template.spec),
        *_user_findings(subject, template.spec, [template.sidecar, *template.executors]),
        *override_findings(subject, shared, socket),
        *(_socket_findings(subject, template, shared.path) if shared.path else ()),
        *_secret_findings(subject, template.sidecar),
    ]
    yield from faults or [subject.ok("both containers share the socket and its user")]


def _kind_finding(subject: Subject, template: PodTemplate, *, checks_all: bool) -> Finding:
    if template.is_native:
        return subject.ok("is a native sidecar")
    remedy = f"move it to initContainers with restartPolicy: Always, {_TEMPLATE}"
    if template.is_init_container:
        return subject.error(
            "is an init container without restartPolicy: Always: the executor waits forever",
            "give it restartPolicy: Always",
        )
    if checks_all:
        return subject.error(
            "is an ordinary container: it may start after the executor, and since Spark 4.0 "
            "(spark.kubernetes.executor.checkAllContainers) its end fails the executor",
            remedy,
        )
    return subject.warning(
        "is an ordinary container: it may start after the executor, and end before it", remedy
    )


def _network_findings(subject: Subject, spec: Manifest) -> Iterator[Finding]:
    if spec.get("hostNetwork") is True:
        yield subject.error(
            "hostNetwork: true: every process on the node reaches every listener",
            "remove it; the socket needs no network",
        )
    if spec.get("enableServiceLinks") is not False:
        yield subject.warning(
            "a Service named sidelook would set SIDELOOK_PORT, an unknown key: the start fails",
            "set enableServiceLinks: false",
        )


def _user_findings(
    subject: Subject, spec: Manifest, containers: Sequence[Manifest]
) -> Iterator[Finding]:
    of_pod = spec.below("securityContext")
    own = [each.below("securityContext").get("runAsUser") for each in containers]
    users = {of_pod.get("runAsUser") if user is None else user for user in own}
    if len(users) > 1 and of_pod.get("fsGroup") is None:
        yield subject.error(
            "the containers run as different users, without a shared group for the socket (0660)",
            "give both the same runAsUser and runAsGroup, or the pod an fsGroup",
        )


def _socket_findings(subject: Subject, template: PodTemplate, socket: Path) -> Iterator[Finding]:
    assert template.sidecar is not None
    mount = template.sidecar.mount_at(socket.parent)
    if not mount.values:
        yield subject.error(
            f"no volume is mounted at {socket.parent}, where the sidecar creates its socket",
            "mount an emptyDir there, in both containers",
        )
        return
    volume = mount.text("name")
    if mount.get("readOnly") is True:
        yield subject.error(f"{socket.parent} is mounted readOnly", "remove readOnly")
    for executor in template.executors:
        if executor.mount_at(socket.parent).text("name") != volume:
            yield subject.error(
                f"container {executor.text('name')} does not mount volume {volume} at "
                f"{socket.parent}: it cannot open the socket",
                "add the same volumeMount to it",
            )
    if volume not in {each.text("name") for each in template.spec.items("volumes")}:
        yield subject.error(f"there is no volume {volume}", "add it: emptyDir: { medium: Memory }")


def _secret_findings(subject: Subject, sidecar: Manifest) -> Iterator[Finding]:
    for mount in sidecar.items("volumeMounts"):
        if mount.text("subPath"):
            yield subject.warning(
                f"{mount.text('mountPath')} is mounted by subPath: changes never arrive",
                "mount the whole volume as a folder",
            )


async def check_pod_template(
    subject: Subject,
    *,
    file: Path,
    socket: Path | None = None,
    needs: SidecarNeeds = DEFAULT_NEEDS,
    checks_all: bool = True,
) -> AsyncGenerator[Finding, None]:
    """Yield the findings on the pod of a file and on the sidecar's container.

    `socket` is listen.unix of the configuration; `checks_all` is Spark's checkAllContainers.
    """
    try:
        template = read_pod_template(file)
    except ConfigurationError as error:
        reason, _, remedy = error.detail.partition("; ")
        yield subject.error(reason, remedy or "name the file with --pod-template")
        return
    for finding in pod_findings(subject, template, socket=socket, checks_all=checks_all):
        yield finding
    if template.sidecar is not None:
        for finding in container_findings(subject, template.sidecar, needs):
            yield finding
