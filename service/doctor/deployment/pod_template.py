"""Pod template check: a native sidecar that shares socket and user with the executor.

`kubectl --dry-run=server` and policies of the cluster check the rest of a pod.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lookup_core.errors import ConfigurationError
from service.config.environment import variable_of
from service.config.yaml_document import read_text
from service.doctor.finding import Finding, Subject

_NAME = "sidelook"
_SOCKET = variable_of(("listen", "unix"))
IMAGE_SOCKET = "/run/sidelook/sidelook.sock"  # value of the variable in the image
_TEMPLATE = "as k8s/base/executor-pod/executor-pod-template.yaml has it"


Manifest = Mapping[str, Any]  # a mapping at any depth; missing parts, and others, are empty


def part(manifest: object, *names: str) -> Any:  # noqa: ANN401  # any YAML value
    """Return the value at a path of a manifest; None without one."""
    for name in names:
        manifest = manifest.get(name) if isinstance(manifest, Mapping) else None
    return manifest


def parts(manifest: object, *names: str) -> list[Manifest]:
    """Return the mappings of a list in a manifest."""
    found = part(manifest, *names)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def read_manifests(path: Path, kind: str) -> list[Manifest]:
    """Read the manifests of this kind; raises ConfigurationError with the reason if that fails."""
    text = read_text(path)
    try:
        documents = list(YAML(typ="safe", pure=True).load_all(text))
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(["is not YAML; render a Helm chart first"]) from error
    return [each for each in documents if part(each, "kind") == kind]


def read_pod_template(path: Path) -> Manifest:
    """Read the pod of a file; raises ConfigurationError if there is none."""
    for pod in read_manifests(path, "Pod"):
        return pod
    raise ConfigurationError(["holds no Pod; name the file of podTemplateFile"])


def pod_findings(
    subject: Subject, pod: Manifest, *, checks_all_containers: bool = True
) -> Iterator[Finding]:
    """Yield the faults of a pod; Spark's checkAllContainers makes one of them an error."""
    containers, first = parts(pod, "spec", "containers"), parts(pod, "spec", "initContainers")
    sidecar = next(filter(_is_sidecar, [*first, *containers]), None)
    if sidecar is None:
        remedy = f"add it to initContainers, {_TEMPLATE}"
        yield subject.error("there is no container sidelook", remedy)
        return
    if sidecar in first:
        yield _native_finding(subject, sidecar)
    else:
        yield _ordinary_finding(subject, checks_all_containers=checks_all_containers)
    executors = [each for each in containers if each != sidecar]
    faults = [
        *_user_findings(subject, pod, [sidecar, *executors]),
        *_socket_findings(subject, sidecar, executors),
    ]
    yield from faults or [subject.ok("both containers share the socket and its user")]


def _is_sidecar(container: Manifest) -> bool:
    image = str(container.get("image")).rpartition("/")[2]
    return _NAME in {container.get("name"), image.partition(":")[0]}


def _native_finding(subject: Subject, sidecar: Manifest) -> Finding:
    if sidecar.get("restartPolicy") == "Always":
        return subject.ok("is a native sidecar")
    return subject.error(
        "is an init container without restartPolicy: Always: the executor waits forever",
        "give it restartPolicy: Always",
    )


def _ordinary_finding(subject: Subject, *, checks_all_containers: bool) -> Finding:
    remedy = f"move it to initContainers with restartPolicy: Always, {_TEMPLATE}"
    text = "is an ordinary container: it may start after the executor, and"
    if checks_all_containers:
        option = "spark.kubernetes.executor.checkAllContainers"
        reason = f"since Spark 4.0 ({option}) its end fails the executor"
        return subject.error(f"{text} {reason}", remedy)
    return subject.warning(f"{text} end before it", remedy)


def _user_findings(
    subject: Subject, pod: Manifest, containers: Sequence[Manifest]
) -> Iterator[Finding]:
    of_pod = part(pod, "spec", "securityContext")
    own = [part(each, "securityContext", "runAsUser") for each in containers]
    users = {part(of_pod, "runAsUser") if user is None else user for user in own}
    if len(users) > 1 and part(of_pod, "fsGroup") is None:
        yield subject.error(
            "the containers run as different users, without a shared group for the socket (0660) "
            "and the shared caches (0640)",
            "give both the same runAsUser and runAsGroup, or the pod an fsGroup",
        )


def _socket_findings(
    subject: Subject, sidecar: Manifest, executors: Sequence[Manifest]
) -> Iterator[Finding]:
    # Of a variable that is set twice, Kubernetes uses the last value.
    values = {each.get("name"): each.get("value") for each in parts(sidecar, "env")}
    socket = {_SOCKET: IMAGE_SOCKET, **values}[_SOCKET]
    if socket is None:
        yield subject.skipped(
            f"{_SOCKET} has no value in the template (valueFrom): the socket path is unknown",
            "set its value in the template, or check that both containers mount its folder",
        )
        return
    folder = Path(str(socket)).parent
    if not folder.is_absolute():  # there is no socket
        return
    volume = _volume_at(folder, sidecar)
    if volume is None:
        yield subject.error(
            f"no volume is mounted at {folder}, where the sidecar creates its socket",
            "mount an emptyDir there, in both containers",
        )
        return
    for executor in executors:
        if _volume_at(folder, executor) != volume:
            yield subject.error(
                f"container {executor.get('name')} does not mount volume {volume} at {folder}: it "
                "cannot open the socket",
                "add the same volumeMount to it",
            )


def _volume_at(folder: Path, container: Manifest) -> object:
    mounts = parts(container, "volumeMounts")
    found = (each for each in mounts if Path(str(each.get("mountPath"))) == folder)
    return next(found, {}).get("name")
