"""Spark configuration check: settings that the executors' sidecars depend on."""

import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.doctor.deployment.manifest import Manifest, read_manifests
from service.doctor.deployment.pod_template import read_pod_template
from service.doctor.finding import Finding, Subject

_LINE = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[\s=:]\s*(.*?)\s*")
_IMAGES = ("spark.kubernetes.executor.container.image", "spark.kubernetes.container.image")
_TAG = re.compile(r".*:v?(\d+)\.(\d+)[^/]*")


@dataclass(frozen=True, slots=True)
class SparkConf:
    """The settings, as texts."""

    settings: Mapping[str, str]

    def get(self, name: str, default: str = "") -> str:
        """A setting of Spark on Kubernetes, by the name after `spark.kubernetes.`."""
        return self.settings.get(f"spark.kubernetes.{name}", default)

    @property
    def checks_all_containers(self) -> bool:
        """Whether an executor fails with any of its containers; so it is from Spark 4.0 on."""
        return self.get("executor.checkAllContainers", "true").lower() != "false"

    @property
    def image_version(self) -> tuple[int, int] | None:
        """The version of Spark that the tag of its image tells, if it does."""
        image = next((self.settings[name] for name in _IMAGES if name in self.settings), "")
        match = _TAG.fullmatch(image)
        return (int(match[1]), int(match[2])) if match else None


def read_spark_conf(path: Path) -> SparkConf:
    """The settings in a file; raises ConfigurationError that says why it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(["is not UTF-8 text"]) from error
    matches = [_LINE.fullmatch(line) for line in text.splitlines()]
    return SparkConf({match[1]: match[2] for match in matches if match})


LEAST_GRACE_S = 30  # the executor's own end, then 10 s to drain and 2 s for answers
ISOLATES_FROM = (4, 2)
_POLICY_STEP = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
_DURATION = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def spark_findings(
    matter: Subject, conf: SparkConf, *, containers: Collection[str] | None
) -> Iterator[Finding]:
    """The template, its container, and the grace period; `containers` are the template's."""
    if not conf.get("executor.podTemplateFile"):
        yield matter.error(
            "spark.kubernetes.executor.podTemplateFile is not set: executors have no sidecar",
            "set it to the pod template",
        )
    name = conf.get("executor.podTemplateContainerName")
    if containers is not None and name and name not in containers:
        yield matter.error(
            f"podTemplateContainerName is {name}, and the template has {', '.join(containers)}",
            "name the executor's container, not the sidecar's",
        )
    if not conf.checks_all_containers:
        yield matter.warning(
            "checkAllContainers is false: containers that fail go unnoticed, and a native sidecar "
            "does not need it",
            "leave spark.kubernetes.executor.checkAllContainers out",
        )
    yield grace_finding(matter, conf.get("executor.terminationGracePeriodSeconds", "30s"))


def grace_finding(matter: Subject, text: str) -> Finding:
    """Whether executor and sidecar have the time to end one after the other."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _DURATION.get(text[len(digits) :])
    if not digits.isdigit() or unit is None:
        return matter.error(
            f"terminationGracePeriodSeconds is {text!r}, which is no time", "write it as 60s"
        )
    grace_s = int(digits) * unit
    if grace_s < LEAST_GRACE_S:
        return matter.warning(
            f"the grace period is {grace_s} s: what is in flight when a pod ends may be lost",
            "set spark.kubernetes.executor.terminationGracePeriodSeconds to 60s",
        )
    return matter.ok(f"the grace period is {grace_s} s")


def isolation_finding(
    matter: Subject,
    conf: SparkConf,
    *,
    version: tuple[int, int] | None,
    policies: Collection[Manifest],
    port: int,
) -> Finding:
    """Whether Prometheus gets in where Spark isolates executors, as it does from 4.2 on."""
    known = ".".join(map(str, version)) if version else ""
    if version is not None and version < ISOLATES_FROM:
        return matter.ok(f"Spark {known} does not isolate executors")
    if _POLICY_STEP in conf.get("driver.pod.excludedFeatureSteps"):
        return matter.ok("Spark's NetworkPolicy of executors is excluded")
    if any(lets_in(policy, port) for policy in policies):
        return matter.ok(f"a NetworkPolicy lets Prometheus in to port {port}")
    spark = f"Spark {known} shuts" if version else "Spark 4.2 and later shut"
    return matter.warning(
        f"{spark} everybody but the application's own pods out: Prometheus gets nothing from port "
        f"{port} (probes get through)",
        "apply k8s/base/network-policy-prometheus.yaml and name it with --network-policy, or set "
        f"spark.kubernetes.driver.pod.excludedFeatureSteps={_POLICY_STEP}"
        + ("" if version else "; of an older Spark, say so with --spark 4.1"),
    )


def lets_in(policy: Manifest, port: int) -> bool:
    """Whether a policy opens the port of executors to anybody."""
    labels = policy.below("spec", "podSelector", "matchLabels").values
    is_of_executors = labels.get("spark-role", "executor") == "executor"
    is_policy = policy.get("kind") == "NetworkPolicy"
    return (
        is_policy
        and is_of_executors
        and any(
            not rule.items("ports") or any(each.get("port") == port for each in rule.items("ports"))
            for rule in policy.below("spec").items("ingress")
        )
    )


@dataclass(frozen=True, slots=True)
class SparkCheck:
    """The file of spark-submit's properties, and what belongs to it."""

    file: Path
    version: tuple[int, int] | None = None  # of Spark; None: as its image tells, if it does
    pod_template: Path | None = None
    network_policy: Path | None = None
    health_port: int = 8816

    @property
    def matter(self) -> Subject:
        """The file."""
        return Subject("spark", str(self.file))

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """What is wrong with it."""
        try:
            conf = read_spark_conf(self.file)
            policies = read_manifests(self.network_policy) if self.network_policy else ()
        except ConfigurationError as error:
            yield self.matter.error(error.detail, "name the files as spark-submit and kubectl do")
            return
        for finding in spark_findings(self.matter, conf, containers=self._containers()):
            yield finding
        yield isolation_finding(
            self.matter,
            conf,
            version=self.version or conf.image_version,
            policies=policies,
            port=self.health_port,
        )

    def _containers(self) -> list[str] | None:
        if self.pod_template is None:
            return None
        try:
            template = read_pod_template(self.pod_template)
        except ConfigurationError:
            return None  # which is told by the check of the template itself
        return [each.text("name") for each in template.spec.items("containers")]
