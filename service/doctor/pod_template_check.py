"""The executor pod's template, read from its file.

Decides nothing; see `pod_findings` and `container_findings`.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.doctor.container_findings import SidecarNeeds, container_findings
from service.doctor.finding import Finding, Matter
from service.doctor.pod_findings import pod_findings
from service.doctor.pod_template import read_pod_template


@dataclass(frozen=True, slots=True)
class PodTemplateCheck:
    """The template in a file; what it must fit comes from configuration and spark.conf."""

    file: Path
    socket: Path | None = None  # listen.unix of the configuration
    needs: SidecarNeeds = field(default_factory=SidecarNeeds)
    checks_all: bool = True  # spark.kubernetes.executor.checkAllContainers

    @property
    def matter(self) -> Matter:
        """The file."""
        return Matter("pod template", str(self.file))

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """What is wrong with it."""
        try:
            template = read_pod_template(self.file)
        except ConfigurationError as error:
            reason, _, remedy = error.detail.partition("; ")
            yield self.matter.error(reason, remedy or "name the file with --pod-template")
            return
        for finding in pod_findings(
            self.matter, template, socket=self.socket, checks_all=self.checks_all
        ):
            yield finding
        if template.sidecar is not None:
            for finding in container_findings(self.matter, template.sidecar, self.needs):
                yield finding
