"""What is not asked where a configuration that cannot be loaded would say where the sidecar is.

Looks at nothing: the usual place is not asked instead, as the file may say otherwise.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from service.doctor.finding import Finding, Matter


@dataclass(frozen=True, slots=True)
class UnknownSidecarCheck:
    """Stands in the place of the checks of the sidecar and its socket."""

    file: str  # of the configuration

    @property
    def matter(self) -> Matter:
        """The sidecar of the file."""
        return Matter("sidecar", self.file)

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One."""
        yield self.matter.skipped(
            "where it listens is not known, as the configuration cannot be loaded",
            "correct it, or name the sidecar with --endpoint",
        )
