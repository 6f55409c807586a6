"""What Spark is told, as far as its executors' sidecars depend on it.

Pure; reading the file is the business of `spark_conf`.
"""

from collections.abc import Collection, Iterator

from service.doctor.finding import Finding, Matter
from service.doctor.manifest import Manifest
from service.doctor.spark_conf import SparkConf

LEAST_GRACE_S = 30  # the executor's own end, then 10 s to drain and 2 s for answers
ISOLATES_FROM = (4, 2)
_POLICY_STEP = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
_DURATION = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def spark_findings(
    matter: Matter, conf: SparkConf, *, containers: Collection[str] | None
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


def grace_finding(matter: Matter, text: str) -> Finding:
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
    matter: Matter,
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
