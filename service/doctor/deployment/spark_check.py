"""Spark properties check: settings that affect the executors' sidecars."""

import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.config.yaml_document import read_text
from service.doctor.deployment.manifest import Manifest, read_manifests
from service.doctor.deployment.pod_template import read_pod_template
from service.doctor.finding import Finding, Subject

_LINE = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[\s=:]\s*(.*?)\s*")
_IMAGES = ("spark.kubernetes.executor.container.image", "spark.kubernetes.container.image")
_TAG = re.compile(r".*:v?(\d+)\.(\d+)[^/]*")


@dataclass(frozen=True, slots=True)
class SparkConf:
    """Properties of spark-submit; all values are text."""

    settings: Mapping[str, str]

    def get(self, name: str, default: str = "") -> str:
        """Return a property by its name after `spark.kubernetes.`."""
        return self.settings.get(f"spark.kubernetes.{name}", default)

    @property
    def checks_all_containers(self) -> bool:
        """Whether the end of any container fails the executor; Spark 4.0's default is yes."""
        return self.get("executor.checkAllContainers", "true").lower() != "false"

    @property
    def image_version(self) -> tuple[int, int] | None:
        """Spark version in the tag of the image; None for other tags."""
        image = next((self.settings[name] for name in _IMAGES if name in self.settings), "")
        match = _TAG.fullmatch(image)
        return (int(match[1]), int(match[2])) if match else None


def read_spark_conf(path: Path) -> SparkConf:
    """Read the properties of a file; raises ConfigurationError with the reason if that fails."""
    matches = [_LINE.fullmatch(line) for line in read_text(path).splitlines()]
    return SparkConf({match[1]: match[2] for match in matches if match})


LEAST_GRACE_S = 30  # the executor's end, then 10 s for the drain and 2 s for responses
ISOLATES_FROM = (4, 2)
HEALTH_PORT = 8816
_POLICY_STEP = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
_DURATION = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def spark_findings(
    subject: Subject, conf: SparkConf, *, containers: Collection[str] | None
) -> Iterator[Finding]:
    """Yield the findings on pod template, containers and grace period.

    `containers` are the names in the pod template; None without one.
    """
    if not conf.get("executor.podTemplateFile"):
        yield subject.error(
            "spark.kubernetes.executor.podTemplateFile is not set: executors have no sidecar",
            "set it to the file of the pod template",
        )
    name = conf.get("executor.podTemplateContainerName")
    if containers is not None and name and name not in containers:
        yield subject.error(
            f"podTemplateContainerName is {name}, and the template has {', '.join(containers)}",
            "name the executor's container, not the sidecar's",
        )
    if not conf.checks_all_containers:
        yield subject.warning(
            "checkAllContainers is false, which a native sidecar does not need: failed containers "
            "go unnoticed",
            "remove spark.kubernetes.executor.checkAllContainers",
        )
    yield _grace_finding(subject, conf.get("executor.terminationGracePeriodSeconds", "30s"))


def _grace_finding(subject: Subject, text: str) -> Finding:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _DURATION.get(text[len(digits) :])
    if not digits.isdigit() or unit is None:
        return subject.error(
            f"terminationGracePeriodSeconds is {text!r}, not a duration", "write it as 60s"
        )
    grace_s = int(digits) * unit
    if grace_s < LEAST_GRACE_S:
        return subject.warning(
            f"the grace period is {grace_s} s: records in flight may be lost when a pod ends",
            "set spark.kubernetes.executor.terminationGracePeriodSeconds to 60s",
        )
    return subject.ok(f"the grace period is {grace_s} s")


def isolation_finding(
    subject: Subject,
    conf: SparkConf,
    *,
    version: tuple[int, int] | None,
    policies: Collection[Manifest],
    port: int,
) -> Finding:
    """Return whether Prometheus reaches executors, which Spark 4.2 and later isolate."""
    known = ".".join(map(str, version)) if version else ""
    if version is not None and version < ISOLATES_FROM:
        return subject.ok(f"Spark {known} does not isolate executors")
    if _POLICY_STEP in conf.get("driver.pod.excludedFeatureSteps"):
        return subject.ok("Spark's NetworkPolicy of executors is excluded")
    if any(_opens_port(policy, port) for policy in policies):
        return subject.ok(f"a NetworkPolicy opens port {port} for Prometheus")
    spark = f"Spark {known} allows" if version else "Spark 4.2 and later allow"
    return subject.warning(
        f"{spark} traffic between pods of the application only: Prometheus cannot reach port "
        f"{port} (probes can)",
        "apply k8s/base/network-policy-prometheus.yaml and name it with --network-policy, or set "
        f"spark.kubernetes.driver.pod.excludedFeatureSteps={_POLICY_STEP}"
        + ("" if version else "; for an older Spark, give --spark 4.1"),
    )


def _opens_port(policy: Manifest, port: int) -> bool:
    labels = policy.below("spec", "podSelector", "matchLabels").values
    if policy.get("kind") != "NetworkPolicy" or labels.get("spark-role", "executor") != "executor":
        return False
    return any(
        not rule.items("ports") or any(each.get("port") == port for each in rule.items("ports"))
        for rule in policy.below("spec").items("ingress")
    )


async def check_spark(
    subject: Subject,
    *,
    file: Path,
    version: tuple[int, int] | None = None,
    pod_template: Path | None = None,
    network_policy: Path | None = None,
) -> AsyncGenerator[Finding, None]:
    """Yield the findings on the properties file of spark-submit and on network isolation.

    A version of None is taken from the image's tag.
    """
    try:
        conf = read_spark_conf(file)
        policies = read_manifests(network_policy) if network_policy else ()
    except ConfigurationError as error:
        yield subject.error(error.detail, "name the files that spark-submit and kubectl get")
        return
    for finding in spark_findings(subject, conf, containers=_containers(pod_template)):
        yield finding
    yield isolation_finding(
        subject,
        conf,
        version=version or conf.image_version,
        policies=policies,
        port=HEALTH_PORT,
    )


def _containers(pod_template: Path | None) -> list[str] | None:
    if pod_template is None:
        return None
    try:
        spec = read_pod_template(pod_template).spec
    except ConfigurationError:
        return None  # the pod template check reports it
    return [each.text("name") for each in spec.items("containers")]
