"""What the executor pod must be like, as rules that the Kubernetes schemas cannot express.

Each rule is a function named after what it demands; it is true when the pod obeys. Which pods to
hold against them is the tests' business.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from lookup_core.settings import FullSettings
from tests.k8s.manifests import Manifest, parse_yaml

PROBE_PATHS = {
    "startupProbe": "/startupz",
    "livenessProbe": "/livez",
    "readinessProbe": "/readyz",
}
LONGEST_WARMUP_S = FullSettings().warmup_max_wait_s  # where the configuration does not say more
# What the pod's security context says of all containers, and what theirs may repeat.
OWNERS = {"runAsNonRoot": True, "runAsUser": 185, "runAsGroup": 185}
PROFILE = {"seccompProfile": {"type": "RuntimeDefault"}}
# What each container's says, and what it may say beside that.
RIGHTS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
OPTIONAL_RIGHTS = {"privileged": False, **PROFILE}
KNOWN = {*OWNERS, *RIGHTS, *OPTIONAL_RIGHTS, "readOnlyRootFilesystem"}
KNOWN_OF_THE_POD = {*OWNERS, *PROFILE, "fsGroup", "fsGroupChangePolicy", "supplementalGroups"}
MEBIBYTES = {"Mi": 1, "Gi": 1024, "MiB": 1, "GiB": 1024}


@dataclass(frozen=True, slots=True)
class Deployment:
    """The manifests that belong together."""

    pod: Manifest
    config_map: Manifest
    secret: Manifest

    @property
    def sidecar(self) -> Manifest:
        """Sidelook's container, wherever it stands."""
        return next(each for each in self.containers if each["name"] == "sidelook")

    @property
    def containers(self) -> list[Manifest]:
        """All containers, whoever brought them."""
        spec = self.pod["spec"]
        return [*spec.get("initContainers", []), *spec["containers"]]

    @property
    def contexts(self) -> list[Manifest]:
        """The security context of each container."""
        return [each.get("securityContext") or {} for each in self.containers]

    @property
    def executor(self) -> Manifest:
        """Spark's container, if the sidecar is not among the ordinary ones."""
        return next(each for each in self.pod["spec"]["containers"] if each != self.sidecar)

    @property
    def settings(self) -> Manifest:
        """The sidecar's configuration, as it stands in the ConfigMap."""
        return parse_yaml(self.config_map["data"]["sidelook.yaml"])

    @property
    def dsn_files(self) -> list[str]:
        """Where the configuration looks for the addresses of databases."""
        sources = [each["source"] for each in self.settings["dimensions"].values() if each]
        return [source["dsn_file"] for source in sources if "dsn_file" in source]

    @property
    def volumes(self) -> list[Manifest]:
        """What the containers may mount."""
        volumes: list[Manifest] = self.pod["spec"]["volumes"]
        return volumes

    def volume(self, name: str) -> Manifest:
        """The pod's volume of that name."""
        return next(volume for volume in self.volumes if volume["name"] == name)


def sidecar_is_native(deployment: Deployment) -> bool:
    """An init container that is always restarted; an ordinary one would fail the executor."""
    is_init_container = deployment.sidecar in deployment.pod["spec"].get("initContainers", [])
    return is_init_container and deployment.sidecar.get("restartPolicy") == "Always"


def executor_is_named_as_spark_expects(deployment: Deployment) -> bool:
    """Spark finds its container by this name and takes no other for it."""
    names = [container["name"] for container in deployment.pod["spec"]["containers"]]
    return names == ["spark-kubernetes-executor"]


def nobody_is_root(deployment: Deployment) -> bool:
    """All run as 185, and the group owns the socket's folder and the secret."""
    context = deployment.pod["spec"]["securityContext"]
    is_owned = _says(context, {**OWNERS, "fsGroup": 185})
    is_repeated = all(_says({**OWNERS, **each}, OWNERS) for each in deployment.contexts)
    return is_owned and is_repeated and 0 not in context.get("supplementalGroups", [])


