"""A sidecar of which nobody says where it is."""

from service.doctor.unknown_sidecar_check import UnknownSidecarCheck
from tests.service.doctor.findings import gathered


async def test_unknown_sidecar_is_skipped() -> None:
    """It is told why it was not asked, and how it can be."""
    (finding,) = await gathered(UnknownSidecarCheck("c.yaml").findings())

    assert (finding.check, finding.subject, finding.severity) == ("sidecar", "c.yaml", "skipped")
    assert finding.remedy == "correct it, or name the sidecar with --endpoint"
