"""Pod template check: sidecar kind, socket, user, network and secrets."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
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


_TEMPLATE = "as k8s/base/executor-pod/executor-pod-template.yaml has it"


def pod_findings(
    matter: Subject, template: PodTemplate, *, socket: Path | None, checks_all: bool
) -> Iterator[Finding]:
    """What is wrong with it; `checks_all` is what Spark says of all containers.

    `socket` is listen.unix of the configuration, if there is one.
    """
    if template.sidecar is None:
        yield matter.error(
            "there is no container sidelook", f"add it to initContainers, {_TEMPLATE}"
        )
        return
    yield kind_finding(matter, template, checks_all=checks_all)
    shared = container_socket(template.sidecar)
    troubles = [
        *_network_findings(matter, template.spec),
        *_user_findings(matter, template),
        *override_findings(matter, shared, socket),
        *(socket_findings(matter, template, shared.path) if shared.path else ()),
        *_secret_findings(matter, template.sidecar),
    ]
    yield from troubles or [matter.ok("both containers share the socket and its user")]


def kind_finding(matter: Subject, template: PodTemplate, *, checks_all: bool) -> Finding:
    """Whether it is a native sidecar."""
    if template.is_native:
        return matter.ok("is a native sidecar")
    remedy = f"move it to initContainers with restartPolicy: Always, {_TEMPLATE}"
    if template.is_init_container:
        return matter.error(
            "is an init container without restartPolicy: Always: the executor waits for its end, "
            "which never comes",
            "give it restartPolicy: Always",
        )
    if checks_all:
        return matter.error(
            "is an ordinary container: it may start after the executor, and from Spark 4.0 on "
            "(spark.kubernetes.executor.checkAllContainers) its end fails the executor",
            remedy,
        )
    return matter.warning(
        "is an ordinary container: it may start after the executor, and end before it", remedy
    )


def _network_findings(matter: Subject, spec: Manifest) -> Iterator[Finding]:
    if spec.get("hostNetwork") is True:
        yield matter.error(
            "hostNetwork: true: everybody on the node reaches every listener",
            "leave it out; the socket needs no network",
        )
    if spec.get("enableServiceLinks") is not False:
        yield matter.warning(
            "a Service called sidelook would set SIDELOOK_PORT, which stops the start as unknown",
            "set enableServiceLinks: false",
        )


def _user_findings(matter: Subject, template: PodTemplate) -> Iterator[Finding]:
    assert template.sidecar is not None
    containers = [template.sidecar, *template.executors]
    users = {_user(each, template.spec) for each in containers}
    if len(users) > 1 and template.spec.below("securityContext").get("fsGroup") is None:
        yield matter.error(
            "the containers run as different users, without a group of the socket (0660)",
            "give both the same runAsUser and runAsGroup, or the pod an fsGroup",
        )


def _user(container: Manifest, spec: Manifest) -> object:
    own = container.below("securityContext").get("runAsUser")
    return spec.below("securityContext").get("runAsUser") if own is None else own


def socket_findings(matter: Subject, template: PodTemplate, socket: Path) -> Iterator[Finding]:
    """Whether both containers have the socket's folder, of one volume that can be written."""
    assert template.sidecar is not None
    mount = _mount_of(template.sidecar, socket.parent)
    if mount is None:
        yield matter.error(
            f"no volume is mounted at {socket.parent}, where the sidecar makes its socket",
            "mount an emptyDir there, in both containers",
        )
        return
    volume = mount.text("name")
    if mount.get("readOnly") is True:
        yield matter.error(f"{socket.parent} is mounted readOnly", "leave readOnly out")
    for executor in template.executors:
        theirs = _mount_of(executor, socket.parent)
        if theirs is None or theirs.text("name") != volume:
            yield matter.error(
                f"container {executor.text('name')} does not mount volume {volume} at "
                f"{socket.parent}: it finds no socket",
                "add the same volumeMount to it",
            )
    if volume not in {each.text("name") for each in template.spec.items("volumes")}:
        yield matter.error(f"there is no volume {volume}", "add it: emptyDir: { medium: Memory }")


def _mount_of(container: Manifest, folder: Path) -> Manifest | None:
    mounts = container.items("volumeMounts")
    return next((each for each in mounts if Path(each.text("mountPath")) == folder), None)


def _secret_findings(matter: Subject, sidecar: Manifest) -> Iterator[Finding]:
    for mount in sidecar.items("volumeMounts"):
        if mount.text("subPath"):
            yield matter.warning(
                f"{mount.text('mountPath')} is mounted by subPath: what is changed never arrives",
                "mount the whole volume as a folder",
            )


@dataclass(frozen=True, slots=True)
class PodTemplateCheck:
    """The template in a file; what it must fit comes from configuration and spark.conf."""

    file: Path
    socket: Path | None = None  # listen.unix of the configuration
    needs: SidecarNeeds = field(default_factory=SidecarNeeds)
    checks_all: bool = True  # spark.kubernetes.executor.checkAllContainers

    @property
    def matter(self) -> Subject:
        """The file."""
        return Subject("pod template", str(self.file))

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """What is wrong with it."""
        try:
            template = read_pod_template(self.file)
        except ConfigurationError as error:
            reason, _, remedy = error.detail.partition("; ")
            yield self.matter.error(reason, remedy or "name the file with --pod-template")
            return
        for finding in pod_findings(
            self.matter, template, socket=self.socket, checks_all=self.checks_all
        ):
            yield finding
        if template.sidecar is not None:
            for finding in container_findings(self.matter, template.sidecar, self.needs):
                yield finding
