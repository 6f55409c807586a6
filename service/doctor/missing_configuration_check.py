"""What is not looked at where no configuration was named.

Looks at nothing: it is there so that the findings do not pass for all that there could be.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from service.doctor.configuration_check import CHECK
from service.doctor.finding import Finding, Matter

IMAGE_CONFIG = "/etc/sidelook/sidelook.yaml"  # where the manifests mount it


@dataclass(frozen=True, slots=True)
class MissingConfigurationCheck:
    """Stands in the place of the configuration's own check."""

    @property
    def matter(self) -> Matter:
        """The option that was left out."""
        return Matter(CHECK, "--config")

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One."""
        yield self.matter.skipped(
            "no configuration is named: neither it nor its stores and secrets were looked at",
            f"name the sidecar's file with --config; in the image --config {IMAGE_CONFIG}",
        )
