"""The check of spark-submit's properties."""

from pathlib import Path

from service.doctor.deployment.spark_check import SparkCheck
from tests.service.doctor.executor_pod import TEMPLATE
from tests.service.doctor.findings import gathered, severities

K8S = Path(__file__).parents[3] / "k8s"
POLICY = K8S / "base/network-policy-prometheus.yaml"


async def test_shipped_properties_are_well() -> None:
    """What users copy has no finding, with the policy that is shipped beside it."""
    check = SparkCheck(K8S / "spark.conf", (4, 2), TEMPLATE, POLICY)

    assert set(severities(await gathered(check.findings()))) == {"ok"}


async def test_isolation_without_a_policy_is_told() -> None:
    """Spark 4.2 shuts Prometheus out unless a policy lets it in."""
    check = SparkCheck(K8S / "spark.conf", (4, 2), TEMPLATE)
    (finding,) = [each for each in await gathered(check.findings()) if each.severity != "ok"]

    assert (finding.severity, "--network-policy" in finding.remedy) == ("warning", True)


async def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    """Properties or a policy that cannot be read; a template's own check tells of it."""
    none = tmp_path / "none"

    assert severities(await gathered(SparkCheck(none).findings())) == ["error"]
    policy = SparkCheck(K8S / "spark.conf", network_policy=none)
    assert severities(await gathered(policy.findings())) == ["error"]
    template = SparkCheck(K8S / "spark.conf", (4, 1), pod_template=none)
    assert set(severities(await gathered(template.findings()))) == {"ok"}
