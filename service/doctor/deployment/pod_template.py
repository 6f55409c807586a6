"""Pod template check: kind of sidecar, socket, users, network, and the sidecar's container."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from lookup_core.settings import CacheMode, CacheShare
from service.config.environment import WORDS, variable_of
from service.config.quantity import duration_text, size_text
from service.config.settings import Settings
from service.doctor.deployment.manifest import Manifest, quantity, read_manifests
from service.doctor.finding import Finding, Subject
from service.doctor.sidecar.process_limits_check import memory_finding
from service.resources.memory_shares import MemoryShares, shared_file_bytes

_MEBIBYTE = 2**20
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@dataclass(frozen=True, slots=True)
class SidecarNeeds:
    """Requirements of a configuration on the container."""

    memory_bytes: int = 512 * _MEBIBYTE  # limits.memory
    longest_load_s: float = 0.0  # longest time until /startupz succeeds
    has_health: bool = True  # a health listener that is not on loopback
    probe_ports: frozenset[int] = frozenset({8816})  # ports that answer at the pod's IP
    shared_bytes: int = 448 * _MEBIBYTE  # in the socket's folder, for shared caches; 0: none

    @classmethod
    def of(cls, settings: Settings) -> "SidecarNeeds":
        """Return the requirements of a configuration."""
        loads = [
            each.cache.warmup_max_wait_s
            for each in settings.dimensions.values()
            if each.cache.mode is CacheMode.FULL
        ]
        health = settings.listen.health
        return cls(
            settings.limits.memory_bytes,
            max(loads, default=0.0),
            has_health=health is not None and not health.is_loopback,
            probe_ports=frozenset(
                each.port
                for each in (health, settings.listen.http)
                if each is not None and not each.is_loopback
            ),
            shared_bytes=_shared_bytes(settings),
        )


def _shared_bytes(settings: Settings) -> int:
    caches = [each.cache for each in settings.dimensions.values()]
    scale = MemoryShares(settings.limits.memory_bytes).cache_scale(
        sum(each.wanted_bytes for each in caches)
    )
    shared = [each.wanted_bytes for each in caches if each.share is CacheShare.AUTO]
    return shared_file_bytes(int(scale * sum(shared)))


def container_findings(
    subject: Subject, sidecar: Manifest, needs: SidecarNeeds
) -> Iterator[Finding]:
    """Yield the findings on the sidecar's container."""
    yield _memory_finding(subject, sidecar, needs)
    processors = quantity(sidecar.below("resources", "limits").text("cpu"))
    if processors is not None and processors < 1.0:
        yield subject.warning(
            f"is limited to {processors:g} processors: throttling stops the event loop for all "
            "tasks",
            "remove limits.cpu, and set requests.cpu only",
        )
    yield _startup_finding(subject, sidecar, needs)
    if not needs.has_health and any(sidecar.get(name) for name in _PROBES):
        yield subject.error(
            "has probes, and listen.health is closed or on loopback: the probes fail",
            "set listen.health: 0.0.0.0:8816",
        )
    else:
        yield from _probe_findings(subject, sidecar, needs.probe_ports)
    yield from _configuration_findings(subject, sidecar)
    if sidecar.below("lifecycle").get("preStop"):
        yield subject.warning(
            "has a preStop hook, which runs while the executor still looks up",
            "remove it: the sidecar drains on SIGTERM, which arrives after the executor's end",
        )


def _memory_finding(subject: Subject, sidecar: Manifest, needs: SidecarNeeds) -> Finding:
    limit = quantity(sidecar.below("resources", "limits").text("memory"))
    if limit is None:
        return subject.warning(
            "has no memory limit: if it grows, the kernel may kill the executor instead",
            f"set resources.limits.memory to {size_text(needs.memory_bytes // 2 * 3)} or more",
        )
    return memory_finding(subject, needs.memory_bytes, int(limit))


def _startup_finding(subject: Subject, sidecar: Manifest, needs: SidecarNeeds) -> Finding:
    probe = sidecar.below("startupProbe")
    if not probe.values:
        return subject.warning(
            "has no startupProbe: the executor starts before the sidecar listens",
            "add a startupProbe of /startupz at the health port",
        )
    limit_s = probe.number("initialDelaySeconds", 0) + (
        probe.number("periodSeconds", 10) * probe.number("failureThreshold", 3)
    )
    if limit_s > needs.longest_load_s:
        return subject.ok(f"the startupProbe waits {limit_s} s, longer than any load")
    return subject.error(
        f"the startupProbe waits {limit_s} s, and cache.warmup_max_wait is "
        f"{duration_text(needs.longest_load_s)}: the sidecar is killed while it loads, and starts "
        "again",
        "set its failureThreshold for a wait of more than "
        f"{duration_text(needs.longest_load_s + 60)}",
    )


