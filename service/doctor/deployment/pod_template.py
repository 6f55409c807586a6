"""Pod template check: a native sidecar that shares socket and user with the executor.

`kubectl --dry-run=server` and policies of the cluster check the rest of a pod.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
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


class ManifestPart(BaseModel):
    """A part of a manifest; fields that are null, missing or not listed here have no effect."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:  # noqa: ANN401  # any YAML value
        is_mapping = isinstance(values, dict)
        return {k: v for k, v in values.items() if v is not None} if is_mapping else values


class _Security(ManifestPart):
    run_as_user: int | None = None
    fs_group: int | None = None


class _Mount(ManifestPart):
    name: str = ""
    mount_path: Path = Path()


class _Variable(ManifestPart):
    name: str = ""
    value: str | None = None  # None: from an object of the cluster


class Container(ManifestPart):
    """What the checks need of a container."""

    name: str = ""
    image: str = ""
    restart_policy: str = ""
    env: tuple[_Variable, ...] = ()
    volume_mounts: tuple[_Mount, ...] = ()
    security_context: _Security = _Security()

    @property
    def is_sidecar(self) -> bool:
        """Whether name or image is Sidelook's."""
        return _NAME in {self.name, self.image.rpartition("/")[2].partition(":")[0]}

    def volume_at(self, folder: Path) -> str | None:
        """Return the name of the volume that is mounted at a folder; None without one."""
        return next((each.name for each in self.volume_mounts if each.mount_path == folder), None)


class PodSpec(ManifestPart):
    """What the checks need of a pod."""

    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    security_context: _Security = _Security()


def read_manifests(path: Path) -> Sequence[dict[str, Any]]:
    """Read the documents of a file; raises ConfigurationError with the reason if that fails."""
    text = read_text(path)
    try:
        documents = list(YAML(typ="safe", pure=True).load_all(text))
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(["is not YAML; render a Helm chart first"]) from error
    return [each for each in documents if isinstance(each, dict)]


def read_pod_template(path: Path) -> PodSpec:
    """Read the pod of a file; raises ConfigurationError if there is none."""
    for manifest in read_manifests(path):
        if manifest.get("kind") == "Pod":
            try:
                return PodSpec.model_validate(manifest.get("spec") or {})
            except ValidationError as error:
                raise ConfigurationError(["holds a malformed Pod"]) from error
    raise ConfigurationError(["holds no Pod; name the file of podTemplateFile"])


def pod_findings(
    subject: Subject, pod: PodSpec, *, checks_all_containers: bool = True
) -> Iterator[Finding]:
    """Yield the faults of a pod; Spark's checkAllContainers makes one of them an error."""
    everything = [*pod.init_containers, *pod.containers]
    sidecar = next((each for each in everything if each.is_sidecar), None)
    if sidecar is None:
        remedy = f"add it to initContainers, {_TEMPLATE}"
        yield subject.error("there is no container sidelook", remedy)
        return
    if sidecar in pod.init_containers:
        yield _native_finding(subject, sidecar)
    else:
        yield _ordinary_finding(subject, checks_all_containers=checks_all_containers)
    executors = [each for each in pod.containers if each != sidecar]
    faults = [
        *_user_findings(subject, pod, [sidecar, *executors]),
        *_socket_findings(subject, sidecar, executors),
    ]
    yield from faults or [subject.ok("both containers share the socket and its user")]


def _native_finding(subject: Subject, sidecar: Container) -> Finding:
    if sidecar.restart_policy == "Always":
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
    subject: Subject, pod: PodSpec, containers: Sequence[Container]
) -> Iterator[Finding]:
    own = [each.security_context.run_as_user for each in containers]
    users = {pod.security_context.run_as_user if user is None else user for user in own}
    if len(users) > 1 and pod.security_context.fs_group is None:
        yield subject.error(
            "the containers run as different users, without a shared group for the socket (0660) "
            "and the shared caches (0640)",
            "give both the same runAsUser and runAsGroup, or the pod an fsGroup",
        )


def _socket_findings(
    subject: Subject, sidecar: Container, executors: Sequence[Container]
) -> Iterator[Finding]:
    # Of a variable that is set twice, Kubernetes uses the last value.
    socket = {_SOCKET: IMAGE_SOCKET, **{each.name: each.value for each in sidecar.env}}[_SOCKET]
    if socket is None:
        yield subject.skipped(
            f"{_SOCKET} has no value in the template (valueFrom): the socket path is unknown",
            "set its value in the template, or check that both containers mount its folder",
        )
    elif socket.startswith("/"):  # else there is none
        folder = Path(socket).parent
        volume = sidecar.volume_at(folder)
        if volume is None:
            yield subject.error(
                f"no volume is mounted at {folder}, where the sidecar creates its socket",
                "mount an emptyDir there, in both containers",
            )
            return
        for executor in executors:
            if executor.volume_at(folder) != volume:
                yield subject.error(
                    f"container {executor.name} does not mount volume {volume} at {folder}: it "
                    "cannot open the socket",
                    "add the same volumeMount to it",
                )
