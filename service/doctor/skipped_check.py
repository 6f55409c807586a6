"""What stands in the place of checks that nobody can do with what was given.

Looks at nothing: it is there so that the findings do not pass for all that there could be.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from service.doctor.configuration_check import CHECK
from service.doctor.finding import Finding, Matter

IMAGE_CONFIG = "/etc/sidelook/sidelook.yaml"  # where the manifests mount it


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """One finding: why it was not looked at, and what would let it be."""

    matter: Matter
    reason: str
    remedy: str

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One."""
        yield self.matter.skipped(self.reason, self.remedy)


def missing_configuration() -> SkippedCheck:
    """For the configuration and all that it names, where --config was left out."""
    return SkippedCheck(
        Matter(CHECK, "--config"),
        "no configuration is named: neither it nor its stores and secrets were looked at",
        f"name the sidecar's file with --config; in the image --config {IMAGE_CONFIG}",
    )


def unknown_sidecar(file: str) -> SkippedCheck:
    """For the sidecar of a configuration with faults: the usual place may be another one's."""
    return SkippedCheck(
        Matter("sidecar", file),
        "where it listens is not known, as the configuration cannot be loaded",
        "correct it, or name the sidecar with --endpoint",
    )
