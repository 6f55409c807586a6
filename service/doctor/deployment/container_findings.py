"""Container check: probes, memory, processors, termination and socket path."""

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
    """What the configuration makes the container need."""

    memory_bytes: int = 512 * 2**20  # limits.memory
    longest_load_s: float = 0.0  # how long /startupz may wait for tables
    has_health: bool = True  # a health listener that is not on loopback
    probe_ports: frozenset[int] = frozenset({8816})  # who answers there, by the pod's IP

    @classmethod
    def of(cls, settings: Settings) -> "SidecarNeeds":
        """Those of a configuration."""
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
    matter: Subject, sidecar: Manifest, needs: SidecarNeeds
) -> Iterator[Finding]:
    """What is wrong with it."""
    yield _memory(matter, sidecar, needs)
    processors = quantity(sidecar.below("resources", "limits").text("cpu"))
    if processors is not None and processors < 1.0:
        yield matter.warning(
            f"is held to {processors:g} processors: throttling stops the event loop of all tasks",
            "leave limits.cpu out, and give requests.cpu only",
        )
    yield from patience_findings(matter, sidecar, needs)
    has_probes = any(sidecar.get(name) for name in _PROBES)
    if has_probes and not needs.has_health:
        yield matter.error(
            "has probes, and listen.health is closed or on loopback: they find nothing",
            "set listen.health: 0.0.0.0:8816",
        )
    else:
        yield from probe_findings(matter, sidecar, needs.probe_ports)
    yield from configuration_findings(matter, sidecar)
    if sidecar.below("lifecycle").get("preStop"):
        yield matter.warning(
            "has a preStop hook, which runs at once, while the executor still looks up",
            "leave it out: the sidecar drains when it gets SIGTERM, after the executor",
        )


def _memory(matter: Subject, sidecar: Manifest, needs: SidecarNeeds) -> Finding:
    limit = quantity(sidecar.below("resources", "limits").text("memory"))
    if limit is None:
        return matter.warning(
            "has no memory limit: if it grows, the kernel may kill the executor in its place",
            f"set resources.limits.memory to {size_text(needs.memory_bytes // 2 * 3)} or more",
        )
    return memory_finding(matter, needs.memory_bytes, int(limit))


def patience_findings(matter: Subject, sidecar: Manifest, needs: SidecarNeeds) -> Iterator[Finding]:
    """Whether the startup probe waits for longer than tables may take to load."""
    probe = sidecar.below("startupProbe")
    if not probe.values:
        yield matter.warning(
            "has no startupProbe: the executor starts before the sidecar listens",
            "add one of /startupz at the health port",
        )
        return
    patience_s = probe.number("initialDelaySeconds", 0) + (
        probe.number("periodSeconds", 10) * probe.number("failureThreshold", 3)
    )
    if patience_s <= needs.longest_load_s:
        yield matter.error(
            f"the startupProbe waits {patience_s} s, and cache.warmup_max_wait is "
            f"{duration_text(needs.longest_load_s)}: killed while it loads, it begins anew",
            f"set its failureThreshold so that it waits longer than "
            f"{duration_text(needs.longest_load_s + 60)}",
        )
    else:
        yield matter.ok(f"the startupProbe waits {patience_s} s, longer than any load")


def probe_findings(matter: Subject, sidecar: Manifest, ports: frozenset[int]) -> Iterator[Finding]:
    """Whether probes ask where the sidecar answers; a port may be the name of one of its own."""
    names = {each.text("name"): each.get("containerPort") for each in sidecar.items("ports")}
    for name in _PROBES:
        over_http, over_tcp = sidecar.below(name, "httpGet"), sidecar.below(name, "tcpSocket")
        port = over_http.get("port") or over_tcp.get("port")
        if port is not None and names.get(str(port), port) not in ports:
            listens = ", ".join(map(str, sorted(ports)))
            yield matter.error(
                f"the {name} asks port {port}, and the sidecar answers at {listens}: it never "
                "passes",
                f"let it ask port {listens}, or a name that ports of the container gives to it",
            )


def configuration_findings(matter: Subject, sidecar: Manifest) -> Iterator[Finding]:
    """Whether the file of `--config` is on a volume; in an image of one's own it may be, too."""
    words = [*_words(sidecar, "command"), *_words(sidecar, "args")]
    mounts = [Path(each.text("mountPath")) for each in sidecar.items("volumeMounts")]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, _, value = word.partition("=")
        file = Path(value or following)
        is_mounted = any(file == each or each in file.parents for each in mounts)
        if option == "--config" and file.is_absolute() and not is_mounted:
            yield matter.warning(
                f"no volume is mounted where --config {file} is: unless the image has it, the "
                "sidecar does not start",
                f"mount the ConfigMap at {file.parent}, or name the file that is mounted",
            )


def _words(sidecar: Manifest, name: str) -> list[str]:
    words = sidecar.get(name)
    return [str(each) for each in words] if isinstance(words, list) else []


VARIABLE = variable_of(("listen", "unix"))
IMAGE_SOCKET = Path("/run/sidelook/sidelook.sock")  # what the image sets the variable to


@dataclass(frozen=True, slots=True)
class ContainerSocket:
    """The socket, as far as the template tells it."""

    path: Path | None  # None: there is none, or its place stands elsewhere
    is_told: bool = True
    is_of_image: bool = False  # the template does not set the variable


def container_socket(sidecar: Manifest) -> ContainerSocket:
    """The last word on it: of variables that are set twice, Kubernetes takes the later one."""
    found = [each for each in sidecar.items("env") if each.text("name") == VARIABLE]
    if not found:
        return ContainerSocket(IMAGE_SOCKET, is_of_image=True)
    if found[-1].get("valueFrom") is not None:
        return ContainerSocket(None, is_told=False)
    text = WORDS.get(found[-1].text("value"), found[-1].text("value"))
    return ContainerSocket(Path(text) if isinstance(text, str) else None)


def override_findings(
    matter: Subject, socket: ContainerSocket, configured: Path | None
) -> Iterator[Finding]:
    """What executors that go by the configuration would not find; None: it names no socket."""
    if not socket.is_told:
        yield matter.skipped(
            f"{VARIABLE} is taken from elsewhere: where the socket is cannot be seen here",
            "give it a value in the template, or see that both containers mount its folder",
        )
    elif socket.is_of_image and configured not in {None, socket.path}:
        yield matter.warning(
            f"listen.unix of the configuration ({configured}) has no effect: {VARIABLE} of the "
            f"image is {socket.path}, and beats it",
            f"set listen.unix to {socket.path}, or {VARIABLE} to {configured} in the env of the "
            "container",
        )
