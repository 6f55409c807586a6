"""Container findings: probes, memory, processors, termination and socket path of the sidecar."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lookup_core.settings import CacheMode
from service.config.environment import WORDS, variable_of
from service.config.quantity import duration_text, size_text
from service.config.settings import Settings
from service.doctor.deployment.manifest import Manifest, quantity
from service.doctor.finding import Finding, Subject
from service.doctor.sidecar.process_limits_check import memory_finding

_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@dataclass(frozen=True, slots=True)
class SidecarNeeds:
    """Requirements of a configuration on the container."""

    memory_bytes: int = 512 * 2**20  # limits.memory
    longest_load_s: float = 0.0  # longest time until /startupz succeeds
    has_health: bool = True  # a health listener that is not on loopback
    probe_ports: frozenset[int] = frozenset({8816})  # ports that answer at the pod's IP

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
        )


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
