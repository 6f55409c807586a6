"""Rules for executor pods: the findings of `sidelook doctor`, and the policy for shipped pods.

The doctor finds what keeps any pod from working, and Pod Security `restricted` refuses privileges:
`make admission`. The rules here depend on the ConfigMap, the Secret or Spark. Each rule is a
function named after its demand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from lookup_core.errors import ConfigurationError
from lookup_core.settings import FullSettings
from service.config.settings import Settings
from service.doctor.deployment.pod_template import IMAGE_SOCKET, pod_findings
from service.doctor.finding import Severity, Subject
from service.doctor.sidecar.configuration_check import LIMITS_MEMORY_FACTOR
from service.wiring.cache_demand import CacheDemand
from tools.k8s.manifest_part import ManifestPart as Part
from tools.k8s.manifest_part import quantity
from tools.k8s.manifests import Manifest, parse_yaml
from tools.k8s.validation import CONFIGURATION, load_configuration

PROBE_PATHS = {
    "startupProbe": "/startupz",
    "livenessProbe": "/livez",
    "readinessProbe": "/readyz",
}
# The pod's security context, which containers may repeat.
OWNERS = {"runAsNonRoot": True, "runAsUser": 185, "runAsGroup": 185}


@dataclass(frozen=True, slots=True)
class Deployment:
    """An executor pod with the ConfigMap and the Secret that it mounts."""

    pod: Manifest
    config_map: Manifest
    secret: Manifest

    @property
    def settings(self) -> Settings | None:
        """The settings of the sidecar; None if the ConfigMap has no valid ones."""
        try:
            return load_configuration(self.config_map, self.secret["stringData"])
        except ConfigurationError:
            return None

    @property
    def spec(self) -> Part:
        """The specification of the pod."""
        return Part(self.pod).below("spec")

    @property
    def sidecar(self) -> Part:
        """Sidelook's container; empty without one."""
        containers = self.spec.items("initContainers")
        return next((each for each in containers if each.text("name") == "sidelook"), Part())

    @property
    def executors(self) -> list[Part]:
        """The ordinary containers."""
        return list(self.spec.items("containers"))

    @property
    def containers(self) -> list[Part]:
        """All containers of the pod."""
        return [*self.spec.items("initContainers"), *self.spec.items("containers")]

    @property
    def contexts(self) -> list[dict[str, Any]]:
        """The security context of each container."""
        return [dict(each.below("securityContext").values) for each in self.containers]

    @property
    def context(self) -> dict[str, Any]:
        """The security context of the pod."""
        return dict(self.spec.below("securityContext").values)

    @property
    def configuration(self) -> Part:
        """The sidecar's configuration, as written in the ConfigMap."""
        return Part(parse_yaml(self.config_map["data"][CONFIGURATION]))

    @property
    def dsn_files(self) -> list[PurePosixPath]:
        """The files of database addresses that the configuration names."""
        dimensions = self.configuration.below("dimensions")
        files = [dimensions.below(name, "source").text("dsn_file") for name in dimensions.values]
        return [PurePosixPath(file) for file in files if file]

    def volume(self, name: str) -> Part:
        """The pod's volume of that name; empty if there is none."""
        volumes = self.spec.items("volumes")
        return next((each for each in volumes if each.text("name") == name), Part())


def broken_rules(deployment: Deployment) -> list[str]:
    """The doctor's findings, and the names of the broken rules; empty for a good pod."""
    found = pod_findings(Subject("pod template", "executor pod"), deployment.pod)
    faults = [f"{e.message}; {e.remedy}" for e in found if e.severity is not Severity.OK]
    if not deployment.sidecar.values:
        return faults
    if deployment.settings is None:
        faults.insert(0, f"its ConfigMap has no valid {CONFIGURATION}")
    return [*faults, *(rule.__name__ for rule in RULES if not rule(deployment))]


def executor_is_named_as_spark_expects(deployment: Deployment) -> bool:
    """Spark recognises its container by this name only."""
    names = [each.text("name") for each in deployment.spec.items("containers")]
    return names == ["spark-kubernetes-executor"]


def all_run_as_user_185(deployment: Deployment) -> bool:
    """No container runs as root, and the group owns the socket's folder and the secret."""
    is_owned = _has(deployment.context, {**OWNERS, "fsGroup": 185})
    is_repeated = all(_has({**OWNERS, **each}, OWNERS) for each in deployment.contexts)
    groups: Sequence[int] = deployment.context.get("supplementalGroups", [])
    return is_owned and is_repeated and 0 not in groups


def sidecar_root_is_read_only(deployment: Deployment) -> bool:
    """The sidecar stores nothing on disk."""
    context = deployment.sidecar.below("securityContext")
    return context.get("readOnlyRootFilesystem") is True


def no_service_account_token(deployment: Deployment) -> bool:
    """No container uses the Kubernetes API."""
    return deployment.spec.get("automountServiceAccountToken") is False


def probes_use_their_routes(deployment: Deployment) -> bool:
    """Each probe is an HTTP request to its own route, at the named health port."""
    probes = {name: deployment.sidecar.below(name, "httpGet").values for name in PROBE_PATHS}
    return probes == {name: {"path": path, "port": "health"} for name, path in PROBE_PATHS.items()}


def liveness_tolerates_half_a_minute(deployment: Deployment) -> bool:
    """A shorter stall of the event loop is no reason for a restart."""
    probe = deployment.sidecar.below("livenessProbe")
    return probe.number("periodSeconds", 0) * probe.number("failureThreshold", 0) >= 30


def lookups_use_the_socket_only(deployment: Deployment) -> bool:
    """No TCP listener for lookups: the containers of the pod share loopback."""
    listen = deployment.configuration.below("listen").values
    return "http" in listen and listen["http"] is None