def nobody_has_privileges(deployment: Deployment) -> bool:
    """No capabilities, no way to get any, the runtime's profile, and nothing unknown here."""
    context = deployment.pod["spec"]["securityContext"]
    is_held = _says(context, PROFILE) and context.keys() <= KNOWN_OF_THE_POD
    return is_held and all(
        _says({**OPTIONAL_RIGHTS, **each}, {**RIGHTS, **OPTIONAL_RIGHTS}) and each.keys() <= KNOWN
        for each in deployment.contexts
    )


def host_is_out_of_reach(deployment: Deployment) -> bool:
    """No namespace, path or port of the node, nor the processes of one another."""
    spec = deployment.pod["spec"]
    keys = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
    ports = [port for each in deployment.containers for port in each.get("ports", [])]
    is_apart = not any(spec.get(key) for key in keys)
    is_apart = is_apart and not any("hostPort" in port for port in ports)
    return is_apart and all("hostPath" not in volume for volume in spec["volumes"])


def sidecar_cannot_write_its_root(deployment: Deployment) -> bool:
    """The sidecar keeps nothing on disk."""
    return deployment.sidecar["securityContext"].get("readOnlyRootFilesystem") is True


def no_service_account_token(deployment: Deployment) -> bool:
    """Neither container asks the Kubernetes API."""
    return deployment.pod["spec"].get("automountServiceAccountToken") is False


def no_service_links(deployment: Deployment) -> bool:
    """A Service called `sidelook` must not reach the sidecar's environment."""
    return deployment.pod["spec"].get("enableServiceLinks") is False


def probes_ask_the_health_port(deployment: Deployment) -> bool:
    """Each probe asks its own route, by HTTP at the pod's IP."""
    asked = {name: deployment.sidecar[name].get("httpGet") for name in PROBE_PATHS}
    return asked == {name: {"path": path, "port": "health"} for name, path in PROBE_PATHS.items()}


def liveness_has_patience(deployment: Deployment) -> bool:
    """The sidecar is killed after half a minute of silence, not before."""
    probe = deployment.sidecar["livenessProbe"]
    return bool(probe["periodSeconds"] * probe["failureThreshold"] >= 30)


def startup_has_time_for_a_load(deployment: Deployment) -> bool:
    """A sidecar that is killed while it loads whole tables would begin anew, for ever."""
    probe = deployment.sidecar["startupProbe"]
    return bool(probe["periodSeconds"] * probe["failureThreshold"] > LONGEST_WARMUP_S)


def nothing_runs_before_the_stop(deployment: Deployment) -> bool:
    """A native sidecar's preStop would run while the executor still looks up."""
    return "lifecycle" not in deployment.sidecar


def health_port_is_the_configured_one(deployment: Deployment) -> bool:
    """The named port is where the configuration listens, on all addresses."""
    ports = {port["name"]: port["containerPort"] for port in deployment.sidecar["ports"]}
    listen = deployment.settings["listen"]
    return listen["health"] == f"0.0.0.0:{ports['health']}" and set(ports) == {"health"}


def lookups_come_through_the_socket_only(deployment: Deployment) -> bool:
    """No TCP listener for data: the other containers of the pod share loopback."""
    return deployment.settings["listen"]["http"] is None


def socket_folder_is_shared(deployment: Deployment) -> bool:
    """Both containers mount one bounded volume in memory at the socket's folder."""
    folder = str(PurePosixPath(deployment.settings["listen"]["unix"]).parent)
    sharers = (deployment.sidecar, deployment.executor)
    mounts = [_mount_at(container, folder) for container in sharers]
    names = {mount["name"] for mount in mounts if mount and not mount.get("readOnly")}
    if None in mounts or len(names) != 1:
        return False
    volume = deployment.volume(names.pop()).get("emptyDir", {})
    return volume.get("medium") == "Memory" and "sizeLimit" in volume