def _probe_findings(
    subject: Subject, sidecar: Manifest, ports: frozenset[int]
) -> Iterator[Finding]:
    names = {each.text("name"): each.get("containerPort") for each in sidecar.items("ports")}
    for name in _PROBES:
        over_http, over_tcp = sidecar.below(name, "httpGet"), sidecar.below(name, "tcpSocket")
        port = over_http.get("port") or over_tcp.get("port")  # a number, or the name of a port
        if port is not None and names.get(str(port), port) not in ports:
            listening = ", ".join(map(str, sorted(ports)))
            yield subject.error(
                f"the {name} uses port {port}, and the sidecar listens on {listening}: it never "
                "succeeds",
                f"set its port to {listening}, or to the name of that port in the container",
            )


def _configuration_findings(subject: Subject, sidecar: Manifest) -> Iterator[Finding]:
    lists = [sidecar.get(name) for name in ("command", "args")]
    words = [str(word) for each in lists if isinstance(each, list) for word in each]
    mounts = [Path(each.text("mountPath")) for each in sidecar.items("volumeMounts")]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, _, value = word.partition("=")
        file = Path(value or following)
        is_mounted = any(file == each or each in file.parents for each in mounts)
        if option == "--config" and file.is_absolute() and not is_mounted:
            yield subject.warning(
                f"no volume contains --config {file}: unless the image has the file, the sidecar "
                "does not start",
                f"mount the ConfigMap at {file.parent}, or name a mounted file",
            )


VARIABLE = variable_of(("listen", "unix"))
IMAGE_SOCKET = Path("/run/sidelook/sidelook.sock")  # value of the variable in the image


@dataclass(frozen=True, slots=True)
class ContainerSocket:
    """The socket path in the sidecar's container."""

    path: Path | None  # None: no socket, or an unknown path
    is_known: bool = True
    is_of_image: bool = False  # the template does not set the variable


def container_socket(sidecar: Manifest) -> ContainerSocket:
    """Return the socket path; of a variable that is set twice, Kubernetes uses the last value."""
    found = [each for each in sidecar.items("env") if each.text("name") == VARIABLE]
    if not found:
        return ContainerSocket(IMAGE_SOCKET, is_of_image=True)
    if found[-1].get("valueFrom") is not None:
        return ContainerSocket(None, is_known=False)
    text = WORDS.get(found[-1].text("value"), found[-1].text("value"))
    return ContainerSocket(Path(text) if isinstance(text, str) else None)


def override_findings(
    subject: Subject, socket: ContainerSocket, configured: Path | None
) -> Iterator[Finding]:
    """Yield a finding if the socket is unknown, or differs from listen.unix of the file."""
    if not socket.is_known:
        yield subject.skipped(
            f"{VARIABLE} has no value in the template (valueFrom): the socket path is unknown",
            "set its value in the template, or check that both containers mount its folder",
        )
    elif socket.is_of_image and configured not in {None, socket.path}:
        yield subject.warning(
            f"listen.unix of the configuration ({configured}) has no effect: {VARIABLE} of the "
            f"image is {socket.path}, and overrides it",
            f"set listen.unix to {socket.path}, or {VARIABLE} to {configured} in the env of the "
            "container",
        )


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
            "the containers run as different users, without a shared group for the socket (0660) "
            "and the shared caches (0640)",
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


def volume_findings(
    subject: Subject, template: PodTemplate, needs: SidecarNeeds
) -> Iterator[Finding]:
    """Yield whether the volume of the socket can hold the shared caches.

    A volume or mount that is missing is a finding of `pod_findings`.
    """
    socket = None if template.sidecar is None else container_socket(template.sidecar).path
    if template.sidecar is None or socket is None or not needs.shared_bytes:
        return
    name = template.sidecar.mount_at(socket.parent).text("name")
    volumes = {each.text("name"): each for each in template.spec.items("volumes")}
    if name not in volumes:
        return
    source = volumes[name].below("emptyDir")
    needed = f"{-(-needs.shared_bytes // _MEBIBYTE)}Mi"
    limit = quantity(source.text("sizeLimit"))
    if source.get("medium") != "Memory":
        yield subject.warning(
            f"volume {name} is not in memory: workers cannot read the caches of the sidecar",
            f"make it emptyDir: {{ medium: Memory, sizeLimit: {needed} }}, or set cache.share: off",
        )
    elif limit is not None and limit < needs.shared_bytes:
        yield subject.warning(
            f"volume {name} has {source.text('sizeLimit')}, and the files of shared caches need up "
            f"to {needed}: when it is full, workers use the socket only",
            f"set its sizeLimit to {needed}, which reserves no memory, or set cache.share: off",
        )
    else:
        yield subject.ok(f"volume {name} can hold the shared caches")


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
        for finding in volume_findings(subject, template, needs):
            yield finding
