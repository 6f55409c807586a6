"""What spark-submit is told, read from its file.

Decides nothing; see `spark_findings`.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.doctor.finding import Finding, Matter
from service.doctor.manifest import read_manifests
from service.doctor.pod_template import read_pod_template
from service.doctor.spark_conf import read_spark_conf
from service.doctor.spark_findings import isolation_finding, spark_findings


@dataclass(frozen=True, slots=True)
class SparkCheck:
    """The file of spark-submit's properties, and what belongs to it."""

    file: Path
    version: tuple[int, int] | None = None  # of Spark; None: as its image tells, if it does
    pod_template: Path | None = None
    network_policy: Path | None = None
    health_port: int = 8816

    @property
    def matter(self) -> Matter:
        """The file."""
        return Matter("spark", str(self.file))

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
