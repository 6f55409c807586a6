"""Spark check: properties that add the sidecar to executors, their cluster, and Prometheus."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.config.yaml_document import read_text
from service.doctor.deployment.pod_template import (
    Manifest,
    part,
    parts,
    pod_findings,
    read_manifests,
    read_pod_template,
)
from service.doctor.finding import Finding, Subject, refusal_finding
from service.version import program_name

_OLDEST_KUBERNETES = (1, 29)
# Without a server, kubectl prints only its own version.
_NO_SERVER = (
    "kubectl reached no server; check its context (kubectl config current-context), or give a "
    "version such as 1.31"
)
_KUBERNETES_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")
_LINE = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[\s=:]\s*(.*?)\s*")
_PREFIX = "spark.kubernetes."
_IMAGES = ("executor.container.image", "container.image")
_TAG = re.compile(r".*:v?(\d+)\.(\d+)[^/]*")
_ISOLATES_FROM = (4, 2)
_HEALTH_PORT = 8816
_POLICY_STEP = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"


def check_kubernetes(subject: Subject, given: str | None) -> Iterator[Finding]:
    """Yield whether the given version of the cluster has native sidecars."""
    if given is None:
        yield subject.skipped("its version is unknown here", f"run: {_command()}")
        return
    try:
        yield version_finding(subject, kubernetes_version(given))
    except ConfigurationError as error:
        yield refusal_finding(subject, error)


def kubernetes_version(text: str) -> tuple[int, int]:
    """Parse a version, or the output of `kubectl version -o json` or of an API server.

    Raises ConfigurationError naming the accepted forms.
    """
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        if "clientVersion" in parsed and "serverVersion" not in parsed:
            raise ConfigurationError([_NO_SERVER])
        # Of kubectl's two versions, the server's counts.
        server = parsed if "gitVersion" in parsed else parsed.get("serverVersion")
        text = str(server.get("gitVersion", "")) if isinstance(server, dict) else ""
    match = _KUBERNETES_VERSION.fullmatch(text.strip())
    if match is None:
        fault = f"not a server version; give one such as 1.31, or pipe: {_command()}"
        raise ConfigurationError([fault])
    return int(match[1]), int(match[2])


def version_finding(subject: Subject, version: tuple[int, int]) -> Finding:
    """Return whether the cluster supports native sidecars."""
    text = ".".join(map(str, version))
    if version >= _OLDEST_KUBERNETES:
        return subject.ok(f"has version {text}, which supports native sidecars")
    return subject.error(
        f"has version {text}, which ignores restartPolicy: Always of the sidecar: executors wait "
        "forever",
        "update the cluster to 1.29 or later",
    )


def _command() -> str:
    return f"kubectl version -o json | {program_name()} doctor --kubernetes -"


@dataclass(frozen=True, slots=True)
class Deployment:
    """Options that describe the executors and their cluster."""

    executors: int | None = None
    kubernetes: str | None = None
    pod_template: Path | None = None
    spark_conf: Path | None = None
    spark: tuple[int, int] | None = None  # None: by the image's tag
    network_policy: Path | None = None


def check_executors(_subject: Subject, deployment: Deployment) -> Iterator[Finding]:
    """Yield the findings on pod template and properties, each with its file as the subject."""
    of_template = Subject("pod template", str(deployment.pod_template))
    of_conf = Subject("spark", str(deployment.spark_conf))
    pod = conf = fault = None
    policies: Collection[Manifest] = ()
    try:
        if deployment.spark_conf is not None:
            conf = read_spark_conf(deployment.spark_conf)
        if deployment.network_policy is not None:
            policies = read_manifests(deployment.network_policy, "NetworkPolicy")
    except ConfigurationError as error:
        fault = of_conf.error(error.detail, "name the files that spark-submit and kubectl get")
    try:
        if deployment.pod_template is not None:
            pod = read_pod_template(deployment.pod_template)
            # Spark 4.0's default is true.
            checks_all = (conf or {}).get("executor.checkAllContainers", "").lower() != "false"
            yield from pod_findings(of_template, pod, checks_all_containers=checks_all)
    except ConfigurationError as error:
        yield refusal_finding(of_template, error, remedy="name the file with --pod-template")
    if fault is not None:
        yield fault
    elif conf is not None:
        yield from spark_findings(of_conf, conf, pod)
        version = deployment.spark or image_version(conf)
        yield isolation_finding(of_conf, conf, version, policies=policies)


def read_spark_conf(path: Path) -> Mapping[str, str]:
    """Read the properties below `spark.kubernetes.`; raises ConfigurationError if that fails."""
    matches = [_LINE.fullmatch(line) for line in read_text(path).splitlines()]
    found = {match[1]: match[2] for match in matches if match}
    names = [name for name in found if name.startswith(_PREFIX)]
    return {name.removeprefix(_PREFIX): found[name] for name in names}


def image_version(conf: Mapping[str, str]) -> tuple[int, int] | None:
    """Return Spark's version by the tag of the image; None for other tags."""
    image = next((conf[name] for name in _IMAGES if name in conf), "")
    match = _TAG.fullmatch(image)
    return (int(match[1]), int(match[2])) if match else None


def spark_findings(
    subject: Subject, conf: Mapping[str, str], pod: Manifest | None
) -> Iterator[Finding]:
    """Yield the faults of the properties that name the pod template and its container."""
    if not conf.get("executor.podTemplateFile"):
        yield subject.error(
            "spark.kubernetes.executor.podTemplateFile is not set: executors have no sidecar",
            "set it to the file of the pod template",
        )
    name = conf.get("executor.podTemplateContainerName")
    containers = [str(each.get("name")) for each in parts(pod, "spec", "containers")]
    if name and pod is not None and name not in containers:
        yield subject.error(
            f"podTemplateContainerName is {name}, and the template has {', '.join(containers)}",
            "name the executor's container, not the sidecar's",
        )


def opens_health_port(policy: Manifest) -> bool:
    """Return whether a NetworkPolicy opens the port of metrics for executors."""
    labels = part(policy, "spec", "podSelector", "matchLabels")
    if part(labels, "spark-role") not in {None, "executor"}:
        return False
    rules = [parts(rule, "ports") for rule in parts(policy, "spec", "ingress")]
    opened = [[port.get("port") for port in ports] for ports in rules]
    return any(not ports or _HEALTH_PORT in ports for ports in opened)


def isolation_finding(
    subject: Subject,
    conf: Mapping[str, str],
    version: tuple[int, int] | None,
    *,
    policies: Collection[Manifest],
) -> Finding:
    """Return whether Prometheus reaches executors, which Spark 4.2 and later isolate."""
    known = ".".join(map(str, version)) if version else ""
    if version is not None and version < _ISOLATES_FROM:
        return subject.ok(f"Spark {known} does not isolate executors")
    if _POLICY_STEP in conf.get("driver.pod.excludedFeatureSteps", ""):
        return subject.ok("Spark's NetworkPolicy of executors is excluded")
    if any(map(opens_health_port, policies)):
        return subject.ok(f"a NetworkPolicy opens port {_HEALTH_PORT} for Prometheus")
    spark = f"Spark {known} allows" if version else "Spark 4.2 and later allow"
    return subject.warning(
        f"{spark} traffic between pods of the application only: Prometheus cannot reach port "
        f"{_HEALTH_PORT} (probes can)",
        "apply k8s/base/network-policy-prometheus.yaml and name it with --network-policy, or set "
        f"{_PREFIX}driver.pod.excludedFeatureSteps={_POLICY_STEP}"
        + ("" if version else "; for an older Spark, give --spark 4.1"),
    )