def socket_is_that_of_the_image(deployment: Deployment) -> bool:
    """The image sets the variable of listen.unix, so another path has no effect."""
    return deployment.configuration.below("listen").text("unix") == IMAGE_SOCKET


def socket_volume_holds_the_caches(deployment: Deployment) -> bool:
    """The folder of the socket is a volume in memory, whose size limit fits the caches."""
    socket = PurePosixPath(deployment.configuration.below("listen").text("unix"))
    volume = deployment.volume(deployment.sidecar.mount_at(socket.parent).text("name"))
    source, settings = volume.below("emptyDir"), deployment.settings
    needed_bytes = 0 if settings is None else CacheDemand.of(settings).shared_bytes
    limit_bytes = quantity(source.text("sizeLimit"))
    is_bounded = limit_bytes is not None and limit_bytes >= needed_bytes
    return source.get("medium") == "Memory" and is_bounded


def startup_outlasts_full_loads(deployment: Deployment) -> bool:
    """Also without a full table, which a configuration may add later."""
    probe = deployment.sidecar.below("startupProbe")
    patience_s = probe.number("periodSeconds", 10) * probe.number("failureThreshold", 3)
    return patience_s > FullSettings().warmup_max_wait_s


def probes_reach_the_health_listener(deployment: Deployment) -> bool:
    """Probes use the pod's IP, and a port that the container names."""
    settings = deployment.settings
    health = None if settings is None else settings.listen.health
    if health is None:
        return settings is None
    ports = [each.get("containerPort") for each in deployment.sidecar.items("ports")]
    return not health.is_loopback and health.port in ports


def sidecar_ends_by_sigterm_alone(deployment: Deployment) -> bool:
    """A preStop hook would run while the executor still looks up."""
    return not deployment.sidecar.below("lifecycle").values


def environment_is_its_own(deployment: Deployment) -> bool:
    """A Service named sidelook would set SIDELOOK_PORT, an unknown key."""
    return deployment.spec.get("enableServiceLinks") is False


def executors_only_read_the_caches(deployment: Deployment) -> bool:
    """Executors have the sidecar's user: a mount with readOnly keeps its files from their jobs."""
    socket = PurePosixPath(deployment.configuration.below("listen").text("unix"))
    mounts = [each.mount_at(socket.parent) for each in deployment.executors]
    return all(each.get("readOnly") is True for each in mounts)


def configuration_is_mounted(deployment: Deployment) -> bool:
    """The file of `--config` comes from the ConfigMap, read-only."""
    path = PurePosixPath(deployment.sidecar.values["args"][-1])
    mount = deployment.sidecar.mount_at(path.parent)
    source = deployment.volume(mount.text("name")).below("configMap")
    is_named = source.text("name") == deployment.config_map["metadata"]["name"]
    return bool(mount.get("readOnly")) and is_named and path.name in deployment.config_map["data"]


def secret_belongs_to_the_sidecar_alone(deployment: Deployment) -> bool:
    """The DSNs are files of mode 0440, in a volume that no other container mounts."""
    folders = {path.parent for path in deployment.dsn_files}
    mount = deployment.sidecar.mount_at(folders.pop()) if len(folders) == 1 else Part()
    name = mount.text("name")
    mounts = [each for other in deployment.containers for each in other.items("volumeMounts")]
    if any(each.text("subPath") for each in mounts):
        return False  # a rotated secret would never arrive
    is_alone = [each.text("name") for each in mounts].count(name) == 1
    source = deployment.volume(name).below("secret")
    return is_alone and bool(mount.get("readOnly")) and source.get("defaultMode") == 0o440


def secret_is_the_documented_one(deployment: Deployment) -> bool:
    """The mounted secret has the name and the keys of the example."""
    volumes = deployment.spec.items("volumes")
    names = {each.below("secret").text("secretName") for each in volumes if "secret" in each.values}
    keys = {path.name for path in deployment.dsn_files}
    secret = deployment.secret
    return names == {secret["metadata"]["name"]} and keys <= set(secret["stringData"])


def image_is_pinned(deployment: Deployment) -> bool:
    """The tag is one version: `latest` would mix versions in one job."""
    _, _, tag = deployment.sidecar.text("image").rpartition(":")
    return tag[:1].isdigit() and tag.count(".") == 2


def memory_is_guaranteed(deployment: Deployment) -> bool:
    """The request equals the limit, which fits limits.memory; processors have no limit."""
    resources, settings = deployment.sidecar.below("resources"), deployment.settings
    limits, requests = resources.below("limits"), resources.below("requests")
    limit_bytes = quantity(limits.text("memory"))
    needed_bytes = 0 if settings is None else LIMITS_MEMORY_FACTOR * settings.limits.memory_bytes
    is_equal = requests.text("memory") == limits.text("memory")
    return bool(limit_bytes and limit_bytes >= needed_bytes and is_equal and not limits.text("cpu"))


RULES: list[Callable[[Deployment], bool]] = [
    executor_is_named_as_spark_expects,
    all_run_as_user_185,
    sidecar_root_is_read_only,
    no_service_account_token,
    probes_use_their_routes,
    liveness_tolerates_half_a_minute,
    lookups_use_the_socket_only,
    socket_is_that_of_the_image,
    socket_volume_holds_the_caches,
    startup_outlasts_full_loads,
    probes_reach_the_health_listener,
    sidecar_ends_by_sigterm_alone,
    environment_is_its_own,
    executors_only_read_the_caches,
    configuration_is_mounted,
    secret_belongs_to_the_sidecar_alone,
    secret_is_the_documented_one,
    image_is_pinned,
    memory_is_guaranteed,
]


def _has(context: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(key in context and context[key] == value for key, value in wanted.items())