def configuration_is_mounted(deployment: Deployment) -> bool:
    """The file that the sidecar is told to read comes from the ConfigMap, read-only."""
    path = PurePosixPath(deployment.sidecar["args"][-1])
    mount = _mount_at(deployment.sidecar, str(path.parent))
    if mount is None or not mount.get("readOnly"):
        return False
    source = deployment.volume(mount["name"]).get("configMap", {})
    is_ours = source.get("name") == deployment.config_map["metadata"]["name"]
    return is_ours and path.name in deployment.config_map["data"]


def secret_belongs_to_the_sidecar_alone(deployment: Deployment) -> bool:
    """The DSNs are files of mode 0440, in a volume that no other container mounts."""
    folders = {str(PurePosixPath(path).parent) for path in deployment.dsn_files}
    mount = _mount_at(deployment.sidecar, folders.pop()) if len(folders) == 1 else None
    if mount is None:
        return False
    mounts = [each for other in deployment.containers for each in other.get("volumeMounts", [])]
    is_alone = sum(each["name"] == mount["name"] for each in mounts) == 1
    source = deployment.volume(mount["name"]).get("secret", {})
    return is_alone and bool(mount.get("readOnly")) and source.get("defaultMode") == 0o440


def secret_is_the_one_that_is_made(deployment: Deployment) -> bool:
    """The mounted secret has the name and the keys of the one that operators are told to make."""
    names = {each["secret"]["secretName"] for each in deployment.volumes if "secret" in each}
    keys = {PurePosixPath(path).name for path in deployment.dsn_files}
    secret = deployment.secret
    return names == {secret["metadata"]["name"]} and keys <= set(secret["stringData"])


def image_is_pinned(deployment: Deployment) -> bool:
    """A tag that names one version: `latest` would mix versions in one job."""
    image: str = deployment.sidecar.get("image") or ""
    _, _, tag = image.rpartition(":")
    return tag[:1].isdigit() and tag.count(".") == 2


def memory_has_room_for_the_limit(deployment: Deployment) -> bool:
    """The container may use half as much again as the configuration allows the caches."""
    resources = deployment.sidecar["resources"]
    limit = _mebibytes(resources["limits"]["memory"])
    is_guaranteed = resources["requests"]["memory"] == resources["limits"]["memory"]
    return is_guaranteed and limit >= 1.5 * _mebibytes(deployment.settings["limits"]["memory"])


RULES: list[Callable[[Deployment], bool]] = [
    sidecar_is_native,
    executor_is_named_as_spark_expects,
    nobody_is_root,
    nobody_has_privileges,
    host_is_out_of_reach,
    sidecar_cannot_write_its_root,
    no_service_account_token,
    no_service_links,
    probes_ask_the_health_port,
    liveness_has_patience,
    startup_has_time_for_a_load,
    nothing_runs_before_the_stop,
    health_port_is_the_configured_one,
    lookups_come_through_the_socket_only,
    socket_folder_is_shared,
    configuration_is_mounted,
    secret_belongs_to_the_sidecar_alone,
    secret_is_the_one_that_is_made,
    image_is_pinned,
    memory_has_room_for_the_limit,
]


def broken_rules(deployment: Deployment) -> list[str]:
    """The names of all rules that the manifests break, or that cannot read them."""
    return [fault for rule in RULES for fault in _faults(rule, deployment)]


def _faults(rule: Callable[[Deployment], bool], deployment: Deployment) -> list[str]:
    try:
        return [] if rule(deployment) else [rule.__name__]
    except Exception as error:  # noqa: BLE001  # a pod of unforeseen form is at fault, not the check
        return [f"{rule.__name__} cannot be told: {type(error).__name__}: {error}"]


def _says(context: Manifest, wanted: Manifest) -> bool:
    return all(key in context and context[key] == value for key, value in wanted.items())


def _mount_at(container: Manifest, folder: str) -> Manifest | None:
    mounts: list[Manifest] = container["volumeMounts"]
    return next((mount for mount in mounts if mount["mountPath"] == folder), None)


def _mebibytes(text: str) -> int:
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * MEBIBYTES[unit]
